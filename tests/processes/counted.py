"""A process of the test: tasks that take one to three of four permits, and count each of their sections down."""

import asyncio
import sys
from random import Random
from time import monotonic

from aiolock import LockClient
from tests.processes import crew

NAME, PERMITS, LATCH = "seats", 4, "sections"
_to_be_lost = [1]


async def section(locks: LockClient, choose: Random, who: tuple[int, int]) -> str:
    permits = choose.randint(1, PERMITS - 1)
    asked = monotonic()
    async with locks.counting_semaphore(NAME, PERMITS).hold(permits=permits):
        entered = monotonic()
        await asyncio.sleep(0.001)
        left = monotonic()
    await locks.count_down_latch(LATCH).count_down()
    return f"{permits} {asked} {entered} {left}"


async def keep(locks: LockClient, choose: Random, who: tuple[int, int]) -> str:
    """A task of the process that is killed takes a permit, and never gives it back."""
    if not _to_be_lost:
        await asyncio.Event().wait()
    permits, asked = _to_be_lost.pop(), monotonic()
    await locks.counting_semaphore(NAME, PERMITS).acquire(permits)
    return f"{permits} {asked} {monotonic()} inf"


if __name__ == "__main__":
    crew.main(keep if sys.argv[-1] == str(crew.FOR_EVER) else section)
