"""Leases shorter than an acquire takes: nobody is handed one that is over, or waits for one for ever."""

import asyncio
import time

import pytest
from redis.asyncio import Redis

from aiolock import Acquired, LeaseLostError, LockClient, LockConfig, LockEvent
from aiolock._scripts import ACQUIRE
from tests.support.holding import client_behind
from tests.support.observe import freed
from tests.support.proxy import ALWAYS, Proxy, Rule, delay, script

NAME = "orders"


async def test_an_acquire_raises_when_its_leases_are_over_before_they_arrive(redis: Redis, proxy: Proxy) -> None:
    proxy.install(Rule(script(ACQUIRE), delay(0.05), ALWAYS))
    async with client_behind(proxy) as locks:
        async with asyncio.timeout(30):
            with pytest.raises(LeaseLostError, match="its lease ended"):
                await locks.lock(NAME).acquire(lease=0.005)
        assert await locks.lock(NAME).try_lock(lease=0.005) is None
        assert locks.lock(NAME).statistics().held == 0
    await freed(redis, NAME)


async def test_a_lease_that_ends_before_its_user_has_it_is_not_handed_out(redis: Redis) -> None:
    def block(event: LockEvent) -> None:
        if isinstance(event, Acquired):
            time.sleep(0.1)

    async with LockClient(redis, config=LockConfig(on_event=block)) as locks:
        with pytest.raises(LeaseLostError, match="its lease ended"):
            await locks.lock(NAME).try_lock(lease=0.1)
        assert locks.lock(NAME).statistics().held == 0
        await freed(redis, NAME)
        assert await locks.lock(NAME).try_lock(lease=60)
        await locks.lock(NAME).release()
