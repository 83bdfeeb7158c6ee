"""The server ignores a renewal that another one overtook; the caller still gets the time that it asked for."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import Lease, LeaseLostError, LockClient, NotHeldError
from aiolock._scripts import RENEW
from tests.support.holding import lock_client
from tests.support.observe import until
from tests.support.proxy import ALWAYS, Proxy, Rule, delay, drop_reply, hold, reset, script

LONG = 3600.0


async def renewed(lease: Lease, seconds: float) -> float:
    """The remaining time when the renewal returns."""
    await lease.renew(seconds)
    return lease.remaining


async def urgent_connected(locks: LockClient, lease: Lease) -> None:
    """The first renewal makes the connection for renewals, but does not wait for it."""
    await lease.renew(1)
    await until(lambda: locks.statistics().connections == 2)


@pytest.mark.parametrize("executed", [True, False])
async def test_a_renewal_overtaken_by_a_shorter_one_is_made_good_before_it_returns(
    proxy: Proxy, through: Redis, redis: Redis, executed: bool
) -> None:
    async with LockClient(through) as locks:
        lease = await locks.lock("a").acquire(lease=10)
        await urgent_connected(locks, lease)
        # The client sends the call that broke a connection again, behind the others.
        proxy.install(Rule(script(RENEW), drop_reply() if executed else reset()))
        long, short = asyncio.create_task(renewed(lease, LONG)), asyncio.create_task(renewed(lease, 12))
        async with asyncio.timeout(10):
            assert await long > LONG - 60
            assert await short > 10
        assert await redis.pttl("a") > (LONG - 60) * 1000
        await lease.release()


async def test_a_renewal_overtaken_by_the_watchdogs_is_made_good_before_it_returns(
    proxy: Proxy, through: Redis, redis: Redis
) -> None:
    async with lock_client(proxy.url, lease=1.5, command_timeout=3) as locks:
        lease = await locks.lock("a").acquire()
        await urgent_connected(locks, lease)
        before = len(proxy.requests)
        proxy.install(Rule(script(RENEW), hold(reset=False), ALWAYS))
        long = asyncio.create_task(renewed(lease, LONG))

        def both_sent() -> bool:
            """Whether the renewal of the watchdog was sent, too, which goes first when the connection breaks."""
            return len({request.args[8] for request in proxy.requests[before:] if script(RENEW)(request)}) == 2

        await until(both_sent)
        proxy.clear_rules()
        proxy.reset_all()
        async with asyncio.timeout(10):
            assert await long > LONG - 60
        assert await redis.pttl("a") > (LONG - 60) * 1000


async def test_a_renewal_that_nothing_overtakes_is_sent_once(proxy: Proxy, through: Redis) -> None:
    async with LockClient(through) as locks:
        lease = await locks.lock("a").acquire(lease=10)
        await urgent_connected(locks, lease)
        for seconds in (LONG, 5, 0.001, 1000 / 3):
            await lease.renew(seconds)
        assert sum(map(script(RENEW), proxy.requests)) == 5


async def test_a_renewal_by_a_fraction_of_a_millisecond_returns(proxy: Proxy, through: Redis) -> None:
    """Redis counts whole milliseconds: it may grant up to half a millisecond less than the caller asked for."""
    async with lock_client(proxy.url, drift=0.0001) as locks:
        lease = await locks.lock("a").acquire(lease=5)
        await urgent_connected(locks, lease)
        async with asyncio.timeout(5):
            await lease.renew(10.0004)
        assert sum(map(script(RENEW), proxy.requests)) == 2


async def test_an_overtaken_renewal_raises_when_the_lock_is_lost_meanwhile(
    proxy: Proxy, through: Redis, redis: Redis
) -> None:
    async with LockClient(through) as locks:
        lease = await locks.lock("a").acquire(lease=10)
        await urgent_connected(locks, lease)
        broken = proxy.install(Rule(script(RENEW), reset()))
        long, short = asyncio.create_task(renewed(lease, LONG)), asyncio.create_task(renewed(lease, 12))
        await broken.caught()
        await redis.delete("a")
        for renewing in (long, short):
            with pytest.raises(LeaseLostError):
                await renewing


async def test_a_renewal_that_a_release_overtakes_ends(proxy: Proxy, through: Redis, redis: Redis) -> None:
    async with LockClient(through) as locks:
        lease = await locks.lock("a").acquire(lease=10)
        await urgent_connected(locks, lease)
        overtaken = proxy.install(Rule(script(RENEW), delay(0.3)))
        renewing = asyncio.create_task(lease.renew())
        await overtaken.caught()
        await lease.release()
        async with asyncio.timeout(5):
            with pytest.raises(NotHeldError, match="given back"):
                await renewing
        assert not await redis.exists("a")
