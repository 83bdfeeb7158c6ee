"""A process of the test: the tasks of the first process take all of three permits, those of the others one permit."""

import asyncio
from random import Random
from time import monotonic

from aiolock import LockClient
from tests.processes import crew

NAME, PERMITS = "places", 3


async def section(locks: LockClient, choose: Random, who: tuple[int, int]) -> str:
    process, _ = who
    permits = PERMITS if process == 0 else 1
    asked = monotonic()
    async with locks.semaphore(NAME, PERMITS).hold(permits=permits) as permit:
        entered = monotonic()
        await asyncio.sleep(0.001)
        permit.check()
        left = monotonic()
    return f"{permits} {asked} {entered} {left}"


if __name__ == "__main__":
    crew.main(section)
