"""A server that is out of reach for a whole `command_timeout`: who comes later fails at once, until it is back."""

import asyncio
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LockClient
from tests.support.holding import client_behind
from tests.support.observe import until
from tests.support.proxy import Proxy

PATIENCE = 3.0


async def failing(locks: LockClient) -> None:
    with pytest.raises(BackendError):
        await locks.lock("orders").try_lock()


async def works(locks: LockClient) -> bool:
    try:
        await locks.ping()
    except BackendError:
        return False
    return True


@pytest.mark.parametrize("silent", [False, True])
async def test_calls_fail_at_once_until_the_server_is_back(redis: Redis, proxy: Proxy, silent: bool) -> None:
    async with client_behind(proxy, command_timeout=PATIENCE) as locks:
        await locks.ping()
        if silent:
            proxy.black_hole()
        else:
            await proxy.cut_off()
        for _ in range(2):  # The first may still find the connection that there was, and no attempt that failed.
            await failing(locks)
        started = monotonic()
        for _ in range(5):
            await failing(locks)
        assert monotonic() - started < PATIENCE
        await proxy.heal()
        await until(lambda: works(locks), within=10)
        async with locks.lock("orders").hold(wait=0):
            pass


async def test_what_has_to_be_freed_is_tried_on(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy) as locks:
        lease = await locks.lock("orders").acquire()
        await proxy.cut_off()
        for _ in range(2):
            await failing(locks)
        with pytest.raises(BackendError):
            await lease.release()
        await proxy.heal()
        await until(lambda: _is_free(redis), within=20)


async def _is_free(redis: Redis) -> bool:
    return not await redis.exists("orders")


async def test_after_a_rest_a_call_is_given_its_time_again(redis: Redis, proxy: Proxy) -> None:
    async with client_behind(proxy) as locks:
        await locks.ping()
        await proxy.cut_off()
        for _ in range(3):
            assert not await works(locks)
        await asyncio.sleep(2.5)  # Nothing is left to be sent, so nobody knows.
        asking = asyncio.create_task(works(locks))
        await until(lambda: locks.statistics().pending == 1)
        await proxy.heal()
        assert await asking


async def test_ping_changes_nothing(redis: Redis, locks: LockClient) -> None:
    await locks.ping()
    assert not await redis.keys("*")
    await redis.set("aiolock-ping", "somebody else's")
    await locks.ping()
