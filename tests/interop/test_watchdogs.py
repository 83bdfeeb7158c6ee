"""The watchdog of either side keeps its lock against the other, for longer than a lease."""

from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.interop.service import Service

LEASE = 1.5


@pytest.mark.slow
async def test_both_watchdogs_keep_their_locks(jvm: Service, server: Server, redis: Redis) -> None:
    redisson = await jvm.connect(server.url, watchdog=LEASE)
    async with LockClient.from_url(server.url, config=LockConfig(lease=LEASE)) as locks:
        await redisson.ask("lock", "java's")
        async with locks.lock("python's"):
            ends = monotonic() + 2.5 * LEASE
            trying = redisson.post("tryLock", "python's", thread=2, wait=2.5 * LEASE)
            while monotonic() < ends:
                assert await locks.lock("java's").try_lock(0.1) is None
            assert not (await trying).value
            assert await redisson.ask("isHeldByCurrentThread", "java's")
            assert await locks.lock("python's").held()
            assert 0 < await redis.pttl("java's") <= 1000 * LEASE
        await redisson.ask("unlock", "java's")
        assert await locks.lock("java's").try_lock() is not None
    await redisson.shutdown()


async def test_the_lock_of_a_jvm_that_died_is_free_when_its_lease_ends(
    jvm: Service, server: Server, redis: Redis
) -> None:
    redisson = await jvm.connect(server.url, watchdog=LEASE)
    await redisson.ask("lock", "orders")
    await redisson.shutdown()
    async with LockClient(redis) as locks:
        assert await locks.lock("orders").locked()
        assert await locks.lock("orders").try_lock(30) is not None
