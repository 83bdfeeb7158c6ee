"""Replicas: with `LockConfig(replicas=...)` a grant or a renewal counts when they have it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, BackendError, LockClient, LockConfig, ReplicationError
from aiolock._server import Server
from tests.support.observe import answered, commandstats, freed, renewed, until
from tests.support.topologies import Replicated, ask, wait_until, waited

NAME = "orders"


@pytest.fixture(scope="module")
def two(server: Server) -> Iterator[Replicated]:
    """A primary with two replicas."""
    with Replicated(server._executable) as running:
        yield running


@pytest.fixture
async def primary(two: Replicated) -> AsyncIterator[Redis]:
    client = Redis.from_url(two.primary.url)
    await client.flushall()
    wait_until(lambda: len(ask(two.primary, "ROLE")[2]) == 2, "both replicas are in step")
    yield client
    await client.aclose()


@asynccontextmanager
async def paused(*servers: Server) -> AsyncIterator[None]:
    for server in servers:
        server.pause()
    try:
        yield
    finally:
        for server in servers:
            server.resume()


@asynccontextmanager
async def client_of(redis: Redis, replicas: int | Literal["all"], **settings: Any) -> AsyncIterator[LockClient]:
    config = LockConfig(replicas=replicas, **({"replicas_timeout": 0.5, "command_timeout": 12} | settings))
    async with LockClient(redis, config=config) as client:
        yield client


@pytest.mark.parametrize("replicas", [1, 2, "all"])
async def test_a_grant_that_the_replicas_have_counts(two: Replicated, primary: Redis, replicas: Any) -> None:
    async with client_of(primary, replicas, replicas_timeout=5) as locks, locks.lock(NAME) as lease, locks.lock(NAME):
        assert lease.holds == 2
        held = [ask(replica, "HGET", NAME, "aiolock:token") for replica in two.replicas]
        assert held.count(str(lease.token)) >= (1 if replicas == 1 else 2)


@pytest.mark.parametrize(("replicas", "gone", "acks"), [(2, 1, 1), ("all", 1, 1), (1, 2, 0), (2, 2, 0)])
async def test_a_grant_that_too_few_have_is_undone(
    two: Replicated, primary: Redis, replicas: Any, gone: int, acks: int
) -> None:
    async with client_of(primary, replicas, replicas_timeout=2) as locks:
        async with paused(*two.replicas[:gone]):
            with pytest.raises(ReplicationError) as caught:
                await locks.lock(NAME).acquire()
            wanted = 2 if replicas == "all" else replicas
            assert (caught.value.name, caught.value.acks, caught.value.wanted) == (NAME, acks, wanted)
            await freed(primary, NAME)
        await answered(locks)
        assert locks.statistics().held == 0


async def test_all_are_fewer_when_a_replica_has_left(server: Server) -> None:
    with Replicated(server._executable) as running:
        redis = Redis.from_url(running.primary.url)
        async with client_of(redis, "all", replicas_timeout=2) as locks:
            async with locks.lock(NAME):
                pass
            ask(running.replicas[0], "REPLICAOF", "NO", "ONE")
            await waited(lambda: len(ask(running.primary, "ROLE")[2]) == 1, "the primary knows")
            async with locks.lock(NAME) as lease:
                lease.check()
        await redis.aclose()


async def test_one_replica_of_two_is_enough_if_one_is_asked_for(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 1, replicas_timeout=5) as locks, paused(two.replicas[0]), locks.lock(NAME) as lease:
        lease.check()


async def test_no_replicas_are_too_few_also_for_all(own: Server) -> None:
    redis = Redis.from_url(own.url)
    async with client_of(redis, "all") as locks:
        with pytest.raises(ReplicationError) as caught:
            await locks.lock(NAME).acquire()
        assert (caught.value.acks, caught.value.wanted) == (0, 1)
        await freed(redis, NAME)
    await redis.aclose()


async def test_a_waiter_goes_on_when_the_holder_was_undone(two: Replicated, primary: Redis) -> None:
    async def attempt(lock: AsyncRLock) -> bool:
        try:
            async with lock:
                return True
        except ReplicationError:
            return False

    async with client_of(primary, 2) as locks:
        async with paused(two.replicas[0]):
            assert await asyncio.gather(*(attempt(locks.lock(NAME)) for _ in range(3))) == [False] * 3
        assert await attempt(locks.lock(NAME)) or await attempt(locks.lock(NAME))


async def test_a_nested_acquire_that_too_few_have_is_undone_alone(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2) as locks:
        lock = locks.lock(NAME, owner="job")
        lease = await lock.acquire()
        async with paused(two.replicas[0]):
            with pytest.raises(ReplicationError):
                await lock.acquire()
            await answered(locks)
            assert lease.holds == 1
        assert await lock.hold_count() == 1
        await lease.release()


async def test_a_renewal_that_too_few_have_moves_no_deadline(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, lease=3, renew_interval=0.4, replicas_timeout=0.2) as locks:
        lease = await locks.lock(NAME, owner="job").acquire()
        await renewed(locks, 1)
        async with paused(*two.replicas):
            with pytest.raises(ReplicationError):
                await lease.renew(60)
            assert lease.remaining < 3
            before = locks.statistics().renewals
            assert await asyncio.wait_for(lease.lost, 20) == "unreachable"
            assert locks.statistics().renewals == before


async def test_replicas_that_come_back_in_time_keep_the_lock(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2, lease=10, renew_interval=0.5) as locks, locks.lock(NAME) as lease:
        async with paused(*two.replicas):
            sent = locks.statistics().commands
            await until(lambda: locks.statistics().commands > sent + 4, within=8)
        await renewed(locks, 1)
        lease.check()


async def test_the_replicas_are_asked_once_for_a_batch(primary: Redis) -> None:
    async with client_of(primary, 2, replicas_timeout=5) as locks:
        names = [locks.lock(f"name {number}", owner="job") for number in range(20)]
        leases = [await names[0].acquire()]
        before = await commandstats(primary)
        leases += await asyncio.gather(*(lock.acquire() for lock in names[1:]))
        after = await commandstats(primary)
        assert after["evalsha"] - before["evalsha"] == 19
        assert after["wait"] - before["wait"] == 1
        await asyncio.gather(*(lease.release() for lease in leases))


async def test_what_grants_nothing_does_not_wait_for_replicas(two: Replicated, primary: Redis) -> None:
    async with client_of(primary, 2) as locks, LockClient(primary) as other, other.lock(NAME), paused(*two.replicas):
        assert await locks.lock(NAME).try_lock() is None
        assert await locks.lock(NAME).locked()


async def test_a_server_without_wait_is_refused_with_words(server: Server) -> None:
    with Server(server._executable, config='rename-command WAIT ""\n') as bare:
        redis = Redis.from_url(bare.url)
        async with client_of(redis, 1) as locks:
            with pytest.raises(BackendError, match=r"does not say what its replicas have.*WAIT"):
                await locks.lock(NAME).acquire()
            await freed(redis, NAME)
        await redis.aclose()


async def test_all_needs_to_know_how_many_there_are(server: Server) -> None:
    with Server(server._executable, config='rename-command ROLE ""\n') as bare:
        redis = Redis.from_url(bare.url)
        async with client_of(redis, "all") as locks:
            with pytest.raises(BackendError, match=r"does not say what its replicas have.*ROLE"):
                await locks.lock(NAME).acquire()
            await freed(redis, NAME)
        await redis.aclose()
