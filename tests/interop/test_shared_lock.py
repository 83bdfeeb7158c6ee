"""Each side sees the other's lock, waits for it, and cannot give it back."""

import asyncio
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LeaseLostError, NotHeldError
from tests.interop.service import Redisson, RedissonError
from tests.support.observe import until

NAME = "orders"


async def test_redisson_sees_the_lock_of_a_task(lock: AsyncRLock, redisson: Redisson) -> None:
    await lock.acquire(lease=60)
    await lock.acquire(lease=60)
    assert await redisson.ask("isLocked", NAME)
    assert not await redisson.ask("tryLock", NAME)
    assert not await redisson.ask("isHeldByCurrentThread", NAME)
    assert await redisson.ask("getHoldCount", NAME) == 0
    assert 50_000 < await redisson.ask("remainTimeToLive", NAME) <= 60_000
    with pytest.raises(RedissonError, match="not locked by current thread") as refused:
        await redisson.ask("unlock", NAME)
    assert refused.value.kind == "IllegalMonitorStateException"
    assert await lock.hold_count() == 2
    await lock.release()
    assert not await redisson.ask("tryLock", NAME)
    await lock.release()
    assert not await redisson.ask("isLocked", NAME)
    assert await redisson.ask("remainTimeToLive", NAME) == -2
    assert await redisson.ask("tryLock", NAME)


async def test_a_task_sees_the_lock_of_redisson(lock: AsyncRLock, redisson: Redisson) -> None:
    await redisson.ask("lock", NAME, lease=60)
    await redisson.ask("lock", NAME, lease=60)
    assert await lock.locked()
    assert await lock.try_lock() is None
    assert not await lock.held()
    assert await lock.hold_count() == 0
    assert 50 < (await lock.remaining() or 0) <= 60
    holder = await lock.holder()
    assert holder is not None
    assert f"{holder.client}:{holder.owner}" == await redisson.ask("owner")
    assert (holder.holds, holder.host) == (2, None)
    with pytest.raises(NotHeldError) as refused:
        await lock.release()
    assert refused.value.holder is not None
    assert await redisson.ask("getHoldCount", NAME) == 2
    await redisson.ask("unlock", NAME)
    assert await lock.try_lock() is None
    await redisson.ask("unlock", NAME)
    assert await lock.remaining() is None
    assert await lock.try_lock() is not None


async def test_a_lease_of_redisson_that_ends_lets_a_task_in(lock: AsyncRLock, redisson: Redisson) -> None:
    held = await redisson.post("lock", NAME, lease=0.5)
    async with asyncio.timeout(20), lock as lease:
        assert monotonic() - held.began > 0.45
        with pytest.raises(RedissonError, match="IllegalMonitorState"):
            await redisson.ask("unlock", NAME)
        lease.check()
        assert await lock.held()


async def test_a_lease_of_a_task_that_ends_lets_redisson_in(lock: AsyncRLock, redisson: Redisson) -> None:
    asked = monotonic()
    await lock.acquire(lease=0.5)
    async with asyncio.timeout(20):
        got = await redisson.post("lock", NAME)
    assert got.ended - asked > 0.45
    with pytest.raises(LeaseLostError):
        await lock.release()
    assert await redisson.ask("isHeldByCurrentThread", NAME)


async def test_a_bounded_wait_for_the_other_side_ends(lock: AsyncRLock, redisson: Redisson) -> None:
    await redisson.ask("lock", NAME)
    assert await lock.try_lock(0.2) is None
    await redisson.ask("unlock", NAME)
    async with lock:
        refused = await redisson.post("tryLock", NAME, wait=0.2)
    assert not refused.value
    assert refused.ended - refused.began > 0.19


async def test_tokens_grow_past_a_holder_of_redisson(lock: AsyncRLock, redisson: Redisson, redis: Redis) -> None:
    async with lock as lease:
        earlier = lease.token
    await redisson.ask("lock", NAME)
    assert [*await redis.hgetall(NAME)] == [(await redisson.ask("owner")).encode()]
    await redisson.ask("unlock", NAME)
    async with lock as lease:
        assert lease.token > earlier


@pytest.mark.parametrize("times", [1, 3])
async def test_force_unlock_of_redisson_frees_the_lock_of_a_task(
    lock: AsyncRLock, redisson: Redisson, times: int
) -> None:
    for _ in range(times):
        await lock.acquire(lease=60)
    assert await redisson.ask("forceUnlock", NAME)
    assert not await redisson.ask("forceUnlock", NAME)
    assert not await lock.locked()
    with pytest.raises(LeaseLostError):
        await lock.release()


@pytest.mark.parametrize("times", [1, 3])
async def test_force_release_of_a_task_frees_the_lock_of_redisson(
    lock: AsyncRLock, redisson: Redisson, times: int
) -> None:
    for _ in range(times):
        await redisson.ask("lock", NAME)
    assert await lock.force_release()
    assert not await lock.force_release()
    assert not await redisson.ask("isLocked", NAME)
    with pytest.raises(RedissonError, match="IllegalMonitorState"):
        await redisson.ask("unlock", NAME)


async def test_a_thread_waits_while_other_threads_of_its_client_go_on(
    lock: AsyncRLock, redisson: Redisson, redis: Redis
) -> None:
    async with lock:
        waiting = redisson.post("lock", NAME, thread=2)
        await until(lambda: redisson.parked(2), within=20)
        assert await redisson.ask("tryLock", "elsewhere", thread=1)
        assert not waiting.done()
    await waiting
    assert await redisson.ask("isHeldByCurrentThread", NAME, thread=2)
    assert not await redisson.ask("isHeldByCurrentThread", NAME, thread=1)
