"""An application's use of locks in a day, on one page."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient
from tests.support.calls import acquire_and_release
from tests.support.inside import hears
from tests.support.observe import until


async def session(client: LockClient, other: LockClient, name: str) -> list[int]:
    """
    Run every script, but not `inspect` on a lock of Redisson's; let a message end a wait; return the tokens in order.

    The *other* client stands for another process; both have the same server and prefix.
    """
    lock, theirs = client.lock(name), other.lock(name)
    tokens = []
    async with lock as lease:
        tokens.append(lease.token)
        async with lock:
            await lease.renew()
            assert await lock.hold_count() == 2
        assert (holder := await theirs.holder()) is not None
        assert holder.host
        assert await theirs.try_lock() is None
    # The second release lets the server forget the end of the first acquisition.
    for _ in range(2):
        async with lock.hold(at_least=0.01) as lease:
            tokens.append(lease.token)
    tokens.append((await theirs.acquire(lease=60)).token)
    waiting = asyncio.create_task(acquire_and_release(lock))
    await until(lambda: client.lock(name).statistics().parked == 1 and _listens(client, name), within=20)
    await theirs.release()
    async with asyncio.timeout(20):
        await waiting
    tokens.append((await lock.acquire()).token)
    assert await theirs.force_release()
    assert not await lock.locked()
    with pytest.raises(LeaseLostError, match="force"):
        await lock.release()
    return tokens


async def held_by_redisson(redis: Redis, client: LockClient, key: str, name: str) -> None:
    """Look at a lock with the fields of Redisson only, and wait for it."""
    await redis.hset(key, "0b0e6fcd-6f40-4c6b-9d3a-2b1c1b2a8c57:1", "1")
    await redis.pexpire(key, 60_000)
    assert await client.lock(name).try_lock() is None
    await redis.delete(key)


def _listens(client: LockClient, name: str) -> bool:
    return client.statistics().pending == 0 and hears(client, client.lock(name))
