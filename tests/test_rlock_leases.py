"""Lease: what it tells, how it is given back and renewed, and how watched and fixed leases of one owner mix."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LeaseLostError, LockClient, LockConfig, NotHeldError
from tests.support.observe import until


@pytest.fixture
def lock(locks: LockClient) -> AsyncRLock:
    return locks.lock("orders")


async def test_it_tells_what_was_granted(lock: AsyncRLock, redis: Redis) -> None:
    lease = await lock.acquire(lease=10)
    assert (lease.name, lease.lease, lease.holds, lease.watched, lease.given_back) == ("orders", 10.0, 1, False, False)
    assert lease.token == int(await redis.hget("orders", "aiolock:token") or 0)
    assert 9 < lease.remaining < await redis.pttl("orders") / 1000 <= 10, "over before the key is"
    assert not lease.lost.is_set()
    lease.check()
    await lease.release()
    assert (lease.holds, lease.remaining, lease.given_back) == (0, 0.0, True)


async def test_a_lease_given_back_is_neither_lost_nor_held(lock: AsyncRLock) -> None:
    lease = await lock.acquire()
    await lease.release()
    assert not lease.lost.is_set()
    with pytest.raises(NotHeldError):
        lease.check()
    with pytest.raises(NotHeldError):
        await lease.renew()
    with pytest.raises(NotHeldError):
        await lease.release()


async def test_tokens_grow_from_grant_to_grant(lock: AsyncRLock) -> None:
    tokens = []
    for _ in range(5):
        async with lock as lease:
            tokens.append(lease.token)
    assert tokens == sorted(set(tokens))


async def test_it_may_be_released_by_another_task(lock: AsyncRLock) -> None:
    lease = await lock.acquire()
    await asyncio.create_task(lease.release())
    assert not await lock.locked()


async def test_a_named_owner_acquires_in_one_task_and_releases_in_another(locks: LockClient) -> None:
    job = locks.lock("orders", owner="job-17")

    async def start() -> int:
        return (await job.acquire()).token

    async def again() -> int:
        return (await locks.lock("orders", owner="job-17").acquire()).token

    token = await asyncio.create_task(start())
    assert await job.held()
    assert await asyncio.create_task(again()) == token, "whoever uses the name acts as the owner"
    assert await job.hold_count() == 2
    assert await locks.lock("orders", owner="job-18").try_lock() is None
    assert await locks.lock("orders").try_lock() is None
    await asyncio.create_task(job.release())
    await job.release()
    assert not await job.locked()


async def test_each_lease_gives_back_one_hold_in_any_order(lock: AsyncRLock) -> None:
    first, second, third = [await lock.acquire() for _ in range(3)]
    await second.release()
    assert await lock.hold_count() == first.holds == third.holds == 2
    await first.release()
    assert await lock.held()
    await lock.release()
    assert third.given_back
    assert not await lock.locked()


async def test_lock_release_gives_back_what_was_acquired_last(lock: AsyncRLock) -> None:
    outer, inner = await lock.acquire(), await lock.acquire()
    await lock.release()
    assert (outer.given_back, inner.given_back) == (False, True)
    await lock.release()


@pytest.mark.parametrize("inner", [None, 1])
@pytest.mark.parametrize("outer", [None, 60])
async def test_a_nested_acquire_never_shortens_what_the_outer_one_was_promised(
    lock: AsyncRLock, redis: Redis, outer: float | None, inner: float | None
) -> None:
    lease = await lock.acquire(lease=outer)
    promised = lease.remaining
    nested = await lock.acquire(lease=inner)
    assert lease.remaining > promised - 1
    await nested.release()
    assert lease.remaining > promised - 1
    assert await redis.pttl("orders") > (promised - 1) * 1_000
    await lease.release()


async def test_a_nested_acquire_lengthens(lock: AsyncRLock, redis: Redis) -> None:
    lease = await lock.acquire(lease=5)
    nested = await lock.acquire(lease=50)
    assert await redis.pttl("orders") > 49_000
    assert lease.remaining > 48
    await nested.release()
    await lease.release()


QUICK = LockConfig(lease=0.6, renew_interval=0.05)


async def test_the_watchdog_runs_as_long_as_any_lease_asks_for_it(redis: Redis) -> None:
    async with LockClient(redis, config=QUICK) as locks:
        lock = locks.lock("orders")
        fixed = await lock.acquire(lease=30)
        watched = await lock.acquire()
        await until(lambda: lock.statistics().renewals >= 2)
        assert await redis.pttl("orders") > 28_000, "a renewal shortens nothing"
        await watched.release()
        await until(lambda: locks.statistics().pending == 0)
        renewals = locks.statistics().renewals
        await asyncio.sleep(0.3)
        assert locks.statistics().renewals == renewals, "a fixed lease is never renewed"
        assert await lock.held()
        await fixed.release()


async def test_a_watched_lease_around_a_fixed_one_is_renewed_throughout(redis: Redis) -> None:
    async with LockClient(redis, config=QUICK) as locks:
        lock = locks.lock("orders")
        async with lock as watched:
            async with lock.hold(lease=0.1) as fixed:
                await asyncio.sleep(1)
                fixed.check()
            watched.check()
            assert await lock.hold_count() == 1


async def test_a_fixed_lease_ends_when_it_ends(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock("orders")
    lease = await lock.acquire(lease=0.2)
    async with asyncio.timeout(5):
        assert await lease.lost == "expired"
    assert (lease.holds, lease.remaining) == (0, 0.0)
    assert await redis.exists("orders") == 1, "told before the key is gone"
    assert repr(lease.lost) == "<Loss expired>"
    with pytest.raises(LeaseLostError, match="its lease ended"):
        lease.check()
    with pytest.raises(LeaseLostError):
        await lease.renew()
    with pytest.raises(LeaseLostError):
        await lock.release()
    with pytest.raises(NotHeldError):
        await lock.release()
    assert locks.statistics().losses == 1


async def test_renew_lets_a_fixed_lease_live_longer(lock: AsyncRLock, redis: Redis) -> None:
    lease = await lock.acquire(lease=5)
    await lease.renew(20)
    assert 19_000 < await redis.pttl("orders") <= 20_000
    assert 18 < lease.remaining < 20
    await lease.renew()
    assert await redis.pttl("orders") > 18_000, "never shorter"
    await redis.pexpire("orders", 1_000)
    await lease.renew()
    assert 4_000 < await redis.pttl("orders") <= 5_000, "as long as it was asked for"
    await lease.release()


async def test_renew_of_a_lock_that_is_gone_revives_nothing(lock: AsyncRLock, redis: Redis) -> None:
    lease = await lock.acquire()
    await redis.delete("orders")
    with pytest.raises(LeaseLostError) as caught:
        await lease.renew()
    assert caught.value.reason == "expired"
    assert await redis.exists("orders") == 0
    assert lease.lost.is_set()


async def test_lost_can_be_awaited_by_many(lock: AsyncRLock) -> None:
    async def lost() -> str:
        return await lease.lost

    lease = await lock.acquire()
    waiting = [asyncio.create_task(lost()) for _ in range(3)]
    await asyncio.sleep(0)
    await lock.force_release()
    assert await asyncio.gather(*waiting) == ["forced"] * 3
    with pytest.raises(LeaseLostError) as caught:
        lease.check()
    assert (caught.value.name, caught.value.token, caught.value.reason) == ("orders", lease.token, "forced")


async def test_a_release_after_the_loss_frees_nobody_elses_lock(lock: AsyncRLock, redis: Redis) -> None:
    lease = await lock.acquire()
    async with LockClient(redis) as others:
        await redis.delete("orders")
        async with others.lock("orders") as theirs:
            with pytest.raises(LeaseLostError) as caught:
                await lock.release()
            assert caught.value.reason == "taken"
            assert theirs.token > lease.token
            assert await others.lock("orders").held()


async def test_every_nested_lease_is_lost_together_and_each_is_given_back_once(lock: AsyncRLock, redis: Redis) -> None:
    leases = [await lock.acquire() for _ in range(3)]
    await redis.delete("orders")
    for lease in leases:
        with pytest.raises(LeaseLostError):
            await lease.release()
    with pytest.raises(NotHeldError):
        await lock.release()
    assert await lock.try_lock() is not None, "the owner starts anew"
    await lock.release()


async def test_an_owner_that_lost_it_cannot_nest(lock: AsyncRLock, redis: Redis) -> None:
    await lock.acquire()
    await redis.delete("orders")
    with pytest.raises(LeaseLostError):
        await lock.acquire()
    assert await redis.exists("orders") == 0
