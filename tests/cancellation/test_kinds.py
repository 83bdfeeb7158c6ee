"""
Each verb of permits, readers and writers leaves nothing behind when it is cancelled, wherever it suspends.

The contract cancels a visit of each primitive. Here are all verbs, and a round, which looks at more.
"""

import asyncio
from typing import Any

import pytest

from aiolock import LockClient, LockTimeoutError
from tests.cancellation.rounds import (
    ME,
    Arena,
    Round,
    Run,
    State,
    Temperature,
    each_mode,
    each_temperature,
    one_server,
    visit,
)
from tests.cancellation.verbs import (
    acquire,
    release,
    try_long,
    try_once,
    with_hold,
    with_lock,
    with_several,
    with_short_hold,
    with_two_holds,
)
from tests.support.cancellation import Mode
from tests.support.observe import until

pytestmark = [one_server, pytest.mark.slow]


class Permit(Round):
    """A semaphore of one permit."""

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.semaphore(self.name, 1, owner=owner)

    async def attempt(self, **how: float | None) -> object:
        return await self.lock.try_acquire(**how)

    async def _warm_up(self) -> None:
        before = self.mine.semaphore(f"before {self.name[1:-1]}", 1)
        async with before as permit:
            await permit.renew()
            assert await before.try_acquire(wait=0.01) is None
        await self.arena.redis.delete(before.name)
        self.events.clear()
        await until(lambda: self.mine.statistics().subscriptions == 0)

    async def _is_held_once(self) -> bool:
        return bool(await self.of(self.other).acquired() == 1)

    async def _is_free(self) -> bool:
        keys: list[bytes] = await self.arena.redis.keys(f"*{self.name}*")  # type: ignore[assignment]
        others = {key for key in keys if not key.startswith(b"aiolock_token:")}
        return others <= {self.name.encode()} and await self.arena.redis.get(self.name) in (b"1", None)


class Read(Round):
    """One half of a read-write lock, for which everybody waits behind the other half."""

    half, holder = "read", "write"

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        lock = client.read_write_lock(self.name, owner=owner)
        return getattr(lock, self.holder if owner == "holder" else self.half)

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


class Write(Read):
    half, holder = "write", "read"


class WriteOnly(Read):
    """The write half; the holder writes, too."""

    half, holder = "write", "write"


async def read_on(round_: Round) -> None:
    """Write, read, and read on."""
    whole = round_.mine.read_write_lock(round_.name, owner=round_.owner)
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
    await (round_.lock.holders() if isinstance(round_, Permit) else round_.lock.hold_count())


Scenario = tuple[type[Round], State, Run, str | None]
TEMPERED: list[Scenario] = [
    (Permit, "free", acquire, ME),
    (Permit, "message", acquire, ME),
    (Permit, "handed", try_long, ME),
    (Read, "free", acquire, ME),
    (Write, "free", acquire, ME),
    (Read, "message", acquire, ME),
    (Write, "message", acquire, ME),
    (WriteOnly, "handed", try_long, ME),
]
COLD: list[Scenario] = [
    *((kind, "held", try_once, ME) for kind in (Permit, Read, Write)),
    *((kind, "free", with_lock, None) for kind in (Permit, Read)),
    *((kind, "message", with_lock, None) for kind in (Permit, Read, Write)),
    *((kind, "held", ask, ME) for kind in (Permit, Read)),
    *((kind, "nested", release, ME) for kind in (Permit, Read)),
    *((kind, "waited", release, ME) for kind in (Permit, Write)),
    (Permit, "free", try_once, None),
    (Permit, "handed", with_hold, None),
    (Permit, "free", with_several, None),
    (Permit, "message", with_several, None),
    (Permit, "handed", with_several, ME),
    (WriteOnly, "handed", with_lock, None),
    (Read, "free", with_two_holds, None),
    (Write, "free", with_two_holds, ME),
    (Write, "free", read_on, None),
]


def named(scenario: Scenario) -> str:
    kind, state, run, owner = scenario
    return f"{run.__name__}-{kind.__name__}-{state}-{'named' if owner else 'task'}"


@each_mode
@each_temperature
@pytest.mark.parametrize("scenario", TEMPERED, ids=named)
async def test_connections_with_and_without_known_scripts(
    arena: Arena, scenario: Scenario, temperature: Temperature, mode: Mode
) -> None:
    kind, state, run, owner = scenario
    await visit(arena, mode, temperature, state, run, owner=owner, kind=kind)


@each_mode
@pytest.mark.parametrize("scenario", COLD, ids=named)
async def test_every_act_and_every_release(arena: Arena, scenario: Scenario, mode: Mode) -> None:
    kind, state, run, owner = scenario
    await visit(arena, mode, "cold", state, run, owner=owner, kind=kind)


@each_mode
async def test_a_hold_that_is_cancelled_near_the_end_of_its_wait_leaves_nothing(arena: Arena, mode: Mode) -> None:
    await visit(arena, mode, "cold", "held", with_short_hold, fails=LockTimeoutError, kind=Permit)
