"""A process of the test: one task writes and others read, again and again, without a pause."""

import asyncio
from random import Random
from time import monotonic

from aiolock import LockClient
from tests.processes import crew

NAME = "report"


async def section(locks: LockClient, choose: Random, who: tuple[int, int]) -> str:
    lock = locks.read_write_lock(NAME)
    _, task = who
    writes = task == 0
    asked = monotonic()
    async with lock.write if writes else lock.read as lease:
        entered = monotonic()
        await asyncio.sleep(0.001 if writes else 0.005)
        lease.check()
        left = monotonic()
    return f"{int(writes)} {lease.token} {asked} {entered} {left}"


if __name__ == "__main__":
    crew.main(section)
