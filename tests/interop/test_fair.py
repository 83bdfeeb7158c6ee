"""A fair lock beside Redisson's plain one: they exclude each other, and a release on one side wakes the other."""

import asyncio

from aiolock import LockClient
from tests.interop.service import Redisson
from tests.support.observe import until

NAME = "orders"
LEASE = 600
SOON = 20.0


async def section(locks: LockClient) -> None:
    async with locks.fair_lock(NAME):
        pass


async def test_each_waits_for_the_other_and_is_woken(locks: LockClient, redisson: Redisson) -> None:
    await redisson.ask("lock", NAME, lease=LEASE)
    assert await locks.fair_lock(NAME).try_lock() is None
    waiting = [asyncio.create_task(section(locks)) for _ in range(3)]
    await until(lambda: locks.fair_lock(NAME).statistics().parked == 3)
    await redisson.ask("unlock", NAME)
    await asyncio.wait_for(asyncio.gather(*waiting), SOON)

    lease = await locks.fair_lock(NAME).acquire(lease=LEASE)
    thread = redisson.post("lock", NAME, lease=LEASE)
    await until(redisson.parked, within=20)
    await lease.release()
    await asyncio.wait_for(thread, SOON)
    await redisson.ask("unlock", NAME)
