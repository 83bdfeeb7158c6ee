"""Failures longer than the command timeout: `BackendError`, and nothing left behind when the server is back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from time import monotonic

import pytest
from redis import RedisError
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from aiolock import AsyncRLock, BackendError, Lease, LeaseLostError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE, RELEASE, RELEASE_CLEAN
from tests.chaos.operations import leftovers
from tests.support.calls import acquire, acquire_and_release
from tests.support.faults import Action, Request
from tests.support.inside import session_of
from tests.support.observe import all_parked, answered, freed, until
from tests.support.proxy import ALWAYS, Connection, Proxy, Rule, drop_reply, reset, script, withhold_reply
from tests.support.waiters import parked

NAME = "unanswered"
TIMEOUT = 1.5
# When the lease of the holder is over, the head of the queue asks the server.
LEASE = 3
MANY = 20
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


async def settled(redis: Redis, client: LockClient) -> None:
    await answered(client)
    assert client.statistics().held == client.statistics().parked == 0
    assert NAME.encode() not in await leftovers(redis)


async def test_an_acquire_that_never_reaches_the_server_fails_in_time_and_leaves_nothing(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    proxy.black_hole()
    started = monotonic()
    with pytest.raises(BackendError) as raised:
        await lock.acquire()
    assert TIMEOUT * 0.9 < monotonic() - started < TIMEOUT * 3
    assert isinstance(raised.value.__cause__, (RedisError, OSError, TimeoutError))
    proxy.restore()
    await settled(redis, client)


@pytest.mark.parametrize(("cancels", "expected"), [(False, BackendError), (True, asyncio.CancelledError)])
async def test_a_release_that_ends_before_its_answer_leaves_its_connection(
    proxy: Proxy, through: Redis, cancels: bool, expected: type[BaseException]
) -> None:
    """A connection is given up after a silence of a third of the command timeout, which is 10 s here."""
    config = LockConfig(command_timeout=30, release_timeout=30 if cancels else 0.1)
    async with LockClient(through, config=config) as client:
        lock = client.lock(NAME)
        lease = await lock.acquire()
        withheld = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), withhold_reply()))
        connections = set(proxy.connections)
        releasing = asyncio.create_task(lease.release())
        await withheld.caught()
        if cancels:
            releasing.cancel()
        with pytest.raises(expected):
            await releasing
        withheld.let_go()
        # The next answer comes on the same connection.
        assert not await lock.locked()
        assert proxy.connections == connections


async def test_the_cause_of_a_failure_is_an_error_of_redis_py(proxy: Proxy, lock: AsyncRLock) -> None:
    """asyncio tells redis-py of a reset connection by an error of the operating system."""
    proxy.install(Rule(script(ACQUIRE), reset(), ALWAYS))
    with pytest.raises(BackendError) as raised:
        await lock.acquire()
    assert type(raised.value.__cause__) is RedisConnectionError


@pytest.mark.parametrize("in_silence", [False, True])
async def test_an_acquire_that_was_executed_and_never_answered_is_undone(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock, in_silence: bool
) -> None:
    lost = proxy.install(Rule(script(ACQUIRE), drop_reply(reset=not in_silence), ALWAYS))
    acquiring = asyncio.create_task(acquire(lock))
    await lost.caught()
    assert await redis.exists(NAME)
    proxy.black_hole()
    with pytest.raises(BackendError):
        await acquiring
    assert await redis.exists(NAME), "the server still holds it for the caller that gave up"
    proxy.restore()
    await freed(redis, NAME)
    await settled(redis, client)


async def test_a_nested_acquire_that_was_executed_and_never_answered_is_undone(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    outer = await lock.acquire()
    proxy.install(Rule(script(ACQUIRE), drop_reply(), ALWAYS))
    with pytest.raises(BackendError):
        await lock.acquire()
    proxy.clear_rules()
    await answered(client)
    assert await lock.hold_count() == outer.holds == 1
    await outer.release()
    await settled(redis, client)


async def test_a_nested_acquire_that_was_never_answered_does_not_outlive_the_hold_that_it_was_for(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    """The server has lengthened the lease to an hour; then the clock ends the hold, and its task ends."""

    async def hold() -> None:
        await lock.acquire(lease=0.5)
        proxy.install(Rule(script(ACQUIRE), withhold_reply(), ALWAYS))
        with pytest.raises(LeaseLostError):
            await lock.acquire(lease=3600)

    await asyncio.create_task(hold())
    assert client.statistics().losses == 1
    proxy.clear_rules()
    await freed(redis, NAME)
    await settled(redis, client)
    leases = session_of(client).leases
    await until(lambda: not leases._lost)


@pytest.mark.parametrize("holds", [1, 2])
async def test_a_release_that_is_not_answered_in_time_is_sent_when_the_server_is_back(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock, holds: int
) -> None:
    leases = [await lock.acquire() for _ in range(holds)]
    proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), reset(), ALWAYS))
    started = monotonic()
    with pytest.raises(BackendError):
        await leases.pop().release()
    assert TIMEOUT * 0.9 < monotonic() - started < TIMEOUT * 3
    assert await redis.exists(NAME)
    proxy.clear_rules()
    await answered(client)
    assert await lock.hold_count() == holds - 1 == len(leases)
    for lease in leases:
        await lease.release()
    await settled(redis, client)


async def test_a_failing_release_leaves_the_next_owner_alone(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    """The server executed the release, another client took the lock, and the release is sent again and again."""
    lost = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), drop_reply(), ALWAYS))
    lease = await lock.acquire()
    releasing = asyncio.create_task(release(lease))
    await lost.caught()
    async with LockClient(redis) as other:
        theirs = await other.lock(NAME).acquire()
        with pytest.raises(BackendError):
            await releasing
        proxy.clear_rules()
        await answered(client)
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
    await until(lambda: answers(client))
    await lease.release()
    await settled(redis, client)


async def test_a_waiter_that_is_told_of_a_failure_takes_nothing_afterwards(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock
) -> None:
    async with LockClient(redis) as other:
        theirs = await other.lock(NAME).acquire()
        waiting = asyncio.create_task(acquire(lock))
        await all_parked(client, 1)
        proxy.install(Rule(script(ACQUIRE), drop_reply(), ALWAYS))
        await theirs.release()
        with pytest.raises(BackendError):
            await waiting
    proxy.clear_rules()
    await settled(redis, client)


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
        await freed(redis, NAME)
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
        own_server.resume()
        await settled(redis, client)
        assert await redis.exists(f"aiolock_token:{{{NAME}}}")


# A server is gone: all waiters for a lock learn of it together, and later waiters learn of it in time.


async def refused(proxy: Proxy) -> None:
    await proxy.cut_off()


async def silent(proxy: Proxy) -> None:
    proxy.black_hole()


each_outage = pytest.mark.parametrize("outage", [refused, silent])
Outage = Callable[[Proxy], Awaitable[None]]


async def failure(lock: AsyncRLock) -> tuple[BackendError, float]:
    """The error with which an acquire fails, and the time."""
    with pytest.raises(BackendError) as raised:
        await lock.acquire()
    return raised.value, monotonic()


async def answers(client: LockClient) -> bool:
    """Whether the client knows that the server is back: until then a call waits for one attempt only."""
    with suppress(BackendError):
        await client.ping()
        return True
    return False


@each_outage
async def test_all_waiters_learn_together_that_the_server_is_gone_and_get_the_lock_when_it_is_back(
    redis: Redis, proxy: Proxy, locks: LockClient, client: LockClient, outage: Outage
) -> None:
    lock = client.lock(NAME)
    assert not await lock.locked()
    await locks.lock(NAME).acquire(lease=LEASE)
    failing = [asyncio.create_task(failure(lock)) for _ in range(MANY)]
    await all_parked(client, MANY)
    gone = monotonic()
    await outage(proxy)
    await asyncio.wait(failing, timeout=LEASE + TIMEOUT + 5)
    errors, ends = zip(*(task.result() for task in failing), strict=True)
    assert max(ends) - min(ends) < TIMEOUT / 2
    assert max(ends) - gone < LEASE + TIMEOUT * 3
    assert len(set(map(id, errors))) == MANY, "each waiter has an error of its own"
    assert len({id(error.__cause__) for error in errors}) == 1
    assert errors[0].__cause__ is not None
    assert len({str(error) for error in errors}) == 1
    assert client.statistics().parked == 0
    await failure(lock)
    await proxy.heal()
    await until(lambda: answers(client))
    tasks = [asyncio.create_task(acquire_and_release(lock)) for _ in range(MANY)]
    await asyncio.wait_for(asyncio.gather(*tasks), 5)
    assert not await lock.locked()
    await settled(redis, client)


@each_outage
async def test_a_call_during_an_outage_does_not_wait_behind_earlier_calls(
    proxy: Proxy, locks: LockClient, client: LockClient, outage: Outage
) -> None:
    lock = client.lock(NAME)
    async with parked(client, locks, NAME, MANY, lease=LEASE) as (_, waiters):
        await outage(proxy)
        await until(lambda: client.statistics().pending > 0)
        # The first call comes while others wait; the five have nobody before them.
        for comers in (1, 5):
            started = monotonic()
            ends = await asyncio.gather(*(asyncio.create_task(failure(lock)) for _ in range(comers)))
            assert max(end for _, end in ends) - started < TIMEOUT * 3
        assert {type(task.exception()) for task in waiters.tasks} == {BackendError}
    await proxy.heal()


class _SayLoading(Action):
    async def on_reply(self, link: Connection, rule: Rule, request: Request, reply: bytes) -> None:
        link.answer(b"-LOADING Redis is loading the dataset in memory\r\n")
        rule.note(request)


async def test_a_reply_after_a_refusal_of_the_connection_is_not_taken_for_the_refused_calls_answer(
    redis: Redis, proxy: Proxy, client: LockClient, lock: AsyncRLock, other: LockClient
) -> None:
    taken, free = client.lock("taken"), client.lock("free")
    theirs = await other.lock("taken").acquire()
    refused = proxy.install(Rule(script(ACQUIRE), _SayLoading()))

    async def attempt(lock: AsyncRLock) -> Lease | None:
        lease = await lock.try_lock()
        if lease is not None:
            await lease.release()
        return lease

    leases = await asyncio.gather(attempt(taken), attempt(free))
    assert refused.requests
    assert leases[0] is None
    assert leases[1] is not None
    await theirs.release()
    await settled(redis, client)
