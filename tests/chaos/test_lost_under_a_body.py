"""A lock that is lost at its deadline: the server has it until the body has left, or its lease ends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import (
    AsyncFairLock,
    AsyncReadLock,
    AsyncRLock,
    AsyncWriteLock,
    Lease,
    LeaseLostError,
    LockClient,
    LockConfig,
)
from tests.support.inside import hold_of
from tests.support.observe import all_parked

Lock = AsyncRLock | AsyncFairLock | AsyncReadLock | AsyncWriteLock

KEY = "job"
LEASE = 1.0
# Seconds by which the holder is told early: the loop of a busy machine lags behind by less.
DRIFT = 0.2


async def renew_it(lock: AsyncRLock, lease: Lease) -> None:
    await lease.renew()


async def nest(lock: AsyncRLock, lease: Lease) -> None:
    inner = await lock.acquire(lease=LEASE)
    await inner.release()


@pytest.mark.parametrize("then", [renew_it, nest])
async def test_a_holder_that_is_told_has_the_rest_of_its_lease_to_leave(
    locks: LockClient, redis: Redis, then: Callable[[AsyncRLock, Lease], Awaitable[None]]
) -> None:
    """The next holder gets the lock when the body has left, or when the lease ends on the server."""
    granted: list[float] = []

    async def next_one() -> None:
        async with locks.lock(KEY):
            granted.append(monotonic())

    async with LockClient(redis, config=LockConfig(drift=DRIFT)) as client:
        lock = client.lock(KEY)
        with pytest.raises(LeaseLostError):
            async with lock.hold(lease=LEASE) as lease:
                waiting = asyncio.create_task(next_one())
                await then(lock, lease)
                try:
                    await asyncio.sleep(10)
                finally:
                    await waiting
    assert granted[0] >= hold_of(lease).expires


@pytest.mark.parametrize("then", [renew_it, nest])
async def test_the_next_one_gets_the_lock_when_the_body_of_the_loser_has_left(
    locks: LockClient, redis: Redis, then: Callable[[AsyncRLock, Lease], Awaitable[None]]
) -> None:
    async def next_one() -> None:
        async with locks.lock(KEY):
            pass

    async with LockClient(redis, config=LockConfig(drift=7.5)) as client:
        lock = client.lock(KEY)
        with pytest.raises(LeaseLostError):
            async with lock.hold(lease=30) as lease:
                waiting = asyncio.create_task(next_one())
                await all_parked(locks, 1)
                await then(lock, lease)
                # As at the end of the lease, but for the margin.
                hold_of(lease).deadline = monotonic()
                assert lease.lost.is_set()
                await asyncio.sleep(0.1)
        await asyncio.wait_for(waiting, 5)


async def be_lost(lease: Lease) -> None:
    """Lose the lock, which was renewed, as at the end of its lease; the server has it for half a minute."""
    await lease.renew(30)
    hold_of(lease).deadline = monotonic()
    hold_of(lease).notice_end()


async def test_the_owner_of_a_lost_lock_gets_it_again_when_its_block_has_left(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(drift=7.5)) as client:
        lock = client.lock(KEY)
        outer = await lock.acquire(lease=30)
        with pytest.raises(LeaseLostError):
            async with lock.hold(lease=30) as lease:
                await be_lost(lease)
                await asyncio.sleep(10)
        assert not outer.given_back
        again = await lock.try_lock(5)
        assert again is not None
        assert again.token > outer.token


async def test_a_lost_lock_is_free_when_its_body_closes_the_client(locks: LockClient, redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(drift=7.5)) as client:
        with pytest.raises(LeaseLostError):
            async with client.lock(KEY).hold(lease=30) as lease:
                await be_lost(lease)
                await client.aclose()
                assert await locks.lock(KEY).try_lock(5) is not None


async def test_closing_frees_a_lost_lock_whose_body_does_not_leave_in_time(locks: LockClient, redis: Redis) -> None:
    async def work() -> None:
        async with client.lock(KEY).hold(lease=30) as lease:
            await be_lost(lease)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            told.set()
            await go_on.wait()

    told, go_on = asyncio.Event(), asyncio.Event()
    async with LockClient(redis, config=LockConfig(drift=7.5, release_timeout=1)) as client:
        working = asyncio.create_task(work())
        await told.wait()
        await client.aclose()
        assert await locks.lock(KEY).try_lock(5) is not None
        go_on.set()
        await asyncio.wait([working])
    assert isinstance(working.exception(), LeaseLostError)


async def test_closing_waits_for_the_body_of_a_lost_lock_though_its_owner_has_ended(
    locks: LockClient, redis: Redis
) -> None:
    rolled_back = False

    async def own(working: "asyncio.Future[asyncio.Task[None]]") -> None:
        lease = await client.lock(KEY).acquire(lease=30)
        task = asyncio.create_task(work(lease))
        await entered.wait()
        await be_lost(lease)
        working.set_result(task)

    async def work(lease: Lease) -> None:
        nonlocal rolled_back
        async with lease:
            entered.set()
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.3)
                rolled_back = True

    entered, working = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with LockClient(redis, config=LockConfig(drift=7.5)) as client:
        await asyncio.create_task(own(working))
        await client.aclose()
        assert rolled_back
        assert await locks.lock(KEY).try_lock(5) is not None
    with pytest.raises(LeaseLostError):
        await working.result()


async def test_another_task_of_the_owner_waits_until_the_body_of_the_loser_has_left(redis: Redis) -> None:
    acts: list[str] = []

    async def next_one() -> None:
        async with client.lock(KEY, owner="clerk"):
            acts.append("the next one has it")

    async with LockClient(redis, config=LockConfig(drift=7.5)) as client:
        with pytest.raises(LeaseLostError):
            async with client.lock(KEY, owner="clerk").hold(lease=30) as lease:
                await be_lost(lease)
                try:
                    await asyncio.sleep(60)
                finally:
                    waiting = asyncio.create_task(next_one())
                    await all_parked(client, 1)
                    acts.append("it has rolled back")
        await asyncio.wait_for(waiting, 5)
    assert acts == ["it has rolled back", "the next one has it"]


async def test_closing_waits_for_a_body_that_leaves_after_the_deadline(locks: LockClient, redis: Redis) -> None:
    """The body rolls back before its lease ends on the server."""
    acts: list[str] = []

    async def next_one() -> None:
        async with locks.lock(KEY):
            acts.append("the next one has it")

    async with LockClient(redis, config=LockConfig(drift=7.5, release_timeout=30)) as client:

        async def work() -> None:
            async with client.lock(KEY).hold(lease=30) as lease:
                await lease.renew(30)
                # As at the end of the lease, but for the margin.
                hold_of(lease).deadline = monotonic()
                with pytest.raises(LeaseLostError):
                    await client.lock(KEY).acquire()
                told.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    await all_parked(locks, 1)
                    await asyncio.sleep(0.1)
                    acts.append("it has rolled back")

        told = asyncio.Event()
        working = asyncio.create_task(work())
        await told.wait()
        waiting = asyncio.create_task(next_one())
        await client.aclose()
        await asyncio.wait([working, waiting])
    assert acts == ["it has rolled back", "the next one has it"]


async def test_closing_does_not_wait_for_the_body_of_a_lost_lock_whose_lease_has_ended(redis: Redis) -> None:
    async def work() -> None:
        async with client.lock(KEY).hold(lease=0.3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            told.set()
            await go_on.wait()

    told, go_on = asyncio.Event(), asyncio.Event()
    async with LockClient(redis, config=LockConfig(release_timeout=30)) as client:
        working = asyncio.create_task(work())
        await told.wait()
        while await redis.exists(KEY):
            await asyncio.sleep(0.01)
        await asyncio.wait_for(client.aclose(), 10)
        assert not working.done()
        go_on.set()
        await asyncio.wait([working])


async def test_a_release_in_the_body_of_a_lost_lock_frees_it_at_once(locks: LockClient, redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(drift=7.5)) as client:
        with pytest.raises(LeaseLostError):
            async with client.lock(KEY).hold(lease=30) as lease:
                await be_lost(lease)
                with pytest.raises(LeaseLostError):
                    await lease.release()
                assert await locks.lock(KEY).try_lock(5) is not None


def read_then_write(client: LockClient) -> tuple[Lock, Lock]:
    both = client.read_write_lock(KEY)
    return both.read, both.write


def plain_then_fair(client: LockClient) -> tuple[Lock, Lock]:
    return client.lock(KEY), client.fair_lock(KEY)


@pytest.mark.parametrize("kinds", [read_then_write, plain_then_fair])
async def test_a_lost_block_that_asks_for_the_other_kind_is_told_and_does_not_wait_for_itself(
    redis: Redis, kinds: Callable[[LockClient], tuple[Lock, Lock]]
) -> None:
    async with LockClient(redis, config=LockConfig(drift=7.5)) as client:
        first, other = kinds(client)
        with pytest.raises(LeaseLostError):
            async with first.hold(lease=30) as lease:
                await be_lost(lease)
                with pytest.raises(LeaseLostError):
                    await other.try_lock(10)
