"""The cases that the checks excuse, and their neighbours."""

from collections.abc import Iterator

import pytest

from tests.simulation.checks.family import Family
from tests.simulation.checks.leftovers import kept_for
from tests.simulation.redis_data import Data
from tests.simulation.script_calls import Ran
from tests.simulation.server import Server
from tests.simulation.world import World

CLIENT, OWNER, ACQUISITION = "c1", b"c1@host/1:7", b"c1:9"


def test_a_lock_is_left_unless_the_server_forgot_the_end_of_its_acquisition() -> None:
    data = Data(lambda: 0)
    data.run(b"HSET", [b"lock", OWNER, b"1", b"aiolock:acquisition", ACQUISITION])
    assert list(kept_for(data, [CLIENT], {ACQUISITION})) == []
    assert len(list(kept_for(data, [CLIENT], set()))) == 1
    assert len(list(kept_for(data, [CLIENT], {b"c1:8", b"c2:9"}))) == 1


def test_a_detached_hold_outlives_its_client_and_no_other_does() -> None:
    data = Data(lambda: 0)
    data.run(b"HSET", [b"lock", b"c1@host/1:detached:abc:7", b"1", b"aiolock:acquisition", ACQUISITION])
    assert list(kept_for(data, [CLIENT], set(), but=b":detached:")) == []
    assert len(list(kept_for(data, [CLIENT], set()))) == 1
    data.run(b"HSET", [b"other", OWNER, b"1", b"aiolock:acquisition", b"c1:8"])
    assert len(list(kept_for(data, [CLIENT], set(), but=b":detached:"))) == 1


def test_a_reader_is_left_unless_the_server_forgot_the_end_of_its_acquisition() -> None:
    data, record = Data(lambda: 0), b"{rw}:" + OWNER + b":rwlock_timeout:1"
    data.run(b"HSET", [b"rw", b"mode", b"read", OWNER, b"1"])
    # Without its record its acquisition is not known, but its client.
    assert list(kept_for(data, [CLIENT], {ACQUISITION})) == []
    assert len(list(kept_for(data, [CLIENT], {b"c2:9"}))) == 1
    data.run(b"HSET", [record, b"acquisition", ACQUISITION, b"token", b"1", b"step", b"1", b"renewal", b"1"])
    data.run(b"PEXPIRE", [record, b"1000"])
    assert list(kept_for(data, [CLIENT], {ACQUISITION})) == []
    assert len(list(kept_for(data, [CLIENT], {b"c1:8"}))) == 1


def test_a_permit_is_left_unless_the_server_forgot_the_end_of_its_acquisition() -> None:
    data = Data(lambda: 0)
    data.run(b"ZADD", [b"{permits}:timeout", b"1000", ACQUISITION + b"#1"])
    assert list(kept_for(data, [CLIENT], {ACQUISITION})) == []
    assert len(list(kept_for(data, [CLIENT], {b"c1:8"}))) == 1


@pytest.fixture
def world() -> Iterator[World]:
    yield World(0)
    World.here = None


def permits_come_back(world: World, family: Family, server: Server, acquisition: bytes) -> list[str]:
    """The findings of the checks if a release raises the count without saying whether its permit was taken."""
    server.data.run(b"SET", [b"sem", b"2"])
    words = (b"sem", b"tokens", acquisition, b"0", b"1", b"1", b"", b"1", b"channel", b"PUBLISH")
    family.judge(server, Ran("counting_semaphore/release", list(words), b"*3\r\n:1\r\n:0\r\n:0\r\n"))
    return world.violations


@pytest.mark.parametrize(
    ("acquisition", "has_older_data", "is_found"),
    [(b"c1:1", False, False), (b"c1:2", False, True), (b"c1:2", True, False)],
)
def test_a_permit_that_nobody_had_comes_back_only_from_older_data(
    world: World, acquisition: bytes, has_older_data: bool, is_found: bool
) -> None:
    family, server = Family(world, {"permits": 2, "sem": 2}), Server(world, "s1")
    if has_older_data:
        family.forget(server)
    server.data.run(b"SET", [b"sem", b"1"])
    words = (b"sem", b"tokens", b"c1:1", b"1", b"1", b"1", b"2", b"channel", b"PUBLISH")
    family.judge(server, Ran("counting_semaphore/acquire", list(words), b"*5\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1\r\n"))
    assert [each.split(":")[0] for each in permits_come_back(world, family, server, acquisition)] == ["sum"] * is_found


def close_latch(family: Family, server: Server, request: bytes) -> None:
    """The server says that it closed the latch for the request."""
    words = [b"latch", b"tokens", request, b"1", b"1", b"", b"2", b"channel", b"PUBLISH"]
    family.judge(server, Ran("latch/set", words, b"*3\r\n:1\r\n:0\r\n:0\r\n"))


@pytest.mark.parametrize(("again", "found"), [(b"c1:1", []), (b"c1:2", ["latch"])])
def test_only_a_copy_of_a_call_may_find_that_the_latch_is_closed(world: World, again: bytes, found: list[str]) -> None:
    family, server = Family(world, {"permits": 2, "sem": 2}), Server(world, "s1")
    server.data.run(b"SET", [b"latch", b"2"])
    close_latch(family, server, b"c1:1")
    close_latch(family, server, again)
    assert [each.split(":")[0] for each in world.violations] == found


def test_a_latch_is_closed_unless_a_replaced_primary_may_have_answered(world: World) -> None:
    family, server = Family(world, {"permits": 2, "sem": 2}), Server(world, "s1")
    server.data.run(b"SET", [b"latch", b"2"])
    close_latch(family, server, b"c1:1")
    family.opened("p1", server, since=2.0, replaced_until=2.0)
    assert world.violations == []
    family.opened("p1", server, since=2.0, replaced_until=1.9)
    assert len(world.violations) == 1
