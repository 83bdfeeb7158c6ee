"""A process of the test: tasks that take one to three of three permits, each so and so often."""

import asyncio
from random import Random
from time import monotonic

from aiolock import LockClient
from tests.processes import crew

NAME, PERMITS = "places", 3


async def section(locks: LockClient, choose: Random) -> str:
    permits = choose.randint(1, PERMITS)
    asked = monotonic()
    async with locks.permit_expirable_semaphore(NAME, PERMITS).hold(permits=permits) as permit:
        entered = monotonic()
        await asyncio.sleep(0.001)
        permit.check()
        left = monotonic()
    return f"{permits} {asked} {entered} {left}"


if __name__ == "__main__":
    crew.main(section)
