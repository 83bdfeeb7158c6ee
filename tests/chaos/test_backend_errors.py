"""Failures longer than the command timeout: `BackendError`, and nothing left behind when the server is back."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import monotonic

import pytest
from redis import RedisError
from redis.asyncio import Redis

from aiolock import AsyncRLock, BackendError, Lease, LeaseLostError, LockClient, LockConfig
from aiolock._scripts import ACQUIRE, RELEASE
from aiolock._server import Server
from tests.chaos.operations import leftovers
from tests.support.observe import until
from tests.support.proxy import ALWAYS, Proxy, Rule, drop_reply, reset, script, withhold_reply

NAME = "unanswered"
TIMEOUT = 0.6
CONFIG = LockConfig(command_timeout=TIMEOUT, release_timeout=TIMEOUT)


@pytest.fixture
async def client(through: Redis) -> AsyncIterator[LockClient]:
    async with LockClient(through, config=CONFIG) as running:
        yield running


@pytest.fixture
async def lock(client: LockClient) -> AsyncRLock:
    """A lock of a client that is connected."""
    lock = client.lock(NAME)
    assert not await lock.locked()
    return lock


async def free(redis: Redis) -> bool:
    return not await redis.exists(NAME)


async def settled(redis: Redis, client: LockClient) -> None:
    await until(lambda: client.statistics().pending == 0)
    assert client.statistics().held == client.statistics().parked == 0
    assert NAME.encode() not in await leftovers(redis)


async def test_an_acquire_that_never_reaches_the_server_fails_in_time_and_leaves_nothing(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    proxy.black_hole()
    started = monotonic()
    with pytest.raises(BackendError) as raised:
        await lock.acquire()
    assert TIMEOUT * 0.9 < monotonic() - started < TIMEOUT + 1
    assert isinstance(raised.value.__cause__, (RedisError, OSError, TimeoutError))
    proxy.restore()  # Its copies arrive now.
    await settled(redis, client)


@pytest.mark.parametrize("in_silence", [False, True])
async def test_an_acquire_that_was_executed_and_never_answered_is_undone(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock, in_silence: bool
) -> None:
    lost = proxy.install(Rule(script(ACQUIRE), drop_reply(reset=not in_silence), ALWAYS))
    acquiring = asyncio.create_task(acquired(lock))
    await lost.caught()
    assert not await free(redis)
    proxy.black_hole()
    with pytest.raises(BackendError):
        await acquiring
    assert not await free(redis), "the server still holds it for the caller that gave up"
    proxy.restore()
    await until(lambda: free(redis))
    await settled(redis, client)


async def test_a_nested_acquire_that_was_executed_and_never_answered_is_undone(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    outer = await lock.acquire()
    proxy.install(Rule(script(ACQUIRE), drop_reply(), ALWAYS))
    with pytest.raises(BackendError):
        await lock.acquire()
    proxy.clear_rules()
    await until(lambda: client.statistics().pending == 0)
    assert await lock.hold_count() == outer.holds == 1
    await outer.release()
    await settled(redis, client)


async def test_a_nested_acquire_that_was_never_answered_does_not_outlive_the_hold_that_it_was_for(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    """The server has lengthened the lease to an hour; then the hold is lost by the clock, and its task ends."""

    async def hold() -> None:
        await lock.acquire(lease=0.5)
        proxy.install(Rule(script(ACQUIRE), withhold_reply(), ALWAYS))
        with pytest.raises(LeaseLostError):
            await lock.acquire(lease=3600)

    await asyncio.create_task(hold())
    assert client.statistics().losses == 1
    proxy.clear_rules()
    await until(lambda: free(redis))
    await settled(redis, client)
    holds = client._runtime.core().keeper.holds
    await until(lambda: not holds._lost)  # Nobody is left to ask for it.


@pytest.mark.parametrize("holds", [1, 2])
async def test_a_release_that_is_not_answered_in_time_is_sent_when_the_server_is_back(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock, holds: int
) -> None:
    leases = [await lock.acquire() for _ in range(holds)]
    proxy.install(Rule(script(RELEASE), reset(), ALWAYS))
    started = monotonic()
    with pytest.raises(BackendError):
        await leases.pop().release()
    assert TIMEOUT * 0.9 < monotonic() - started < TIMEOUT + 1
    assert not await free(redis)
    proxy.clear_rules()
    await until(lambda: client.statistics().pending == 0)
    assert await lock.hold_count() == holds - 1 == len(leases)
    for lease in leases:
        await lease.release()
    await settled(redis, client)


async def test_a_failing_release_leaves_the_next_owner_alone(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    """It was executed, another took the lock, and the release is sent again and again."""
    lost = proxy.install(Rule(script(RELEASE), drop_reply(), ALWAYS))
    lease = await lock.acquire()
    releasing = asyncio.create_task(release(lease))
    await lost.caught()
    async with LockClient(redis) as other:
        theirs = await other.lock(NAME).acquire()
        with pytest.raises(BackendError):
            await releasing
        proxy.clear_rules()
        await until(lambda: client.statistics().pending == 0)
        assert await redis.hget(NAME, "aiolock:token") == str(theirs.token).encode()
        await theirs.release()
    await settled(redis, client)


async def test_a_renewal_that_fails_leaves_the_lease_as_long_as_it_was(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    lease = await lock.acquire(lease=20)
    proxy.black_hole()
    with pytest.raises(BackendError):
        await lease.renew(60)
    assert lease.remaining < 20
    assert not lease.lost.is_set()
    proxy.restore()
    await lease.release()
    await settled(redis, client)


async def test_a_waiter_that_is_told_of_a_failure_takes_nothing_afterwards(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    async with LockClient(redis) as other:
        theirs = await other.lock(NAME).acquire()
        waiting = asyncio.create_task(acquired(lock))
        await until(lambda: lock.statistics().parked == 1 and client.statistics().pending == 0)
        proxy.install(Rule(script(ACQUIRE), drop_reply(), ALWAYS))
        await theirs.release()
        with pytest.raises(BackendError):
            await waiting
    proxy.clear_rules()
    await settled(redis, client)


async def acquired(lock: AsyncRLock) -> Lease:
    return await lock.acquire()


async def release(lease: Lease) -> None:
    await lease.release()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may stop; it keeps its keys."""
    with Server(append_only=True) as running:
        yield running


async def test_a_release_outlives_a_restart_of_the_server(own_server: Server) -> None:
    async with (
        LockClient.from_url(own_server.url, config=CONFIG) as client,
        Redis.from_url(own_server.url) as redis,
    ):
        lease = await client.lock(NAME).acquire()
        own_server.kill()
        with pytest.raises(BackendError):
            await lease.release()
        own_server.start()
        await until(lambda: free(redis))
        await settled(redis, client)


async def test_an_acquire_that_a_frozen_server_executes_late_is_undone(own_server: Server) -> None:
    async with (
        LockClient.from_url(own_server.url, config=CONFIG) as client,
        Redis.from_url(own_server.url) as redis,
    ):
        lock = client.lock(NAME)
        assert not await lock.locked()
        own_server.pause()
        with pytest.raises(BackendError):
            await lock.acquire()
        own_server.resume()  # It executes what waits in its sockets.
        await settled(redis, client)
        assert await redis.exists(f"aiolock_token:{{{NAME}}}")
