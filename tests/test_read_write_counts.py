"""A hold count that somebody wrote does not keep the server: scripts look at a bounded number of records."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server

# This is a reader of Redisson's.
READER = "b983c153-7421-469a-addb-44fb92259a1b:57"


@pytest.mark.parametrize("count", ["9" * 5000, "1e999", "100000000000"], ids=["digits", "infinite", "large"])
async def test_a_count_that_never_ends_keeps_no_server(count: str, own: Server) -> None:
    async with Redis.from_url(own.url) as redis, LockClient.from_url(own.url) as locks, asyncio.timeout(30):
        lock = locks.read_write_lock("prices")
        await redis.hset("prices", mapping={"mode": "read", READER: count})
        await redis.pexpire("prices", 60_000)
        await redis.set(f"{{prices}}:{READER}:rwlock_timeout:1", 1, px=30_000)
        assert await lock.write.try_lock() is None
        assert [holder.owner for holder in await lock.read.holders()] == ["57"]
        async with lock.read:
            assert len(await lock.read.holders()) == 2
        assert await lock.read.force_release()
        assert await redis.exists("prices") == 0
