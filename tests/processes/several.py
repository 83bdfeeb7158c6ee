"""A process of the test: its tasks take some of six names at once, in any order, again and again."""

import asyncio
from random import Random
from time import monotonic

from aiolock import LockClient
from tests.processes import crew

NAMES = [f"account:{number}" for number in range(6)]


async def section(locks: LockClient, choose: Random, who: tuple[int, int]) -> str:
    names = choose.sample(NAMES, choose.randint(1, 4))
    asked = monotonic()
    async with locks.multi(*names) as lease:
        entered = monotonic()
        await asyncio.sleep(0.001)
        lease.check()
        left = monotonic()
    tokens = ",".join(f"{name}={token}" for name, token in lease.tokens.items())
    return f"{asked} {entered} {left} {tokens}"


if __name__ == "__main__":
    crew.main(section)
