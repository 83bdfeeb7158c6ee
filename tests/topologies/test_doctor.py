"""The doctor, pointed at any server of a cluster: it checks the whole, and every primary."""

import asyncio
import json
import re

import pytest
from redis.asyncio import Redis

from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.cluster import Cluster, compare, learn
from aiolock._cli.doctor.primaries import merged, throw_away
from aiolock._cli.doctor.report import Report, report_on
from aiolock._cli.probe import Probe, with_address
from tests.deployments.test_permissions import RULES
from tests.docs.pages import PAGES, ROOT
from tests.support.topologies import ClusterOf, ask
from tests.test_doctor import OF_THE_MACHINE, examine, named, run, with_timeout

WHOLE = ["reachable", "topology", "slots"]
EACH = [
    *("version", "role", "coverage", "eviction", "persistence", "min-replicas", "owners", "migration"),
    *("permissions", "scripts", "sharded-messages", "replicas", "failover", "round-trip", "clock"),
]
ALL = [*WHOLE, *EACH, "lease", "client"]


@pytest.fixture(autouse=True)
def hardly_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round trip is measured for a moment, not for a second."""
    monkeypatch.setattr("aiolock._cli.doctor.timing._DURATION", 0.05)


async def test_every_primary_is_checked_and_keeps_no_key(calm: ClusterOf) -> None:
    ended = await examine(calm.primaries[1].url)
    assert (ended.code, list(ended.checks)) == (0, ALL)
    assert set(ended.named("warning")) - OF_THE_MACHINE == {"replicas", "persistence"}
    assert ended.checks["topology"]["found"] == "a cluster: primaries 3, replicas 0; a primary was asked"
    assert ended.checks["slots"]["found"] == "16384 of 16384 have an owner; cluster_state ok"
    assert ended.checks["scripts"]["found"].startswith("all 3 primaries: a lock was taken")
    assert json.loads(ended.output)["server"] == f"{calm.primaries[1].url}/0"
    assert [ask(server, "KEYS", "*") for server in calm.primaries] == [[], [], []]


@pytest.mark.slow
async def test_a_replica_leads_to_the_cluster_too(fragile: ClusterOf) -> None:
    ended = await run(with_timeout(fragile.replicas[0].url))
    assert (ended.code, ended.errors) == (0, ""), ended.output
    assert "primaries 3, replicas 3; a replica was asked" in ended.output
    assert re.search(r"^note +replicas +all 3 primaries: 1 connected and in step", ended.output, re.MULTILINE)
    assert max(map(len, ended.output.splitlines())) <= 120


async def test_one_bad_primary_makes_the_cluster_unfit_and_is_named(calm: ClusterOf) -> None:
    bad = calm.primaries[2]
    settings = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru", "cluster-require-full-coverage": "yes"}
    before = {name: ask(bad, "CONFIG", "GET", name) for name in settings}
    try:
        for name, value in settings.items():
            ask(bad, "CONFIG", "SET", name, value)
        ended = await examine(calm.primaries[0].url)
    finally:
        for name, old in before.items():
            ask(bad, "CONFIG", "SET", name, old[name] if isinstance(old, dict) else old[1])
    assert (ended.code, ended.named("error")) == (1, ["eviction"])
    for name, status in (("eviction", "error"), ("coverage", "note")):
        assert ended.statuses[name] == status
        assert ended.checks[name]["found"].startswith(f"127.0.0.1:{bad.port}: ")


@pytest.mark.slow
async def test_a_primary_that_does_not_answer_is_named(calm: ClusterOf) -> None:
    silent = calm.primaries[2]
    silent.pause()
    try:
        ended = await examine(calm.primaries[0].url)
    finally:
        silent.resume()
    assert (ended.code, "answering" in ended.named("error")) == (1, True)
    assert ended.checks["answering"]["found"].startswith(f"127.0.0.1:{silent.port}: no answer within")


@pytest.mark.parametrize(
    ("rules", "errors"),
    [
        (["-ssubscribe"], ["permissions", "sharded-messages"]),
        (["-cluster|slots"], ["topology"]),
        (["-pubsub|shardnumsub", "-subscribe"], ["permissions", "messages"]),
        (["-cluster|info", "-info", "-config"], []),
    ],
    ids=" ".join,
)
async def test_a_permission_that_is_missing_is_found(calm: ClusterOf, rules: list[str], errors: list[str]) -> None:
    for server in calm.primaries:
        ask(server, "ACL", "SETUSER", "limited", "reset", "on", ">secret", "~*", "&*", "+@all", *rules)
    ended = await examine(calm.primaries[0].url.replace("redis://", "redis://limited:secret@"))
    assert ended.named("error") == errors, ended.checks
    assert ended.code == bool(errors)


@pytest.mark.parametrize(
    ("rules", "said", "advice"),
    [
        ([">other"], "invalid username-password pair", "right user and password"),
        ([">secret", "-ping"], "PING was refused", "permissions"),
    ],
    ids=["password", "permission"],
)
async def test_one_primary_that_refuses_is_named_and_the_others_are_counted(
    calm: ClusterOf, rules: list[str], said: str, advice: str
) -> None:
    for server in calm.primaries:
        ask(server, "ACL", "SETUSER", "limited", "reset", "on", "~*", "&*", "+@all", ">secret")
    strict = calm.primaries[2]
    ask(strict, "ACL", "SETUSER", "limited", "reset", "on", "~*", "&*", "+@all", *rules)
    ended = await examine(calm.primaries[0].url.replace("redis://", "redis://limited:secret@"))
    assert (ended.code, "answering" in ended.named("error")) == (1, True), ended.checks
    assert ended.checks["answering"]["found"].startswith(f"127.0.0.1:{strict.port}: ")
    assert said in ended.checks["answering"]["found"]
    assert advice in ended.checks["answering"]["advice"]
    assert ended.checks["version"]["found"].startswith("2 of 3 primaries: ")


[OF_A_CLUSTER] = re.findall(r"and these: `([^`]+)`", (ROOT / "docs/deployments/cluster.md").read_text())


async def judged(calm: ClusterOf, user: str, *taken: str) -> Report:
    """The doctor's report for a user with the documented permissions, without those *taken* on the last primary."""
    for server in calm.primaries:
        ask(server, "ACL", "SETUSER", user, *RULES[3:], *OF_A_CLUSTER.split())
    ask(calm.primaries[2], "ACL", "SETUSER", user, *taken)
    return await report_on(calm.primaries[0].url.replace("redis://", f"redis://{user}:secret@"), 30, "shop:")


async def test_the_permissions_that_are_documented_are_enough(calm: ClusterOf) -> None:
    report = await judged(calm, "locker")
    assert report.fit, report.text()
    [scripts] = [check.found for check in report.checks if check.name == "scripts"]
    assert scripts.startswith("all 3 primaries")
    assert [ask(server, "KEYS", "*") for server in calm.primaries] == [[], [], []]


async def test_each_documented_permission_is_missed_when_one_primary_refuses_it(calm: ClusterOf) -> None:
    commands = [*(rule.removeprefix("+") for rule in OF_A_CLUSTER.split()), "zscore"]
    assert {"cluster|slots", "pubsub|shardnumsub", "asking", "sunsubscribe"} < set(commands)
    reports = await asyncio.gather(*(judged(calm, f"without-{each}", f"-{each}") for each in commands))
    for command, report in zip(commands, reports, strict=True):
        assert not report.fit, (command, report.text())
        found = " ".join(each for each in named(report, "error").values() if f":{calm.primaries[2].port}: " in each)
        assert re.search(rf"\b{command.replace('|', ' ')}\b", found, re.IGNORECASE), report.text()


async def test_slots_that_are_half_moved_are_reported(calm: ClusterOf) -> None:
    source, target, _ = calm.primaries
    ask(source, "CLUSTER", "SETSLOT", 77, "MIGRATING", calm.id_of(target))
    ask(target, "CLUSTER", "SETSLOT", 77, "IMPORTING", calm.id_of(source))
    try:
        report = await report_on(calm.primaries[2].url, 30, "")
    finally:
        for server in (source, target):
            ask(server, "CLUSTER", "SETSLOT", 77, "STABLE")
    assert report.fit
    found = named(report, "warning")["migration"]
    assert re.fullmatch(r"127\.0\.0\.1:\d+: slots moving (out 1, in 0|out 0, in 1): 77; 1 more like it", found)


async def test_a_server_that_knows_other_owners_is_reported(calm: ClusterOf) -> None:
    address = (calm.primaries[1].host, calm.primaries[1].port)
    async with Redis.from_url(calm.primaries[1].url) as redis, Probe(redis) as probe:
        cluster = await learn(probe, address)
        assert (await compare(probe, cluster)).status == "ok"
        cluster.owners[5] = "another"
        check = await compare(probe, cluster)
    assert check.status == "error"
    assert "for 1 slots" in check.found


@pytest.mark.slow
async def test_a_replica_of_a_cluster_that_does_not_know_the_user_is_reported(fragile: ClusterOf) -> None:
    for server in [*fragile.primaries, *fragile.replicas[1:]]:
        ask(server, "ACL", "SETUSER", "locker", "on", ">secret", "~*", "&*", "+@all")
    report = await report_on(fragile.primaries[1].url.replace("redis://", "redis://locker:secret@"), 30, "")
    assert report.fit, report.text()
    assert f"127.0.0.1:{fragile.replicas[0].port} refuses the user" in named(report, "warning")["failover"]


async def test_an_address_that_a_cluster_client_cannot_use_is_reported(calm: ClusterOf) -> None:
    ended = await examine(calm.primaries[0].unix_url)
    assert (ended.code, ended.named("error")) == (1, ["topology"])
    assert "no unix socket" in ended.checks["topology"]["advice"]


async def test_a_database_in_the_url_of_a_cluster_is_reported(calm: ClusterOf) -> None:
    ended = await examine(f"{calm.primaries[0].url}/3")
    assert (ended.code, list(ended.checks), ended.named("error")) == (1, ["reachable", "topology"], ["topology"])
    assert ended.checks["topology"]["found"] == "a cluster, and the URL names database 3"
    assert "only database 0" in ended.checks["topology"]["advice"]


async def test_the_page_names_the_checks_of_a_cluster(calm: ClusterOf) -> None:
    [page] = [page for page in PAGES if page.name == "docs/how-to/check-a-server.md"]
    single, _, cluster = page.prose.partition("## A cluster")
    for name in ALL:
        assert f"| `{name}` |" in single + cluster
    assert not {"database", "messages"} & set(ALL)
    assert "there is no `database`" in cluster


# The merged results of the checks of several primaries.

HERE, THERE, ELSEWHERE = ("10.0.0.1", 7000), ("10.0.0.2", 7000), ("10.0.0.3", 7000)


def test_the_worst_of_each_check_counts() -> None:
    good, bad = Check("a", "ok", "fine"), Check("a", "warning", "so so", "mend it")
    assert merged({HERE: [good], THERE: [good]}) == [Check("a", "ok", "all 2 primaries: fine")]
    assert merged({HERE: [good], THERE: [bad]}) == [Check("a", "warning", "10.0.0.2:7000: so so", "mend it")]
    [three] = merged({HERE: [bad], THERE: [good], ELSEWHERE: [bad]})
    assert three.found == "10.0.0.1:7000: so so; 1 more like it"
    two, silent = Check("a", "ok", "fine"), Check("answering", "error", "gone", "see")
    assert merged({HERE: [two], THERE: [silent], ELSEWHERE: [two]})[0].found == "2 of 3 primaries: fine"
    for better, worse in (("ok", "note"), ("note", "unknown"), ("unknown", "warning"), ("warning", "error")):
        found = {HERE: [Check("a", better, "")], THERE: [Check("a", worse, "")]}  # type: ignore[arg-type]
        assert [check.status for check in merged(found)] == [worse]


def test_a_server_that_fell_silent_does_not_change_the_order() -> None:
    whole = [Check("a", "ok", ""), Check("b", "ok", ""), Check("c", "ok", "")]
    checks = merged({HERE: [Check("a", "ok", ""), Check("c", "ok", "")], THERE: whole})
    assert [check.name for check in checks] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("url", "there"),
    [
        ("redis://me:se%40cret@host:7000/0?socket_timeout=1", "redis://me:se%40cret@10.0.0.2:7000/0?socket_timeout=1"),
        ("rediss://host", "rediss://10.0.0.2:7000"),
    ],
)
def test_the_address_of_another_server(url: str, there: str) -> None:
    assert with_address(url, THERE) == there
    assert with_address("redis://host", ("::1", 7000)) == "redis://[::1]:7000"
    assert with_address("unix://me:secret@/run/redis.sock?db=2", THERE) == "redis://me:secret@10.0.0.2:7000"


def test_throw_away_locks_are_where_they_can_be() -> None:
    cluster = Cluster(True)
    cluster.slots = {HERE: {5}, THERE: set(range(6, 16384))}
    assert set(throw_away(cluster, "")) == {HERE, THERE}
    assert len(throw_away(cluster, "{tag}:")) == 1
