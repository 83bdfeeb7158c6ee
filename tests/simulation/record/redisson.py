"""Faults of Redisson's locks. Its scripts are retold here in a few lines, without parts that no story needs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.exceptions import ConnectionError as NoConnectionError

from tests.simulation.record import ours
from tests.simulation.record.scenario import Scenario
from tests.simulation.record.stage import NAME, Belief, Party, Stage, until_done

_LEASE = 6.0
_MILLISECONDS = 6000

_LOCK = """
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
local count = redis.call('hincrby', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return count
"""
_UNLOCK = """
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return -1 end
local count = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if count > 0 then redis.call('pexpire', KEYS[1], ARGV[2]) else redis.call('del', KEYS[1]) end
return count
"""
_RENEW = """
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[2])
"""


def _always() -> bool:
    """The library never tells a holder that its lock has ended."""
    return True


async def _call(party: Party, script: str, *more: object, keys: tuple[str, ...] = (NAME,)) -> Any:
    return await party.redis.eval(script, len(keys), *keys, party.name, *map(str, more))


async def _renew(party: Party, script: str = _RENEW) -> None:
    """The watchdog: it renews as long as the server knows the owner."""
    while True:
        await asyncio.sleep(_LEASE / 3)
        if not await _call(party, script, _MILLISECONDS):
            return


def _watchdog(party: Party, script: str = _RENEW) -> "asyncio.Task[None]":
    watching = asyncio.get_running_loop().create_task(_renew(party, script))
    # The process keeps the task, as asyncio does not.
    party.kept.setdefault("watching", []).append(watching)
    return watching


# The acquire script is sent again, and counts twice.


@asynccontextmanager
async def _counted_twice(party: Party) -> AsyncIterator[Belief]:
    async def lock() -> Any:
        try:
            return await _call(party, _LOCK, _MILLISECONDS)
        except NoConnectionError:
            return await _call(party, _LOCK, _MILLISECONDS)

    await until_done(lock)
    watching = _watchdog(party)
    try:
        yield _always
    finally:
        if await _call(party, _UNLOCK, _MILLISECONDS) == 0:
            watching.cancel()


def _lost_reply(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, ours.connect(first))
    stage.at(0.9995, stage.lose_reply, first)
    first.begin(1.0, first.holds(2.0))
    second.begin(2.0, second.holds(1.0))
    stage.play(30.0)


# The watchdog begins after the unlock that should have ended it.


@asynccontextmanager
async def _late_watchdog(party: Party) -> AsyncIterator[Belief]:
    async def lock_and_watch() -> None:
        await until_done(lambda: _call(party, _LOCK, _MILLISECONDS))
        party.kept["watchdog"] = _watchdog(party)

    locking = asyncio.get_running_loop().create_task(lock_and_watch())
    party.kept["locking"] = locking
    try:
        # The wait can be interrupted, the command cannot.
        await asyncio.shield(locking)
        yield _always
    finally:
        if watching := party.kept.pop("watchdog", None):
            watching.cancel()
        await _call(party, _UNLOCK, _MILLISECONDS)


def _interrupted(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    first.begin(0.0, ours.connect(first))

    async def interrupted() -> None:
        acting = asyncio.get_running_loop().create_task(first.holds(1.0))
        await asyncio.sleep(0.1)
        acting.cancel()
        await acting

    stage.at(0.999, stage.hold_up, first, 0.5)
    first.begin(1.0, interrupted())
    second.begin(3.0, second.holds(1.0))
    stage.play(30.0)


# A watchdog that failed once is never begun again for that name.


@asynccontextmanager
async def _watchdog_fails(party: Party) -> AsyncIterator[Belief]:
    await until_done(lambda: _call(party, _LOCK, _MILLISECONDS))
    if "entry" not in party.kept:
        party.kept["entry"] = _watchdog(party)
    try:
        yield _always
    finally:
        await _call(party, _UNLOCK, _MILLISECONDS)
        watching = party.kept["entry"]
        # The entry of a watchdog that failed stays.
        if not watching.done():
            watching.cancel()
            del party.kept["entry"]
        elif not watching.cancelled():
            watching.exception()


def _twice_with_outage(stage: Stage) -> None:
    first, second = stage.party("A"), stage.party("B")
    stage.at(1.5, stage.restart, 2.0)

    async def twice() -> None:
        await first.holds(5.0)
        await first.holds(12.0)

    first.begin(0.0, twice())
    second.begin(7.0, second.holds(8.0))
    stage.play(40.0)


# Readers: a watchdog renews all readers that it finds.

_READ = """
if redis.call('hget', KEYS[1], 'mode') == 'write' then return 0 end
redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], 1)
redis.call('set', KEYS[2] .. ARGV[1], 1, 'PX', ARGV[2])
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
"""
_WRITE = """
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
"""
_RENEW_READERS = """
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
for _, reader in ipairs(redis.call('hkeys', KEYS[1])) do
  redis.call('pexpire', KEYS[2] .. reader, ARGV[2])
end
return redis.call('pexpire', KEYS[1], ARGV[2])
"""
_LEAVE = """
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('del', KEYS[2] .. ARGV[1])
local left = 0
for _, reader in ipairs(redis.call('hkeys', KEYS[1])) do
  left = math.max(left, redis.call('pttl', KEYS[2] .. reader))
end
if left > 0 then return redis.call('pexpire', KEYS[1], left) end
return redis.call('del', KEYS[1])
"""
_READERS = (NAME, "timeout:")


@asynccontextmanager
async def _readers(party: Party) -> AsyncIterator[Belief]:
    enter = _READ if party.shared else _WRITE
    await until_done(lambda: _call(party, enter, _MILLISECONDS, keys=_READERS))

    async def renew() -> None:
        while True:
            await asyncio.sleep(_LEASE / 3)
            await _call(party, _RENEW_READERS, _MILLISECONDS, keys=_READERS)

    watching = asyncio.get_running_loop().create_task(renew())
    try:
        yield _always
    finally:
        watching.cancel()
        await _call(party, _LEAVE, keys=_READERS)


def _dead_reader(stage: Stage) -> None:
    dead, living = stage.party("A", shared=True), stage.party("B", shared=True)
    writer = stage.party("C")
    dead.begin(0.0, dead.holds(60.0))
    stage.at(1.0, stage.kill, dead, _LEASE)
    living.begin(0.5, living.holds(20.0))
    writer.begin(2.0, writer.holds(1.0))
    stage.play(40.0)


# A fair lock: the first in line is dead, and its place is kept as long as it wanted to wait.

_FAIR = """
local now = redis.call('time')[1]
local first = redis.call('zrange', KEYS[2], 0, 0)[1]
if first and tonumber(redis.call('hget', KEYS[3], first)) <= tonumber(now) then
  redis.call('zrem', KEYS[2], first)
  first = redis.call('zrange', KEYS[2], 0, 0)[1]
end
if redis.call('exists', KEYS[1]) == 0 and (not first or first == ARGV[1]) then
  redis.call('zrem', KEYS[2], ARGV[1])
  redis.call('hset', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 1
end
if not redis.call('zscore', KEYS[2], ARGV[1]) then
  redis.call('zadd', KEYS[2], redis.call('incr', KEYS[4]), ARGV[1])
  redis.call('hset', KEYS[3], ARGV[1], now + ARGV[3])
end
return 0
"""
_LINE = (NAME, "queue", "timeouts", "places")
_WAITS_FOR_EVER = 10**9


@asynccontextmanager
async def _fair(party: Party) -> AsyncIterator[Belief]:
    await until_done(lambda: _call(party, _FAIR, _MILLISECONDS, _WAITS_FOR_EVER, keys=_LINE), 0.1)
    watching = _watchdog(party)
    try:
        yield _always
    finally:
        watching.cancel()
        await _call(party, _UNLOCK, _MILLISECONDS)


def _dead_waiter(stage: Stage) -> None:
    first, dead, living = (stage.party(name) for name in "ABC")
    first.begin(0.0, first.holds(5.0))
    dead.begin(1.0, dead.holds(1.0))
    stage.at(2.0, stage.kill, dead, _LEASE)
    living.begin(3.0, living.holds(1.0))
    stage.play(30.0)


SCENARIOS = (
    Scenario(
        "redisson-counted-twice",
        "Redisson",
        "redisson/redisson#7367",
        "P5",
        "An acquire is sent again and counts twice. One unlock does not free the lock.",
        "stuck",
        _lost_reply,
        _counted_twice,
        ours.lock(),
    ),
    Scenario(
        "redisson-late-watchdog",
        "Redisson",
        "redisson/redisson#7272",
        "P4",
        "An interrupted acquire is granted after its unlock, and renewed without a holder.",
        "stuck",
        _interrupted,
        _late_watchdog,
        ours.lock(),
    ),
    Scenario(
        "redisson-renewal-stops",
        "Redisson",
        "redisson/redisson#2515",
        "P3",
        "A renewal failed once. The client's next lock of that name is not renewed.",
        "exclusion",
        _twice_with_outage,
        _watchdog_fails,
        ours.lock(),
    ),
    Scenario(
        "redisson-zombie-reader",
        "Redisson",
        "redisson/redisson#7098",
        "P9",
        "A living reader renews the holds of dead readers, and a writer waits.",
        "stuck",
        _dead_reader,
        _readers,
        ours.read_write_lock,
    ),
    Scenario(
        "redisson-dead-waiter",
        "Redisson",
        "redisson/redisson#4595",
        "P6",
        "The first in line was killed, and nobody gets the lock.",
        "stuck",
        _dead_waiter,
        _fair,
        ours.fair_lock,
    ),
)
