"""Sentinel: the present primary has the locks; a grant that did not reach it is reported as lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel

from aiolock import LockClient, LockConfig, ReplicationError
from aiolock._embedded_server import Server
from tests.support.calls import acquire_and_release
from tests.support.inside import keys_of
from tests.support.observe import renewed, until
from tests.support.topologies import NAME as PRIMARY
from tests.support.topologies import Replicated, ask, cut_off, replicated, role
from tests.support.waiters import parked

NAME = "orders"


@pytest.fixture
def setup(server: Server) -> Iterator[Replicated]:
    with Replicated(server._executable, replicas=2, sentinels=3) as running:
        yield running


@asynccontextmanager
async def users_client(setup: Replicated) -> AsyncIterator[Redis]:
    sentinel = Sentinel(setup.addresses, socket_timeout=1)  # type: ignore[no-untyped-call]
    redis = sentinel.master_for(PRIMARY)
    yield redis
    await redis.aclose()
    for each in sentinel.sentinels:
        await each.aclose()


def is_heard(channel: str, setup: Replicated) -> bool:
    """Whether the present primary, which may be another one again on a busy machine, sends the channel's messages."""
    return any(role(each) == "master" and channel in ask(each, "PUBSUB", "CHANNELS") for each in setup.replicas)


async def test_a_failover_while_a_lock_is_held_and_waited_for(setup: Replicated) -> None:
    async with users_client(setup) as redis:
        config = LockConfig(lease=30, renew_interval=1, command_timeout=15, client_name="ours")
        async with LockClient(redis, config=config) as holder, LockClient(redis, config=config) as locks:
            async with parked(locks, holder, NAME, 3, go=True) as (lease, waiters):
                old = setup.primary
                async with holder.lock("watched") as watched:
                    await replicated(old, 2)
                    old.kill()
                    await asyncio.to_thread(setup.promoted, old)
                    await renewed(holder, 2, within=20)
                    watched.check()
                channel = keys_of(waiters.lock).channel
                await until(lambda: waiters.none_failed() and is_heard(channel, setup), within=20)
                await until(waiters.quiet, within=20)
                lease.check()
                await lease.release()
                await waiters.granted(3, within=10)
            assert holder.statistics().losses == 0


async def lose_the_latest(setup: Replicated) -> None:
    """A failover to a replica that was cut off."""
    setup.primary.kill()
    for replica in setup.replicas:
        replica.resume()
    await asyncio.to_thread(setup.promoted, setup.primary)


async def test_a_holder_is_told_at_once_that_its_lock_did_not_reach_the_new_primary(setup: Replicated) -> None:
    async with (
        users_client(setup) as redis,
        LockClient(redis, config=LockConfig(lease=60, command_timeout=20)) as locks,
    ):
        await acquire_and_release(locks.lock(NAME))
        cut_off(setup.primary, *setup.replicas)
        watched = await locks.lock(NAME, owner="job").acquire()
        fixed = await locks.lock("fixed", owner="job").acquire(lease=60)
        await lose_the_latest(setup)
        assert await asyncio.wait_for(watched.lost, 15) == "expired"
        assert await asyncio.wait_for(fixed.lost, 15) == "expired"


async def test_a_lock_whose_release_did_not_reach_the_new_primary_stays_for_its_lease(setup: Replicated) -> None:
    async with (
        users_client(setup) as redis,
        LockClient(redis, config=LockConfig(command_timeout=20, replicas="all")) as locks,
    ):
        lock = locks.lock(NAME, owner="job")
        lease = await lock.acquire(lease=60)
        cut_off(setup.primary, *setup.replicas)
        await lease.release()
        await lose_the_latest(setup)
        async with asyncio.timeout(20):
            assert await lock.locked()
            assert 0 < await redis.pttl(NAME) <= 60_000
            assert await lock.force_release()


async def test_with_replicas_such_a_lock_is_never_granted(setup: Replicated) -> None:
    async with users_client(setup) as redis:
        config = LockConfig(lease=60, command_timeout=20, replicas="all")
        async with LockClient(redis, config=config) as locks:
            for replica in setup.replicas:
                replica.pause()
            with pytest.raises(ReplicationError) as caught:
                await locks.lock(NAME).acquire()
            assert (caught.value.acks, caught.value.wanted) == (0, 2)
            await lose_the_latest(setup)
            async with asyncio.timeout(20):
                assert not await locks.lock(NAME).locked()


async def test_with_replicas_a_lock_survives_the_failover(setup: Replicated) -> None:
    async with users_client(setup) as redis:
        config = LockConfig(lease=60, command_timeout=20, replicas="all")
        async with LockClient(redis, config=config) as locks, LockClient(redis, config=config) as others:
            async with locks.lock(NAME) as lease:
                setup.primary.kill()
                await asyncio.to_thread(setup.promoted, setup.primary)
                assert await others.lock(NAME).locked()
                lease.check()
            assert locks.statistics().losses == 0


async def test_a_lock_is_kept_while_all_sentinels_are_away(setup: Replicated) -> None:
    """A new connection would need a Sentinel to find the primary; the open connection leads to it."""
    config = LockConfig(lease=3)
    async with users_client(setup) as redis, LockClient(redis, config=config) as locks, locks.lock(NAME) as lease:
        for sentinel in setup.sentinels:
            sentinel.kill()
        await renewed(locks, 4)
        lease.check()
