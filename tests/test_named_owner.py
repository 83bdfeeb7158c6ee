"""A named owner: several tasks that act as one, in every order in which they can meet."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, Lease, LockClient
from aiolock._scripts import ACQUIRE
from aiolock._server import Server
from tests.support.observe import until
from tests.support.proxy import Proxy, Rule, script, withhold_reply


async def acquire(lock: AsyncRLock) -> Lease:
    return await lock.acquire()


async def acquire_and_release(lock: AsyncRLock) -> None:
    async with lock:
        pass


async def try_once(lock: AsyncRLock) -> Lease | None:
    return await lock.try_lock()


async def release(lock: AsyncRLock) -> None:
    await lock.release()


async def test_whoever_acts_as_the_holder_does_not_wait_behind_others(locks: LockClient) -> None:
    job = locks.lock("orders", owner="job")
    await locks.lock("other").locked()  # Connected, so that the three are refused or granted in one batch.
    first = asyncio.create_task(acquire(job))
    stranger = asyncio.create_task(acquire_and_release(locks.lock("orders")))
    second = asyncio.create_task(acquire(job))
    await asyncio.wait_for(asyncio.gather(first, second), 5)
    assert await job.hold_count() == 2
    assert not stranger.done()
    await job.release()
    await job.release()
    await stranger


async def test_one_try_finds_the_lock_that_its_owner_is_just_getting(locks: LockClient) -> None:
    job = locks.lock("orders", owner="job")
    await locks.lock("other").locked()
    assert all(await asyncio.gather(*(asyncio.create_task(try_once(job)) for _ in range(3))))
    assert await job.hold_count() == 3


async def test_a_release_leaves_the_block_of_another_task_alone(locks: LockClient) -> None:
    job = locks.lock("orders", owner="job")
    await job.acquire()
    async with job as scoped:
        await asyncio.create_task(release(job))
        scoped.check()
        assert await job.hold_count() == 1
    assert not await job.locked()


@pytest.mark.parametrize("cancelled", [False, True], ids=["granted", "cancelled"])
async def test_a_release_leaves_a_hold_that_is_on_its_way_alone(server: Server, redis: Redis, cancelled: bool) -> None:
    async with Proxy(server.host, server.port) as proxy, LockClient.from_url(proxy.url) as locks:
        job = locks.lock("orders", owner="job")
        await job.acquire()
        answer = proxy.install(Rule(script(ACQUIRE), withhold_reply()))
        nested = asyncio.create_task(acquire(job))
        await answer.caught()
        given_back = asyncio.create_task(release(job))
        await until(lambda: locks.statistics().pending == 2)
        if cancelled:
            nested.cancel()
        answer.let_go()
        await given_back
        await asyncio.wait([nested])
        assert nested.cancelled() is cancelled
        await until(lambda: locks.statistics().pending == 0)
        assert await job.hold_count() == (0 if cancelled else 1)
