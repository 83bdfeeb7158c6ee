"""The requirements of Redisson's own tests, for our lock; docs/reference/redisson.md has the whole list."""

import asyncio
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LockClient
from aiolock._embedded_server import Server
from tests.support.holding import lock_client
from tests.support.observe import answered, freed, pubsub_channels, until


async def test_remaining_of_a_lease_of_a_free_lock_and_of_a_watched_one(lock: AsyncRLock) -> None:
    await lock.acquire(lease=3600)
    assert 3500 < (await lock.remaining() or 0) <= 3600
    await lock.release()
    assert await lock.remaining() is None
    async with lock:
        assert 20 < (await lock.remaining() or 0) <= 30


async def test_a_partial_release_leaves_the_lease_as_it_was(lock: AsyncRLock) -> None:
    for _ in range(3):
        await lock.acquire(lease=60)
    for _ in range(2):
        await lock.release()
        assert 50 < (await lock.remaining() or 0) <= 60
    await lock.release()


async def test_a_wait_is_as_long_as_was_asked_for(lock: AsyncRLock, other: LockClient) -> None:
    async with other.lock(lock.name):
        began = monotonic()
        assert await lock.try_lock(0.5) is None
        assert 0.49 < monotonic() - began < 5


@pytest.mark.parametrize("after", [0, 0.0005, 0.001, 0.002, 0.005])
async def test_a_try_that_is_cancelled_is_not_renewed(server: Server, redis: Redis, after: float) -> None:
    async with lock_client(server.url, lease=1) as locks:

        async def take() -> None:
            await locks.lock("orders").try_lock(60)
            await asyncio.sleep(60)

        taking = asyncio.create_task(take())
        await asyncio.sleep(after)
        taking.cancel()
        await asyncio.wait([taking])
        await answered(locks)
        await freed(redis, "orders")
        assert locks.statistics().held == 0


async def test_many_tasks_on_few_names_fail_nowhere_and_leave_no_subscription(
    locks: LockClient, other: LockClient, redis: Redis
) -> None:
    async def work(client: LockClient, number: int) -> None:
        for turn in range(10):
            async with client.lock(f"name {(number + turn) % 5}"):
                pass

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(work((locks, other)[number % 2], number))

    async def left() -> bool:
        return not await pubsub_channels(redis)

    await until(left, within=20)


async def test_every_try_that_is_granted_is_renewed_until_its_release(locks: LockClient) -> None:
    granted = 0

    async def work() -> None:
        nonlocal granted
        lock = locks.lock("orders")
        for _ in range(50):
            while (lease := await lock.try_lock()) is None:
                await asyncio.sleep(0)
            assert lease.watched
            assert locks.statistics().held == 1
            granted += 1
            await lock.release()

    async with asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(work())
    assert granted == 16 * 50
    assert locks.statistics().held == 0
