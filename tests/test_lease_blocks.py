"""`async with lease:` gives its hold back, and is cancelled by a loss as `async with lock:` is."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LeaseLostError, LockClient, NotHeldError
from tests.support.observe import until


async def test_the_block_of_a_lease_gives_it_back(lock: AsyncRLock, redis: Redis) -> None:
    async with await lock.acquire() as lease:
        assert lease.holds == 1
        assert await lock.held()
        if inner := await lock.try_lock():
            async with inner:
                assert lease.holds == 2
        assert lease.holds == 1
    assert lease.given_back
    assert not await redis.exists("orders")


async def test_a_loss_cancels_the_body_once_and_is_raised(lock: AsyncRLock) -> None:
    with pytest.raises(LeaseLostError, match="by force") as lost:
        async with await lock.acquire() as lease:
            assert await lock.force_release()
            await asyncio.sleep(60)
    assert isinstance(lost.value.__cause__, asyncio.CancelledError)
    assert lease.given_back
    # A cancellation that was left over would be raised here.
    await asyncio.sleep(0)


async def test_a_lease_that_is_over_or_has_its_block_is_not_entered(locks: LockClient) -> None:
    lock = locks.lock("orders")
    async with await lock.acquire() as lease:
        with pytest.raises(RuntimeError, match="in a block already"):
            async with lease:
                pass
    with pytest.raises(NotHeldError):
        async with lease:
            pass
    lost = await lock.acquire()
    await lock.force_release()
    with pytest.raises(LeaseLostError):
        async with lost:
            pass
    with pytest.raises(RuntimeError, match="in no `async with`"):
        await lost.__aexit__(None, None, None)


async def test_closing_the_client_tells_it_too(redis: Redis) -> None:
    locks = LockClient(redis)
    told: list[str] = []

    async def work() -> None:
        try:
            async with await locks.lock("orders").acquire():
                await asyncio.sleep(60)
        except LeaseLostError as error:
            told.append(error.reason)

    task = asyncio.create_task(work())
    await until(lambda: locks.statistics().held == 1)
    await locks.aclose()
    await task
    assert told == ["closed"]
    assert not await redis.exists("orders")


async def test_a_release_by_the_handle_is_refused_in_its_own_block(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock("a")
    async with lock as lease:
        with pytest.raises(RuntimeError, match="'a': every hold of the owner is in a block"):
            await lock.release()
        lease.check()
        await lock.acquire()
        await lock.release()
        assert lease.holds == 1
    assert not await redis.exists("a")


async def test_a_lease_of_permits_in_a_block(locks: LockClient) -> None:
    permits = locks.semaphore("desks", 2)
    async with permits as permit:
        with pytest.raises(RuntimeError, match="in a block"):
            await permits.release()
        permit.check()
    assert await permits.available() == 2
