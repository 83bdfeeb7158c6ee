"""The doctor's judgements on facts and samples; these are forged, because no server here has them all."""

from typing import cast

import pytest
from redis.asyncio import Redis

from aiolock._cli.doctor import replication, sentinel, server, timing
from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.facts import Facts
from aiolock._cli.doctor.permissions import try_permissions
from aiolock._cli.doctor.replication import Replica, Replicas
from aiolock._cli.doctor.report import Report
from aiolock._cli.doctor.timing import Sample, Samples
from aiolock._cli.probe import Address, Probe
from aiolock._config import LockConfig, Timing
from aiolock._core.hold import margin
from aiolock._keys import LockKeys
from aiolock._redis.address import address

GOOD_INFO = {
    "redis_version": "7.0.15",
    "redis_mode": "standalone",
    "role": "master",
    "connected_slaves": "0",
    "maxmemory": "0",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
}
GOOD_CONFIG = {"save": "", "appendonly": "yes", "appendfsync": "always", "min-replicas-to-write": "0"}
TIMING = Timing.of(LockConfig())
MARGIN = margin(TIMING.lease, TIMING)
PATIENCE = TIMING.renewal_patience


def judged(name: str, info: dict[str, str], config: dict[str, str] | None = None) -> Check:
    facts = Facts(GOOD_INFO | info, GOOD_CONFIG | (config or {}))
    [check] = [check for check in server.judge(facts) if check.name == name]
    return check


class Mute:
    """Stands for a probe to a server that does not tell scripts what a user may do, as before Redis 7."""

    async def ask(self, *command: str) -> list[int]:
        return []


async def test_permissions_that_a_server_cannot_tell_are_not_known() -> None:
    check = await try_permissions(cast("Probe", Mute()), LockKeys.of("orders", ""))
    assert (check.status, bool(check.advice)) == ("unknown", True)


def test_good_facts_are_good() -> None:
    assert {check.status for check in server.judge(Facts(GOOD_INFO, GOOD_CONFIG))} == {"ok"}


def test_without_facts_nothing_is_known() -> None:
    checks = server.judge(Facts())
    assert {check.status for check in checks} == {"unknown"}
    assert all(check.advice for check in checks)


@pytest.mark.parametrize(
    ("info", "status", "said"),
    [
        ({"redis_version": "6.0.16"}, "error", "Redis 6.0.16"),
        ({"redis_version": "6.2.20"}, "note", "tested on Redis 7.0 and Valkey 9.1"),
        ({"redis_version": "10.1.0"}, "note", "Redis 10.1.0"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.1"}, "note", "Valkey 8.1.1"),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.9"}, "ok", "Valkey 9.1.9"),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.37.0"}, "warning", "Dragonfly df-v1.37.0"),
        ({"redis_version": "6.3.4", "executable": "/usr/bin/keydb-server"}, "warning", "KeyDB 6.3.4"),
        ({"redis_version": "7.0.0", "kvrocks_version": "2.11.1"}, "warning", "Kvrocks 2.11.1"),
        ({"redis_version": "7.4.3", "garnet_version": "1.0.80"}, "warning", "Garnet 1.0.80"),
        ({"redis_version": "8.4-rc1"}, "note", "Redis 8.4-rc1"),
    ],
)
def test_versions(info: dict[str, str], status: str, said: str) -> None:
    check = judged("version", info)
    assert check.status == status
    assert said in check.found


@pytest.mark.parametrize(
    ("policy", "limit", "status", "said"),
    [
        ("noeviction", "1000", "ok", "noeviction"),
        ("allkeys-lru", "1000", "error", "maxmemory 1000"),
        ("allkeys-lru", "0", "warning", "maxmemory not set"),
        ("volatile-ttl", "1000", "error", "maxmemory 1000"),
        ("volatile-lru", "", "error", "maxmemory not known"),
        ("volatile-ttl", "0", "warning", "maxmemory not set"),
        ("allkeys-lru", "", "error", "maxmemory not known"),
    ],
)
def test_eviction(policy: str, limit: str, status: str, said: str) -> None:
    check = judged("eviction", {"maxmemory_policy": policy, "maxmemory": limit})
    assert check.status == status
    assert said in check.found


def test_facts_that_info_leaves_out_are_taken_from_the_settings() -> None:
    """Older servers, and those of managed services, say less."""

    def judged_by_settings(name: str, **settings: str) -> str:
        facts = Facts({}, {setting.replace("_", "-"): value for setting, value in settings.items()})
        [check] = [check for check in server.judge(facts) if check.name == name]
        return check.status

    assert judged_by_settings("eviction", maxmemory_policy="noeviction") == "ok"
    assert judged_by_settings("eviction", maxmemory_policy="allkeys-lru", maxmemory="1000") == "error"
    assert judged_by_settings("eviction", maxmemory_policy="allkeys-lru", maxmemory="0") == "warning"
    assert judged_by_settings("persistence", appendonly="yes", appendfsync="always", save="") == "ok"
    assert judged_by_settings("persistence", appendonly="no", appendfsync="always", save="") == "warning"
    assert judged_by_settings("persistence", appendfsync="always", save="3600 1") == "unknown"


@pytest.mark.parametrize(
    ("log", "config", "status", "said"),
    [
        ("1", {}, "ok", "always"),
        ("1", {"appendfsync": "everysec"}, "note", "everysec"),
        ("0", {"save": "3600 1"}, "note", "snapshots"),
        ("0", {}, "warning", "forgets every lock"),
    ],
)
def test_persistence(log: str, config: dict[str, str], status: str, said: str) -> None:
    check = judged("persistence", {"aof_enabled": log}, config)
    assert check.status == status
    assert said in check.found


@pytest.mark.parametrize(("log", "said"), [("1", "append-only file"), ("0", "not known")])
def test_persistence_without_config_is_half_known(log: str, said: str) -> None:
    facts = Facts({"aof_enabled": log}, {}, ["CONFIG"])
    [check] = [check for check in server.judge(facts) if check.name == "persistence"]
    assert check.status == "unknown"
    assert said in check.found
    assert "the server refuses CONFIG" in check.found


@pytest.mark.parametrize(
    ("name", "info", "status", "said"),
    [
        ("role", {"role": "slave"}, "error", "its link to the primary is not known"),
        ("role", {"role": "slave", "master_link_status": "up"}, "error", "its link to the primary is up"),
        (
            "role",
            {"role": "slave", "master_link_status": "down", "master_link_down_since_seconds": "12"},
            "error",
            "its link to the primary is down, for 12 s",
        ),
        ("role", {"role": "replica"}, "error", "replica: it takes no locks"),
        ("role", {"role": "active-replica"}, "error", "two servers may grant"),
        ("topology", {"redis_mode": "cluster"}, "error", "cluster"),
        ("topology", {"redis_mode": "something"}, "error", "something"),
        ("min-replicas", {"connected_slaves": "2"}, "note", "min-replicas-to-write 0"),
    ],
)
def test_role_and_replicas(name: str, info: dict[str, str], status: str, said: str) -> None:
    check = judged(name, info)
    assert check.status == status
    assert said in check.found


@pytest.mark.parametrize(("mode", "status"), [("standalone", "ok"), ("cluster", "error")])
def test_the_mode_of_a_valkey_that_gives_it_under_its_own_name(mode: str, status: str) -> None:
    [check] = [check for check in server.judge(Facts({"server_mode": mode})) if check.name == "topology"]
    assert check.status == status


def test_min_replicas_that_are_wanted_are_fine() -> None:
    assert judged("min-replicas", {"connected_slaves": "2"}, {"min-replicas-to-write": "1"}).status == "ok"


ONE, TWO = ("10.0.0.1", 7000), ("10.0.0.2", 7000)
IN_STEP = Replica(ONE, "online", 1)


@pytest.mark.parametrize(
    ("replicas", "status", "said"),
    [
        (Replicas([]), "ok", "none"),
        (Replicas(None), "unknown", "the server refuses INFO"),
        (Replicas(None, frozenset([ONE])), "unknown", "1 by name; whether they follow is not known"),
        (Replicas([], frozenset([ONE])), "warning", "0 connected; there should be 1"),
        (Replicas([IN_STEP], frozenset([ONE, TWO])), "warning", "1 connected; there should be 2"),
        (Replicas([IN_STEP]), "note", "1 connected and in step; they follow with a delay"),
        (Replicas([IN_STEP], frozenset([ONE]), 1), "note", "in step"),
        (Replicas([IN_STEP], acknowledged=0), "warning", "0 acknowledged a write within 1 s"),
        (Replicas([Replica(ONE, "online", 10)]), "note", "in step"),
        (Replicas([Replica(ONE, "online", 11)]), "warning", "10.0.0.1:7000 was not heard of for 11 s"),
        (Replicas([Replica(ONE, "wait_bgsave", 0)]), "warning", "10.0.0.1:7000 is not in step: wait_bgsave"),
    ],
)
def test_whether_replicas_follow(replicas: Replicas, status: str, said: str) -> None:
    facts = Facts(refused=["INFO"])
    check = replication.judge(replicas, facts, in_a_cluster=False)
    assert (check.status, bool(check.advice)) == (status, status != "ok")
    assert said in check.found
    in_a_cluster = replication.judge(replicas, facts, in_a_cluster=True)
    assert in_a_cluster.status == ("warning" if not replicas.named and not replicas.connected else status)


@pytest.mark.parametrize(
    ("flags", "astray", "status", "said"),
    [
        ([], [], "ok", "a Sentinel (3 in all); it says that the primary 'orders' is 10.0.0.1:7000, with 1 replica"),
        (["s_down", "o_down"], [], "error", "flags s_down, o_down"),
        ([], [TWO], "error", "10.0.0.2:7000 reports that it is a primary, too"),
    ],
)
def test_the_facts_of_a_sentinel_about_its_primary(
    flags: list[str], astray: list[Address], status: str, said: str
) -> None:
    check = sentinel.judge(sentinel.Watched("orders", ONE, flags, 3, frozenset([TWO]), astray))
    assert (check.status, bool(check.advice)) == (status, status != "ok")
    assert said in check.found


def pings(*round_trips: float) -> Samples:
    return Samples(round_trips, [], 0.0)


@pytest.mark.parametrize(
    ("round_trips", "status"),
    [
        ([0.001] * 100, "ok"),
        ([0.001] * 199 + [3.0], "ok"),
        ([0.001] * 97 + [1.0] * 3, "warning"),
        ([0.001] * 60 + [2 * PATIENCE] * 40, "warning"),
        ([PATIENCE / 2], "ok"),
        ([PATIENCE / 2 + 0.001], "warning"),
        ([PATIENCE], "warning"),
        ([PATIENCE + 0.001], "error"),
    ],
)
def test_round_trips(round_trips: list[float], status: str) -> None:
    assert timing.judge_round_trip(pings(*round_trips), TIMING).status == status


def test_round_trips_are_judged_by_the_lease() -> None:
    assert timing.judge_round_trip(pings(0.3), TIMING).status == "ok"
    assert timing.judge_round_trip(pings(0.3), Timing.of(LockConfig(lease=1))).status == "error"


def test_the_median_and_the_p99_of_the_pings_are_right() -> None:
    check = timing.judge_round_trip(pings(*(number / 1000 for number in range(1, 101))), TIMING)
    assert check.found == "median 50.5 ms, p99 99 ms, of 100 pings"
    assert timing.judge_round_trip(pings(1.5), TIMING).found == "median 1.5 s, p99 1.5 s, of 1 pings"


def clock(*samples: tuple[float, float, float], ours: float = 1000.0) -> Check:
    return timing.judge_clock(Samples([], [Sample(*sample) for sample in samples], ours), TIMING)


def test_a_steady_clock_is_ok_however_late_its_answers() -> None:
    check = clock((0.0, 1000.0, 0.001), (0.1, 1000.9, 0.9), (1.0, 1001.0, 3.0))
    assert check.status == "ok"
    assert "steady" in check.found


@pytest.mark.parametrize(
    ("jump", "status"),
    [(0.005, "ok"), (0.1, "warning"), (-0.1, "warning"), (MARGIN + 0.1, "error"), (-MARGIN - 0.1, "error")],
)
def test_a_clock_that_jumps_is_seen(jump: float, status: str) -> None:
    check = clock((0.0, 1000.0, 0.001), (0.5, 1000.5 + jump, 0.501), (0.9, 1000.9 + jump, 0.901))
    assert check.status == status
    assert ("jumped" in check.found) == (status != "ok")


@pytest.mark.parametrize(
    ("jump", "status"),
    [(0.0099, "ok"), (0.0101, "warning"), (MARGIN - 0.001, "warning"), (MARGIN + 0.001, "error")],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_how_far_a_clock_may_jump(jump: float, status: str, sign: int) -> None:
    assert clock((0.0, 1000.0, 0.0), (0.5, 1000.5 + sign * jump, 0.5)).status == status


@pytest.mark.parametrize(
    ("ours", "said", "status"),
    [
        (1000.2, "200 ms behind", "ok"),
        (999.8, "200 ms ahead", "ok"),
        (1000.9, "900 ms behind", "ok"),
        (1001.1, "1.1 s behind", "note"),
        (998.9, "1.1 s ahead", "note"),
        (900.0, "100 s ahead", "note"),
    ],
)
def test_the_offset_to_our_clock_is_reported(ours: float, said: str, status: str) -> None:
    check = clock((0.0, 1000.0, 0.0), ours=ours)
    assert said in check.found
    assert check.status == status


def test_a_short_lease_survives_less_than_other_calls() -> None:
    assert timing.judge_lease(TIMING).status == "ok"
    assert timing.judge_lease(Timing.of(LockConfig(lease=5))).status == "note"


@pytest.mark.parametrize(
    ("renew_interval", "drift", "status"), [(4, 1, "ok"), (4, 1.01, "note"), (4.01, 1, "note"), (3.99, 1.01, "ok")]
)
def test_the_stalls_that_a_lease_survives(renew_interval: float, drift: float, status: str) -> None:
    """A lock survives what is left of its lease when a renewal is due, less the margin; other calls five seconds."""
    config = LockConfig(lease=10, renew_interval=renew_interval, drift=drift)
    assert timing.judge_lease(Timing.of(config)).status == status


@pytest.mark.parametrize(
    ("query", "status"), [("socket_timeout=2", "ok"), ("socket_timeout=2&retry_on_timeout=1", "ok")]
)
async def test_the_settings_of_the_client_are_those_of_the_url(query: str, status: str) -> None:
    async with Redis.from_url(f"redis://localhost?{query}") as redis:
        check = timing.judge_client(redis, TIMING)
    assert check.status == status
    assert check.found.startswith("socket_timeout 2 s; ")


async def test_a_client_without_a_timeout_is_worth_a_note() -> None:
    async with Redis.from_url("redis://localhost", socket_timeout=None) as redis:
        assert timing.judge_client(redis, TIMING).status == "note"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:secret@host:7000/3", "redis://host:7000/3"),
        ("rediss://:secret@host?password=secret", "rediss://host:6379/0"),
        ("redis://:secret@[::1]:7000", "redis://[::1]:7000/0"),
        ("unix://me:secret@/run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("redis://", "redis://localhost:6379/0"),
    ],
)
async def test_the_address_has_no_secrets(url: str, shown: str) -> None:
    async with Redis.from_url(url) as redis:
        assert address(redis) == shown


def test_a_report_is_aligned_and_counts() -> None:
    report = Report("here", 30, [Check("a", "ok", "fine"), Check("longer", "unknown", "dark", "look")])
    assert report.fit
    assert report.text().splitlines()[2:] == [
        "ok       a       fine",
        "unknown  longer  dark",
        "                 -> look",
        "",
        "Fit to keep locks: errors 0, warnings 0, notes 0, not known 1.",
    ]
