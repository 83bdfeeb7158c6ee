"""A process of the test: tasks that take one to three of three permits, and count each of their sections down."""

import asyncio
from random import Random
from time import monotonic

from aiolock import LockClient
from tests.processes import crew

NAME, PERMITS, LATCH = "seats", 3, "sections"


async def section(locks: LockClient, choose: Random) -> str:
    permits = choose.randint(1, PERMITS)
    asked = monotonic()
    async with locks.semaphore(NAME, PERMITS).hold(permits=permits):
        entered = monotonic()
        await asyncio.sleep(0.001)
        left = monotonic()
    await locks.count_down_latch(LATCH).count_down()
    return f"{permits} {asked} {entered} {left}"


if __name__ == "__main__":
    crew.main(section)
