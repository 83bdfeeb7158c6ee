"""The doctor, pointed at a Sentinel or at a primary with replicas: it names the replicas, and which can take over."""

from collections.abc import Iterator

import pytest

from aiolock._cli.doctor.report import Report, report_on
from aiolock._embedded_server import Server
from tests.support.topologies import NAME as PRIMARY
from tests.support.topologies import Replicated, ask, wait_until

USER = ("ACL", "SETUSER", "locker", "on", ">secret", "~*", "&*", "+@all")


@pytest.fixture(scope="module")
def group(server: Server) -> Iterator[Replicated]:
    """Every test leaves it as it was, but for users."""
    with Replicated(server._executable, replicas=2, sentinels=1) as running:
        yield running


@pytest.fixture(autouse=True)
def hardly_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The round trip is measured for a moment, not for a second."""
    monkeypatch.setattr("aiolock._cli.doctor.timing._DURATION", 0.05)


async def examined(server: Server, user: str = "") -> Report:
    return await report_on(server.url.replace("redis://", f"redis://{user}"), 30, "")


def found(report: Report, name: str) -> tuple[str, str]:
    """The status of the check, and its finding."""
    [check] = [check for check in report.checks if check.name == name]
    return check.status, check.found


async def test_a_sentinel_leads_to_the_primary_that_it_names(group: Replicated) -> None:
    report = await examined(group.sentinels[0])
    assert report.fit, report.text()
    primary = f"127.0.0.1:{group.primary.port}"
    assert found(report, "topology") == (
        "ok",
        f"a Sentinel (1 in all); it says that the primary {PRIMARY!r} is {primary}, with 2 replicas",
    )
    assert found(report, "role") == ("ok", "primary")
    assert found(report, "replicas") == ("note", "2 connected and in step; they follow with a delay")
    assert found(report, "failover")[0] == "ok"
    assert max(map(len, report.text().splitlines())) <= 120
    assert ask(group.primary, "KEYS", "*") == []


async def test_replicas_that_do_not_follow_are_reported(group: Replicated) -> None:
    for replica in group.replicas:
        replica.pause()
    try:
        report = await examined(group.primary)
    finally:
        for replica in group.replicas:
            replica.resume()
        wait_until(lambda: all(ask(each, "ROLE")[3] == "connected" for each in group.replicas), "they follow again")
    assert found(report, "replicas") == ("warning", "2 connected; 0 acknowledged a write within 1 s")
    assert found(report, "failover")[0] == "unknown"
    assert "is silent: no answer within 3 s; 1 more could not either" in found(report, "failover")[1]


@pytest.mark.parametrize(("setting", "value"), [("maxmemory-policy", "allkeys-lru"), ("appendonly", "yes")])
async def test_a_replica_that_is_set_up_differently_is_reported(group: Replicated, setting: str, value: str) -> None:
    [replica, _] = group.replicas
    before = ask(replica, "CONFIG", "GET", setting)
    ask(replica, "CONFIG", "SET", setting, value)
    try:
        report = await examined(group.primary)
    finally:
        ask(replica, "CONFIG", "SET", setting, before[setting] if isinstance(before, dict) else before[1])
    status, said = found(report, "failover")
    assert status == "warning"
    assert said.startswith(f"127.0.0.1:{replica.port} differs: {setting} {value} (the primary: ")


async def test_a_replica_that_does_not_let_the_user_lock_is_reported(group: Replicated) -> None:
    [replica, other] = group.replicas
    for server in (group.primary, other):
        ask(server, *USER)
    report = await examined(group.primary, "locker:secret@")
    assert found(report, "failover")[0] == "warning"
    assert f"127.0.0.1:{replica.port} refuses the user: " in found(report, "failover")[1]
    ask(replica, *USER, "-hset")
    report = await examined(group.primary, "locker:secret@")
    said = f"127.0.0.1:{replica.port} differs: refused: HSET"
    assert found(report, "failover") == ("warning", said)


@pytest.mark.slow
async def test_two_servers_that_take_themselves_for_the_primary_are_reported(server: Server) -> None:
    """After a failover the old primary is back, and not demoted yet; here the Sentinel may not demote it."""
    with Replicated(server._executable, replicas=2, sentinels=1) as group:
        [back, _] = group.replicas
        ask(back, "REPLICAOF", "NO", "ONE")
        ask(back, "ACL", "SETUSER", "default", "-slaveof", "-replicaof", "-multi")
        report = await examined(group.sentinels[0])
    assert not report.fit
    assert found(report, "failover") == ("error", f"127.0.0.1:{back.port} reports that it is a primary")
    assert found(report, "replicas") == ("warning", "1 connected; there should be 2")
