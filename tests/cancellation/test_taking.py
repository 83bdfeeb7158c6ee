"""Each verb that takes a lock leaves nothing behind when it is cancelled, wherever it suspends."""

import asyncio

import pytest

from aiolock import LockTimeoutError
from tests.cancellation.rounds import (
    ME,
    Arena,
    Round,
    Run,
    State,
    Temperature,
    each_mode,
    each_temperature,
    named,
    one_server,
    visit,
)
from tests.cancellation.verbs import (
    acquire,
    try_for_ever,
    try_long,
    try_once,
    try_shortly,
    with_hold,
    with_lock,
    with_several,
    with_short_hold,
    with_two_holds,
)
from tests.support.cancellation import Mode

pytestmark = one_server


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


async def try_several(round_: Round) -> object:
    return await round_.mine.multi(f"z {round_.name}", round_.name, f"a {round_.name}").try_lock(lease=30)


# Each way through the wait loop is taken once with each state of the connections, and each verb once in its own states.
TEMPERED: list[tuple[State, Run, str | None]] = [
    ("free", acquire, ME),
    ("message", acquire, ME),
    ("handed", try_long, ME),
]
COLD: list[tuple[State, Run, str | None]] = [
    ("free", try_once, None),
    ("held", try_once, ME),
    ("held", try_shortly, ME),
    ("nested", try_for_ever, ME),
    ("free", with_two_holds, None),
    ("nested", with_lock, ME),
    ("message", with_lock, None),
    ("handed", with_hold, None),
    ("handed", acquire_and_release, None),
    ("message", synchronized, None),
    ("free", with_several, None),
    ("nested", with_several, ME),
    ("message", with_several, ME),
    ("handed", with_several, None),
    ("held", try_several, None),
]


@each_mode
@each_temperature
@pytest.mark.parametrize("scenario", TEMPERED, ids=named)
async def test_connections_with_and_without_known_scripts(
    arena: Arena, scenario: tuple[State, Run, str | None], temperature: Temperature, mode: Mode
) -> None:
    state, run, owner = scenario
    await visit(arena, mode, temperature, state, run, owner=owner)


@each_mode
@pytest.mark.parametrize("scenario", COLD, ids=named)
async def test_every_way_to_take_the_lock(arena: Arena, scenario: tuple[State, Run, str | None], mode: Mode) -> None:
    state, run, owner = scenario
    await visit(arena, mode, "cold", state, run, owner=owner)


@each_mode
async def test_a_hold_that_is_cancelled_near_the_end_of_its_wait_leaves_nothing(arena: Arena, mode: Mode) -> None:
    await visit(arena, mode, "cold", "held", with_short_hold, fails=LockTimeoutError)
