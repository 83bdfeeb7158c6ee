"""`min-replicas-to-write`: a primary that has too few replicas refuses every write, until they are back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.support.calls import acquire_and_release
from tests.support.observe import answered, freed, renewed, until
from tests.support.topologies import Replicated, ask, errors, wait_until
from tests.support.waiters import parked

NAME = "orders"
WORDS = "NOREPLICAS Not enough good replicas to write"


@pytest.fixture(scope="module")
def strict(server: Server) -> Iterator[Replicated]:
    """A primary that wants its one replica; every test leaves it with that."""
    with Replicated(server._executable, replicas=1) as running:
        ask(running.primary, "CONFIG", "SET", "min-replicas-to-write", 1)
        yield running


@pytest.fixture
async def primary(strict: Replicated) -> AsyncIterator[Redis]:
    client = Redis.from_url(strict.primary.url)
    await client.flushall()
    yield client
    await client.aclose()


@asynccontextmanager
async def client_of(redis: Redis, **settings: Any) -> AsyncIterator[LockClient]:
    config = LockConfig(**({"command_timeout": 20, "release_timeout": 20} | settings))
    async with LockClient(redis, config=config) as client:
        yield client


@asynccontextmanager
async def without_replica(strict: Replicated) -> AsyncIterator[None]:
    """The primary has no replica meanwhile."""
    [replica] = strict.replicas
    replica.kill()
    try:
        wait_until(lambda: good_replicas(strict) == 0, "the primary noticed")
        yield
    finally:
        replica.start()
        in_step = "the replica is in step"
        wait_until(lambda: good_replicas(strict) == 1 and ask(replica, "ROLE")[3] == "connected", in_step)


def good_replicas(strict: Replicated) -> int:
    return int(ask(strict.primary, "INFO", "replication")["min_slaves_good_slaves"])


async def refused(strict: Replicated, times: int) -> None:
    """Return when that many more writes have been refused."""
    before = errors(strict.primary, "NOREPLICAS")
    await until(lambda: errors(strict.primary, "NOREPLICAS") >= before + times, within=15)


async def test_an_acquire_that_is_cancelled_meanwhile_leaves_nothing(strict: Replicated, primary: Redis) -> None:
    async with client_of(primary) as locks:
        async with without_replica(strict):
            acquiring = asyncio.create_task(acquire_and_release(locks.lock(NAME)))
            await refused(strict, 2)
            acquiring.cancel()
            await asyncio.wait([acquiring])
        await answered(locks, within=15)
        assert not await primary.exists(NAME)
        assert locks.statistics().held == locks.statistics().parked == 0


async def test_a_renewal_that_is_refused_is_tried_until_the_replica_is_back(strict: Replicated, primary: Redis) -> None:
    async with client_of(primary, lease=25, renew_interval=0.3) as locks, locks.lock(NAME) as lease:
        await renewed(locks, 1)
        async with without_replica(strict):
            await refused(strict, 3)
            lease.check()
        await renewed(locks, 2, within=15)
        lease.check()
    assert locks.statistics().losses == 0


async def test_a_release_that_is_refused_is_made_good_when_the_replica_is_back(
    strict: Replicated, primary: Redis
) -> None:
    async with (
        client_of(primary, release_timeout=0.6) as locks,
        client_of(primary) as others,
        parked(others, locks, NAME, 2, go=True, lease=600) as (lease, waiters),
    ):
        async with without_replica(strict):
            with pytest.raises(BackendError, match=WORDS):
                await lease.release()
            assert locks.statistics().held == 0
            assert await locks.lock(NAME).locked()
            assert waiters.order == []
        await waiters.granted(2, within=20)
        await freed(primary, NAME)


async def test_a_block_raises_when_its_release_is_refused_and_its_lock_is_soon_free(
    strict: Replicated, primary: Redis
) -> None:
    async with client_of(primary, release_timeout=0.6, lease=600) as locks:
        async with AsyncExitStack() as stack:
            with pytest.raises(BackendError, match=WORDS):
                async with locks.lock(NAME):
                    await stack.enter_async_context(without_replica(strict))
        await freed(primary, NAME)
        await acquire_and_release(locks.lock(NAME))


async def test_scripts_that_only_read_are_answered(strict: Replicated, primary: Redis) -> None:
    async with (
        client_of(primary) as locks,
        client_of(primary) as others,
        locks.lock(NAME),
        without_replica(strict),
        asyncio.timeout(10),
    ):
        assert await others.lock(NAME).try_lock() is None
        assert await others.lock(NAME).locked()
        assert await locks.lock(NAME).hold_count() == 1
        assert (await others.lock(NAME).holder()) is not None
        assert not await others.lock("another").locked()


async def test_with_replicas_as_well_nothing_is_granted_that_would_have_to_be_undone(
    strict: Replicated, primary: Redis
) -> None:
    async with client_of(primary, command_timeout=4, replicas="all", replicas_timeout=2) as locks:
        async with without_replica(strict):
            with pytest.raises(BackendError, match=WORDS):
                await locks.lock(NAME).acquire()
        await acquire_and_release(locks.lock(NAME))
