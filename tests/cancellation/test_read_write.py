"""Cancelled wherever it suspends, whatever reads or writes leaves nothing behind."""

import asyncio
from typing import Any

import pytest

from aiolock import AsyncReadWriteLock, LockClient
from tests.cancellation.rounds import ME, Arena, Round, Run, State, Temperature, each_temperature, one_server, visit
from tests.support.cancellation import MODES, Mode
from tests.support.observe import until

pytestmark = one_server
each_mode = pytest.mark.parametrize("mode", MODES)


class _Half(Round):
    """The same with one half of a read-write lock, for which everybody waits behind the other half."""

    half: str
    holder: str

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return getattr(self.whole(client, owner), self.holder if owner == "holder" else self.half)

    def whole(self, client: LockClient, owner: str | None = None) -> AsyncReadWriteLock:
        return client.read_write_lock(self.name, owner=owner)

    async def _warm_up(self) -> None:
        before = self.mine.read_write_lock(f"{self.name} before", owner=ME)
        for lock in (before.write, before.read):
            lease = await lock.acquire()
            await lease.renew()
            await lock.locked()
            await lock.release()
        another = self.mine.read_write_lock(f"{self.name} before", owner="another")
        async with before.write:
            assert await another.read.try_lock(wait=0.01) is None
        self.events.clear()
        await until(lambda: self.mine.statistics().subscriptions == 0)


class ReadRound(_Half):
    half, holder = "read", "write"


class WriteRound(_Half):
    half, holder = "write", "read"


class WriterRound(_Half):
    """Who holds it writes, too."""

    half, holder = "write", "write"


async def acquire(round_: Round) -> object:
    return await round_.lock.acquire()


async def try_once(round_: Round) -> object:
    return await round_.lock.try_lock()


async def try_long(round_: Round) -> object:
    return await round_.lock.try_lock(wait=10, lease=30)


async def with_lock(round_: Round) -> None:
    async with round_.lock as lease:
        await asyncio.sleep(0)
        lease.check()


async def nested(round_: Round) -> None:
    async with round_.lock, round_.lock.hold(wait=10):
        await asyncio.sleep(0)


async def release(round_: Round) -> None:
    await round_.lock.release()


async def read_on(round_: Round) -> None:
    """Write, read, and read on."""
    assert isinstance(round_, _Half)
    whole = round_.whole(round_.mine, round_.owner)
    writing = await whole.write.acquire()
    try:
        async with whole.read:
            await writing.release()
            await asyncio.sleep(0)
    finally:
        if not writing.given_back:
            await writing.release()


async def ask(round_: Round) -> None:
    await round_.lock.locked()
    await round_.lock.hold_count()


KINDS: dict[str, type[_Half]] = {"read": ReadRound, "write": WriteRound, "writer": WriterRound}
TEMPERED: list[tuple[str, State, Run]] = [
    ("read", "free", acquire),
    ("write", "free", acquire),
    ("read", "message", acquire),
    ("write", "message", acquire),
    ("writer", "handed", try_long),
]
COLD: list[tuple[str, State, Run, str | None]] = [
    ("read", "held", try_once, ME),
    ("write", "held", try_once, ME),
    ("read", "free", with_lock, None),
    ("read", "message", with_lock, None),
    ("write", "message", with_lock, None),
    ("writer", "handed", with_lock, None),
    ("read", "free", nested, None),
    ("write", "free", nested, ME),
    ("read", "nested", release, ME),
    ("write", "waited", release, ME),
    ("write", "free", read_on, None),
    ("read", "held", ask, ME),
]


def named(scenario: tuple[Any, ...]) -> str:
    kind, state, run, *owner = scenario
    return f"{run.__name__}-{kind}-{state}" + ("-task" if owner == [None] else "")


@pytest.mark.slow  # What connections know is no matter of the primitive; `make test` has it for locks.
@each_mode
@each_temperature
@pytest.mark.parametrize("scenario", TEMPERED, ids=named)
async def test_whatever_the_connections_know(
    arena: Arena, scenario: tuple[str, State, Run], temperature: Temperature, mode: Mode
) -> None:
    kind, state, run = scenario
    await visit(arena, mode, temperature, state, run, kind=KINDS[kind])


@each_mode
@pytest.mark.parametrize("scenario", COLD, ids=named)
async def test_whatever_is_done(arena: Arena, scenario: tuple[str, State, Run, str | None], mode: Mode) -> None:
    kind, state, run, owner = scenario
    await visit(arena, mode, "cold", state, run, owner=owner, kind=KINDS[kind])
