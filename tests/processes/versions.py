"""A process of the test, which runs on the library of this commit or of an earlier one: it uses what both share."""

import asyncio
import os
import sys
from random import Random
from time import monotonic
from typing import Any

from aiolock import LockClient
from tests.processes import crew

KIND = "AIOLOCK_TEST_KIND"
SEATS, WRITES = 3, 1000
MOST = {"lock": 1, "fair": 1, "read_write": WRITES, "semaphore": SEATS, "counting": SEATS}
"""The most that may be held of each kind at a time, in the unit of `hold`."""
LATCH = "sections"
# An earlier version has other names for the semaphores.
SEMAPHORES = ("permit_expirable_semaphore", "semaphore")
VERSION = "earlier" if hasattr(LockClient, SEMAPHORES[0]) else "ours"
SEMAPHORE, COUNTING = SEMAPHORES if VERSION == "earlier" else ("semaphore", "counting_semaphore")


def hold(kind: str, locks: LockClient, choose: Random) -> tuple[int, Any]:
    """The amount of the kind that a task takes, and the block that holds it."""
    if kind == "lock":
        return 1, locks.lock("it")
    if kind == "fair":
        # Plain and fair locks exclude each other.
        return 1, choose.choice((locks.lock, locks.fair_lock))("it")
    if kind == "read_write":
        both = locks.read_write_lock("it")
        return (WRITES, both.write) if choose.random() < 0.2 else (1, both.read)
    permits = choose.randint(1, SEATS)
    name = SEMAPHORE if kind == "semaphore" else COUNTING
    return permits, getattr(locks, name)("it", SEATS).hold(permits=permits)


async def section(locks: LockClient, choose: Random, who: tuple[int, int]) -> str:
    kind = os.environ[KIND]
    if kind == "once":
        return await result(locks, str(choose.randrange(10)))
    if kind == "counting" and sys.argv[-1] == str(crew.FOR_EVER):
        # The permits of the killed process would be lost for good.
        await asyncio.sleep(0.001)
        return f"{VERSION} 0 0 0 0"
    asked = monotonic()
    amount, block = hold(kind, locks, choose)
    async with block:
        entered = monotonic()
        await asyncio.sleep(0.001)
        left = monotonic()
    await locks.count_down_latch(LATCH).count_down()
    return f"{VERSION} {amount} {asked} {entered} {left}"


async def result(locks: LockClient, key: str) -> str:
    """Do the work of the *key* once; all callers get the id of the process that did it."""
    async with locks.once(key, keep=60) as turn:
        if turn:
            turn.result = str(os.getpid())
    told = turn.result
    return f"{VERSION} {key} {told.decode() if isinstance(told, bytes) else told}"


if __name__ == "__main__":
    crew.main(section)
