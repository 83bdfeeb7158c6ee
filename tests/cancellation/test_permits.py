"""Cancelled wherever it suspends, whatever takes permits or gives them back leaves nothing behind."""

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
    each_temperature,
    named,
    one_server,
    visit,
)
from tests.support.cancellation import MODES, Mode
from tests.support.observe import until

pytestmark = one_server
each_mode = pytest.mark.parametrize("mode", MODES)

SHORT = 0.6  # Seconds; longer than it takes to subscribe, also on a busy machine.


class PermitRound(Round):
    """The same with a semaphore of one permit."""

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        return client.permit_expirable_semaphore(self.name, 1, owner=owner)

    async def _warm_up(self) -> None:
        before = self.mine.permit_expirable_semaphore(f"before {self.name[1:-1]}", 1)
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


async def acquire(round_: Round) -> object:
    return await round_.lock.acquire()


async def try_once(round_: Round) -> object:
    return await round_.lock.try_acquire()


async def try_long(round_: Round) -> object:
    return await round_.lock.try_acquire(wait=10, lease=30)


async def with_permit(round_: Round) -> None:
    async with round_.lock as permit:
        await asyncio.sleep(0)
        permit.check()


async def with_hold(round_: Round) -> None:
    async with round_.lock.hold(wait=10, lease=30):
        await asyncio.sleep(0)


async def with_short_hold(round_: Round) -> None:
    async with round_.lock.hold(wait=SHORT):
        pass


async def with_several(round_: Round) -> None:
    """The permit is neither the first nor the last of what is wanted."""
    names = (f"z {round_.name}", round_.lock, f"a {round_.name}")
    async with round_.mine.multi(*names, owner=round_.owner).hold(wait=10) as lease:
        await asyncio.sleep(0)
        lease.check()


async def release(round_: Round) -> None:
    await round_.lock.release()


async def ask(round_: Round) -> None:
    await round_.lock.available()
    await round_.lock.holders()


TEMPERED: list[tuple[State, Run, str | None]] = [
    ("free", acquire, ME),
    ("message", acquire, ME),
    ("handed", try_long, ME),
]
COLD: list[tuple[State, Run, str | None]] = [
    ("free", try_once, None),
    ("held", try_once, ME),
    ("free", with_permit, None),
    ("message", with_permit, None),
    ("handed", with_hold, None),
    ("free", with_several, None),
    ("message", with_several, None),
    ("handed", with_several, ME),
    ("nested", release, ME),
    ("waited", release, ME),
    ("held", ask, ME),
]


@pytest.mark.slow  # What connections know is no matter of the primitive; `make test` has it for locks.
@each_mode
@each_temperature
@pytest.mark.parametrize("scenario", TEMPERED, ids=named)
async def test_whatever_the_connections_know(
    arena: Arena, scenario: tuple[State, Run, str | None], temperature: Temperature, mode: Mode
) -> None:
    state, run, owner = scenario
    await visit(arena, mode, temperature, state, run, owner=owner, kind=PermitRound)


@each_mode
@pytest.mark.parametrize("scenario", COLD, ids=named)
async def test_whatever_is_done(arena: Arena, scenario: tuple[State, Run, str | None], mode: Mode) -> None:
    state, run, owner = scenario
    await visit(arena, mode, "cold", state, run, owner=owner, kind=PermitRound)


@each_mode
async def test_a_hold_whose_wait_ends(arena: Arena, mode: Mode) -> None:
    await visit(arena, mode, "cold", "held", with_short_hold, fails=LockTimeoutError, kind=PermitRound)
