"""What another library does when a server crashes and comes back empty, beside aiolock: two hold the lock there."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server

pytestmark = pytest.mark.slow


async def crash_empty(servers: list[Server], clients: list[Redis]) -> None:
    """The second server forgets all; the third, which was away until now, comes back."""
    servers[1].kill()
    servers[1].start()
    servers[2].start()
    for client in clients:
        await client.connection_pool.disconnect()


async def test_two_hold_a_lock_of_pottery(mine: list[Server], of_mine: list[Redis]) -> None:
    pottery = pytest.importorskip("pottery")  # In the group `tests`: where it is missing is `AIOLOCK_REQUIRE` to say.
    others = [Redis.from_url(server.url) for server in mine]
    first = pottery.AIORedlock(key="orders", masters=set(of_mine), auto_release_time=30)
    second = pottery.AIORedlock(key="orders", masters=set(others), auto_release_time=30)
    mine[2].kill()
    assert await first.acquire()
    await crash_empty(mine, [*of_mine, *others])
    async with asyncio.timeout(10):
        assert await second.acquire()
    for redis in others:
        await redis.aclose()


async def test_one_holds_a_lock_of_ours(mine: list[Server], of_mine: list[Redis]) -> None:
    config = LockConfig(command_timeout=2)
    async with (
        LockClient.redlock(of_mine, config=config) as first,
        LockClient.redlock(of_mine, config=config) as second,
    ):
        mine[2].kill()
        lease = await first.lock("orders").acquire(lease=30)
        await crash_empty(mine, of_mine)
        assert await second.lock("orders").try_lock(2) is None
        assert not lease.lost.is_set()
