"""A process of the test: its tasks take one kind of the contract again and again."""

import asyncio
import os
from random import Random
from time import monotonic

from aiolock import LockClient
from tests.contract.kinds import KINDS
from tests.processes import crew

KIND = "AIOLOCK_TEST_KIND"


async def section(locks: LockClient, choose: Random, who: tuple[int, int]) -> str:
    kind = next(kind for kind in KINDS if repr(kind) == os.environ[KIND])
    asked = monotonic()
    taken = await kind.take(locks, wait=None)
    entered = monotonic()
    await asyncio.sleep(0.001)
    left = monotonic()
    await kind.give(locks, taken)
    return f"{asked} {entered} {left}"


if __name__ == "__main__":
    crew.main(section)
