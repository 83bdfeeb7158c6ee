"""Cancelled wherever it suspends, whatever takes a lock leaves nothing behind."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiolock import LockTimeoutError
from tests.cancellation.rounds import ME, Arena, Round, State, Temperature, each_temperature, one_server, visit
from tests.support.cancellation import MODES, Mode

pytestmark = one_server
each_mode = pytest.mark.parametrize("mode", MODES)

Run = Callable[[Round], Coroutine[Any, Any, Any]]
SHORT = 0.6  # Seconds; longer than it takes to subscribe, also on a busy machine.


async def acquire(round_: Round) -> object:
    return await round_.lock.acquire()


async def try_once(round_: Round) -> object:
    return await round_.lock.try_lock()


async def try_shortly(round_: Round) -> object:
    return await round_.lock.try_lock(wait=SHORT)


async def try_long(round_: Round) -> object:
    return await round_.lock.try_lock(wait=10, lease=30)


async def try_for_ever(round_: Round) -> object:
    return await round_.lock.try_lock(wait=None)


async def with_lock(round_: Round) -> None:
    async with round_.lock as lease:
        await asyncio.sleep(0)
        lease.check()


async def with_hold(round_: Round) -> None:
    async with round_.lock.hold(wait=10, lease=30):
        await asyncio.sleep(0)


async def with_short_hold(round_: Round) -> None:
    async with round_.lock.hold(wait=SHORT):
        pass


async def with_two_holds(round_: Round) -> None:
    async with round_.lock, round_.lock.hold(wait=10):
        await asyncio.sleep(0)


async def acquire_and_release(round_: Round) -> None:
    await round_.lock.acquire()
    try:
        await asyncio.sleep(0)
    finally:
        await round_.lock.release()


async def synchronized(round_: Round) -> None:
    @round_.mine.synchronized("{name}")
    async def work(name: str) -> None:
        await asyncio.sleep(0)

    await work(round_.name)


TEMPERED: list[tuple[State, Run, str | None]] = [
    *(("free", run, owner) for run in (acquire, try_once) for owner in (ME, None)),
    *(("nested", run, ME) for run in (acquire, try_once)),
    *(("held", run, ME) for run in (try_once, try_shortly)),
    *((state, run, ME) for state in ("message", "handed") for run in (acquire, try_long)),
]
COLD: list[tuple[State, Run, str | None]] = [
    *(("free", run, ME) for run in (try_long, try_for_ever)),
    *(("nested", run, ME) for run in (try_long, try_for_ever)),
    *((state, try_for_ever, ME) for state in ("message", "handed")),
    *((state, acquire, None) for state in ("message", "handed")),
    *(("free", run, None) for run in (with_lock, with_hold, with_two_holds, acquire_and_release, synchronized)),
    *(("nested", run, ME) for run in (with_lock, acquire_and_release)),
    *(
        (state, run, None)
        for state in ("message", "handed")
        for run in (with_lock, with_hold, with_two_holds, acquire_and_release, synchronized)
    ),
    *((state, with_lock, ME) for state in ("message", "handed")),
]


def named(scenario: tuple[State, Run, str | None]) -> str:
    state, run, owner = scenario
    return f"{run.__name__}-{state}-{'named' if owner else 'task'}"


@each_mode
@each_temperature
@pytest.mark.parametrize("scenario", TEMPERED, ids=named)
async def test_whatever_the_connections_know(
    arena: Arena, scenario: tuple[State, Run, str | None], temperature: Temperature, mode: Mode
) -> None:
    state, run, owner = scenario
    await visit(arena, mode, temperature, state, run, owner=owner)


@each_mode
@pytest.mark.parametrize("scenario", COLD, ids=named)
async def test_whatever_the_way_to_take_it(arena: Arena, scenario: tuple[State, Run, str | None], mode: Mode) -> None:
    state, run, owner = scenario
    await visit(arena, mode, "cold", state, run, owner=owner)


@each_mode
async def test_a_hold_whose_wait_ends(arena: Arena, mode: Mode) -> None:
    await visit(arena, mode, "cold", "held", with_short_hold, fails=LockTimeoutError)
