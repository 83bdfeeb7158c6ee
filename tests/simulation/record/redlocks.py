"""Faults of libraries that follow Redlock: node-redlock, aioredlock and pottery."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.simulation.record import ours
from tests.simulation.record.scenario import Scenario
from tests.simulation.record.stage import NAME, Belief, Party, Stage, until_done

_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


def _always() -> bool:
    """The library never tells a holder that its lock has ended."""
    return True


async def _release(party: Party) -> Any:
    return await party.redis.eval(_RELEASE, 1, NAME, party.name)


# node-redlock: a lock that was lost is released, again and again.


@asynccontextmanager
async def _node_redlock(party: Party) -> AsyncIterator[Belief]:
    redis, loop = party.redis, asyncio.get_running_loop()
    await until_done(lambda: redis.set(NAME, party.name, nx=True, px=1000))
    ends = loop.time() + 1.0
    try:
        yield lambda: loop.time() < ends
    finally:
        tries = 0
        while not await _release(party) and tries < 10:
            tries += 1
            await asyncio.sleep(0.2)
        if tries == 10:
            raise RuntimeError("the operation was unable to achieve a quorum")


def _blocked_loop(stage: Stage) -> None:
    party = stage.party("A")
    party.begin(0.0, party.holds(0.5))
    stage.at(0.2, stage.freeze, party, 2.0, 1.0)
    stage.play(10.0)


# aioredlock: a lock is valid until it is released.


@asynccontextmanager
async def _aioredlock(party: Party) -> AsyncIterator[Belief]:
    await until_done(lambda: party.redis.set(NAME, party.name, nx=True, px=1000), 0.1)
    try:
        yield _always
    finally:
        await _release(party)


def _work_is_longer(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, first.holds(3.0))
    second.begin(0.5, second.holds(0.5))
    stage.play(10.0)


# pottery: the object, not the server, answers whether the lock is held.


@asynccontextmanager
async def _pottery(party: Party) -> AsyncIterator[Belief]:
    await until_done(lambda: party.redis.set(NAME, party.name, nx=True, px=6000), 0.1)
    try:
        yield _always
    finally:
        await _release(party)


async def _asks(party: Party) -> None:
    if party.stage.is_ours:
        locked = await ours.client_of(party).lock(NAME).locked()
    else:
        locked = await party.redis.get(NAME) == party.name
    party.tells(f"asks whether the lock is held: {locked}")
    party.stage.judge.is_told(party.name, locked=locked)


def _somebody_asks(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, first.holds(2.0))
    second.begin(1.0, _asks(second))
    stage.play(5.0)


SCENARIOS = (
    Scenario(
        "node-redlock-abort",
        "node-redlock",
        "mike-marcacci/node-redlock#309",
        "P4",
        "To leave the block of a lost lock takes two seconds.",
        "slow end",
        _blocked_loop,
        _node_redlock,
        ours.lock(lease=1.0),
    ),
    Scenario(
        "aioredlock-valid",
        "aioredlock",
        "joanvila/aioredlock#46",
        "P3",
        "The lease has ended, and the lock object says that it is valid.",
        "exclusion",
        _work_is_longer,
        _aioredlock,
        ours.lock(lease=1.0),
    ),
    Scenario(
        "pottery-locked",
        "pottery",
        "brainix/pottery#701",
        "P8",
        "`locked()` says that a lock is free which another process has.",
        "wrong answer",
        _somebody_asks,
        _pottery,
        ours.lock(),
    ),
)
