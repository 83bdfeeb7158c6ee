"""A process of the test: tasks that read or write one lock, each so and so often, without a pause."""

import asyncio
from random import Random
from time import monotonic

from aiolock import LockClient
from tests.processes import crew

NAME = "report"
ONE_IN = 5  # Sections that write.


async def section(locks: LockClient, choose: Random) -> str:
    lock = locks.read_write_lock(NAME)
    writes = choose.randrange(ONE_IN) == 0
    asked = monotonic()
    async with lock.write if writes else lock.read as lease:
        entered = monotonic()
        await asyncio.sleep(0.001)
        lease.check()
        left = monotonic()
    return f"{int(writes)} {lease.token} {asked} {entered} {left}"


if __name__ == "__main__":
    crew.main(section)
