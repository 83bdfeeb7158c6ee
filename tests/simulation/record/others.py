"""Faults of locks with one key: LiteLLM, RedBeat, ShedLock, coredis, and etcd's queue of sessions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.simulation.record import ours
from tests.simulation.record.scenario import Scenario
from tests.simulation.record.stage import NAME, Belief, Party, Stage, until_done


def _always() -> bool:
    """The library never tells a holder that its lock has ended."""
    return True


# LiteLLM: the release reads the key, compares it, and deletes it by another command.


@asynccontextmanager
async def _litellm(party: Party) -> AsyncIterator[Belief]:
    redis = party.redis
    await until_done(lambda: redis.set(NAME, party.name, nx=True, px=1000), 0.01)
    loop = asyncio.get_running_loop()
    ends = loop.time() + 1.0
    try:
        yield lambda: loop.time() < ends
    finally:
        if await redis.get(NAME) == party.name:
            await redis.delete(NAME)


def _stale_delete(stage: Stage) -> None:
    first, second, third = (stage.party(name) for name in "ABC")
    first.begin(0.0, first.holds(0.92))
    second.begin(0.5, second.holds(0.9))
    third.begin(0.6, third.holds(0.9))
    stage.play(8.0)


# RedBeat: the extension sets the time to live of the key of any holder.


@asynccontextmanager
async def _redbeat(party: Party) -> AsyncIterator[Belief]:
    redis, lease, loop = party.redis, 3.0, asyncio.get_running_loop()
    await until_done(lambda: redis.set(NAME, party.name, nx=True, px=3000))
    extended = [loop.time()]

    async def extend() -> None:
        while True:
            await asyncio.sleep(lease / 3)
            if await redis.pexpire(NAME, 3000):
                extended[0] = loop.time()

    extending = loop.create_task(extend())
    try:
        yield lambda: loop.time() < extended[0] + lease
    finally:
        extending.cancel()


def _cut_off(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, first.holds(12.0))
    stage.at(1.5, stage.cut, first, 5.0)
    second.begin(0.5, second.holds(6.0))
    stage.play(25.0)


# ShedLock, with the first versions of Spring Data Redis: the key is set, and then its time to live.


@asynccontextmanager
async def _shedlock(party: Party) -> AsyncIterator[Belief]:
    redis = party.redis
    await until_done(lambda: redis.set(NAME, party.name, nx=True))
    await redis.pexpire(NAME, 6000)
    try:
        yield _always
    finally:
        await redis.delete(NAME)


def _killed_between(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, ours.connect(first))
    first.begin(1.0, first.holds(3.0))
    # The server has run the first command, and its answer is on its way.
    stage.at(1.015, stage.kill, first, 6.0)
    second.begin(2.0, second.holds(1.0))
    stage.play(25.0)


# coredis: the block of a lock was not left when it raised.


@asynccontextmanager
async def _coredis(party: Party) -> AsyncIterator[Belief]:
    await until_done(lambda: party.redis.set(NAME, party.name, nx=True), 0.1)
    yield _always
    await party.redis.delete(NAME)


def _fail() -> None:
    raise ValueError("the work failed")


def _failing_body(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, first.holds(1.0, last=_fail))
    second.begin(0.5, second.holds(1.0))
    stage.play(15.0)


# etcd: the first in line has the lock, as long as its session lives. A waiter did not look at its own session.

_STAND_IN_LINE = """
redis.call('set', KEYS[2] .. ARGV[1], '1', 'PX', ARGV[2])
return redis.call('zadd', KEYS[1], redis.call('incr', KEYS[3]), ARGV[1])
"""
_BEFORE = """
for _, each in ipairs(redis.call('zrange', KEYS[1], 0, -1)) do
  if redis.call('exists', KEYS[2] .. each) == 0 then redis.call('zrem', KEYS[1], each) end
end
local place = redis.call('zrank', KEYS[1], ARGV[1])
if not place then return 0 end
return place
"""


@asynccontextmanager
async def _etcd(party: Party) -> AsyncIterator[Belief]:
    redis, keys = party.redis, ("line", "session:", "revision")

    async def keep_alive() -> None:
        while True:
            await asyncio.sleep(2.0)
            await redis.pexpire(f"session:{party.name}", 6000)

    async def is_first() -> Any:
        return await redis.eval(_BEFORE, 3, *keys, party.name) == 0

    await redis.eval(_STAND_IN_LINE, 3, *keys, party.name, 6000)
    living = asyncio.get_running_loop().create_task(keep_alive())
    try:
        await until_done(is_first, 0.1)
        yield _always
    finally:
        living.cancel()
        await redis.zrem("line", party.name)


def _frozen_waiter(stage: Stage) -> None:
    first, second, third = (stage.party(name) for name in "ABC")
    first.begin(0.0, first.holds(5.0))
    second.begin(1.0, second.holds(3.0))
    stage.at(4.95, stage.freeze, second, 10.0, 6.0)
    third.begin(2.0, third.holds(8.0))
    stage.play(40.0)


SCENARIOS = (
    Scenario(
        "litellm-release",
        "LiteLLM",
        "BerriAI/litellm#21225",
        "P5",
        "Between its read and its delete, the key has become another pod's.",
        "exclusion",
        _stale_delete,
        _litellm,
        ours.lock(lease=1.0),
        latency=0.03,
    ),
    Scenario(
        "redbeat-extend",
        "RedBeat",
        "sibson/redbeat#127",
        "P5",
        "A scheduler that was cut off extends its successor's key.",
        "exclusion",
        _cut_off,
        _redbeat,
        ours.lock(),
    ),
    Scenario(
        "shedlock-no-ttl",
        "ShedLock",
        "lukas-krecan/ShedLock#105",
        "P9",
        "A process dies before it sets the key's time to live.",
        "stuck",
        _killed_between,
        _shedlock,
        ours.lock(),
        latency=0.01,
    ),
    Scenario(
        "coredis-exception",
        "coredis",
        "alisaifee/coredis#370",
        "P4",
        "A block that is left by an exception does not release its lock.",
        "stuck",
        _failing_body,
        _coredis,
        ours.lock(),
    ),
    Scenario(
        "etcd-session",
        "etcd",
        "etcd-io/etcd#11456",
        "P3",
        "A waiter whose own lease has ended is granted the lock.",
        "exclusion",
        _frozen_waiter,
        _etcd,
        ours.fair_lock,
    ),
)
