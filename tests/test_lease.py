"""A lease: what it says, how it is given back, renewed and lost, and how watched and fixed ones of one owner mix."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, Lease, LeaseLostError, LockClient, LockConfig, LockEvent, Lost, NotHeldError
from tests.support.holding import seize
from tests.support.inside import session_of
from tests.support.observe import answered, until


async def test_a_lease_describes_its_hold(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock("a")
    outer = await lock.acquire(lease=10)
    inner = await lock.acquire(lease=20)
    assert (outer.name, outer.lease, inner.lease) == ("a", 10, 20)
    assert (outer.watched, inner.given_back) == (False, False)
    assert outer.token == inner.token == int(await redis.hget("a", "aiolock:token") or 0)
    assert 19 < outer.remaining < await redis.pttl("a") / 1000 <= 20, "the lease is over before the key is"
    assert (outer.holds, inner.holds) == (2, 2)
    outer.check()
    assert not outer.lost.is_set()
    await inner.release()
    assert (outer.holds, inner.holds, inner.remaining) == (1, 0, 0)
    with pytest.raises(NotHeldError):
        inner.check()
    await outer.release()
    assert (outer.holds, outer.remaining, outer.given_back) == (0, 0, True)


async def test_waiting_for_the_loss_of_a_released_lease_goes_on_for_ever(locks: LockClient) -> None:
    lease = await locks.lock("a").acquire(lease=0.6)
    await lease.release()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.8):
            await lease.lost
    assert not lease.lost.is_set()


async def test_several_tasks_may_wait_for_the_loss(locks: LockClient) -> None:
    lock = locks.lock("a")
    lease = await lock.acquire()

    async def wait() -> str:
        return await lease.lost

    waiting = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    await lock.force_release()
    assert await asyncio.gather(*waiting) == ["forced"] * 3
    assert await lease.lost == "forced", "a loss that is long known has the same reason"
    with pytest.raises(LeaseLostError) as lost:
        lease.check()
    assert (lost.value.name, lost.value.token, lost.value.reason) == ("a", lease.token, "forced")


@pytest.mark.parametrize("forget", [True, False])
async def test_acquire_after_a_loss_is_a_fresh_grant_with_a_greater_token(
    redis: Redis, locks: LockClient, forget: bool
) -> None:
    lock = locks.lock("a")
    lost = [await lock.acquire(), await lock.acquire()]
    await redis.delete(*(["a", "aiolock_token:{a}"] if forget else ["a"]))
    with pytest.raises(LeaseLostError):
        await lost[1].release()
    fresh = await lock.acquire()
    assert fresh.token > lost[0].token
    assert (fresh.holds, await lock.hold_count()) == (1, 1)
    with pytest.raises(LeaseLostError):
        lost[0].check()
    with pytest.raises(LeaseLostError):
        await lost[0].release()
    fresh.check()
    assert await lock.held(), "the late release was that of the lost hold"
    await lock.release()
    assert not await lock.locked()


async def test_a_holder_learns_that_another_task_of_its_client_was_granted_the_lock(
    redis: Redis, locks: LockClient
) -> None:
    lost = await locks.lock("a", owner="first").acquire()
    await redis.delete("a")
    heir = await locks.lock("a", owner="second").try_lock()
    assert lost.lost.is_set()
    assert await lost.lost == "taken"
    with pytest.raises(LeaseLostError):
        await lost.release()
    assert heir is not None
    heir.check()
    assert await locks.lock("a", owner="second").held()


async def test_a_lease_that_its_scope_took_back_was_lost(redis: Redis, locks: LockClient) -> None:
    """A task that got the lease, such as a background task, should hear of the loss, and of no mistake of its own."""
    with pytest.raises(LeaseLostError):
        async with locks.lock("a") as lease:
            await redis.delete("a")
            await lease.renew()
    assert lease.given_back
    with pytest.raises(LeaseLostError) as lost:
        lease.check()
    assert (lost.value.token, lost.value.reason) == (lease.token, "expired")
    with pytest.raises(LeaseLostError):
        await lease.renew()
    assert repr(lease).endswith(", lost>")
    with pytest.raises(NotHeldError):
        await lease.release()


async def test_a_nested_acquire_learns_of_the_loss_and_takes_nothing(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock("a")
    lease = await lock.acquire()
    await redis.delete("a")
    with pytest.raises(LeaseLostError) as lost:
        await lock.acquire()
    assert lost.value.reason == "expired"
    assert lease.lost.is_set()
    assert not await redis.exists("a")
    with pytest.raises(LeaseLostError):
        await lock.release()
    with pytest.raises(NotHeldError):
        await lock.release()


async def test_a_release_that_leaves_holds_learns_of_the_loss(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock("a")
    outer, inner = await lock.acquire(), await lock.acquire()
    await seize(redis, "a")
    with pytest.raises(LeaseLostError) as lost:
        await inner.release()
    assert lost.value.reason == "taken"
    assert outer.lost.is_set()
    assert await redis.exists("a")
    with pytest.raises(LeaseLostError):
        await outer.release()


@pytest.mark.parametrize("seconds", [0.001, 20])
async def test_a_renewal_of_a_lock_that_another_took_raises_and_leaves_it_alone(
    redis: Redis, locks: LockClient, seconds: float
) -> None:
    lease = await locks.lock("a").acquire(lease=20)
    await seize(redis, "a")
    await redis.pexpire("a", 5000)
    with pytest.raises(LeaseLostError) as lost:
        await lease.renew(seconds)
    assert (lost.value.name, lost.value.token, lost.value.reason) == ("a", lease.token, "taken")
    assert await redis.pttl("a") <= 5000


async def test_the_end_of_a_lease_is_no_failure_of_the_server_after_a_cancelled_renewal(redis: Redis) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        lease = await locks.lock("a").acquire(lease=1.5)
        renewing = asyncio.create_task(lease.renew(1.5))
        await asyncio.sleep(0)
        assert locks.statistics().pending
        renewing.cancel()
        await answered(locks)
        assert await lease.lost == "expired"
        [lost] = [event for event in events if isinstance(event, Lost)]
        assert lost.ran_out


async def test_a_block_in_another_task_keeps_the_lock_until_it_has_cleaned_up_when_the_owner_ends(
    lock: AsyncRLock, other: LockClient
) -> None:
    async def use(lease: Lease) -> list[bool]:
        held: list[bool] = []
        with pytest.raises(LeaseLostError):
            async with lease:
                try:
                    await asyncio.Event().wait()
                finally:
                    held += [await other.lock(lock.name).locked() for _ in range(5)]
        return held

    async def acquire() -> asyncio.Task[list[bool]]:
        using = asyncio.create_task(use(await lock.acquire()))
        await until(lambda: lock.statistics().held == 1)
        await asyncio.sleep(0)
        return using

    assert all(await (await asyncio.create_task(acquire())))
    async with asyncio.timeout(30), other.lock(lock.name):
        pass


async def test_a_lock_that_is_lost_already_is_not_lost_again_when_its_client_is_closed(redis: Redis) -> None:
    """Its owner has ended, and another task rolls back under it."""
    events: list[LockEvent] = []
    locks = LockClient(redis, config=LockConfig(on_event=events.append))
    rolls_back = asyncio.Event()

    async def use(lease: Lease) -> None:
        async with lease:
            try:
                await asyncio.Event().wait()
            finally:
                rolls_back.set()
                # The close has told all holders by then.
                await until(lambda: session_of(locks).leases.patient_until is not None)

    async def acquire() -> asyncio.Task[None]:
        using = asyncio.create_task(use(await locks.lock("a").acquire()))
        await asyncio.sleep(0)
        return using

    using = await asyncio.create_task(acquire())
    await rolls_back.wait()
    await locks.aclose()
    with pytest.raises(LeaseLostError) as lost:
        await using
    assert lost.value.reason == "orphaned"
    assert [event.reason for event in events if isinstance(event, Lost)] == ["orphaned"]
    assert locks.statistics().losses == 1


async def test_it_may_be_released_by_another_task(lock: AsyncRLock) -> None:
    lease = await lock.acquire()
    await asyncio.create_task(lease.release())
    assert not await lock.locked()


async def test_each_lease_gives_back_one_hold_in_any_order(lock: AsyncRLock) -> None:
    first, second, third = [await lock.acquire() for _ in range(3)]
    await second.release()
    assert await lock.hold_count() == first.holds == third.holds == 2
    await first.release()
    assert await lock.held()
    await lock.release()
    assert third.given_back
    assert not await lock.locked()


async def test_lock_release_gives_back_the_last_acquire(lock: AsyncRLock) -> None:
    outer, inner = await lock.acquire(), await lock.acquire()
    await lock.release()
    assert (outer.given_back, inner.given_back) == (False, True)
    await lock.release()


@pytest.mark.parametrize("inner", [None, 1])
@pytest.mark.parametrize("outer", [None, 60])
async def test_a_nested_acquire_never_shortens_the_outer_lease(
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


QUICK = LockConfig(lease=0.6, renew_interval=0.05)


async def test_a_watched_lease_below_several_fixed_ones_is_renewed_when_one_of_them_is_released(redis: Redis) -> None:
    async with LockClient(redis, config=QUICK) as locks:
        lock = locks.lock("orders")
        watched, _, last = await lock.acquire(), await lock.acquire(lease=30), await lock.acquire(lease=30)
        await last.release()
        renewals = lock.statistics().renewals
        await until(lambda: lock.statistics().renewals >= renewals + 2)
        watched.check()


async def test_a_fixed_lease_ends_when_it_ends(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(drift=0.5)) as locks:
        lock = locks.lock("orders")
        lease = await lock.acquire(lease=2)
        async with asyncio.timeout(10):
            assert await lease.lost == "expired"
        assert (lease.holds, lease.remaining) == (0, 0.0)
        assert await redis.exists("orders") == 1, "the holder is told before the key is gone"
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


async def test_renew_without_a_duration_asks_for_as_long_as_the_acquire_did(lock: AsyncRLock, redis: Redis) -> None:
    lease = await lock.acquire(lease=5)
    await lease.renew(20)
    await lease.renew()
    assert await redis.pttl("orders") > 18_000, "a renewal never shortens the lease"
    await redis.pexpire("orders", 1_000)
    await lease.renew()
    assert 4_000 < await redis.pttl("orders") <= 5_000, "the lease is as long as the acquire asked for"
    await lease.release()


async def test_a_loss_is_no_condition_which_would_always_be_true(locks: LockClient) -> None:
    async with locks.lock("orders") as lease, locks.multi("invoices", "letters") as leases:
        for loss in (lease.lost, leases.lost):
            assert not loss.is_set()
            with pytest.raises(TypeError, match=r"call its is_set\(\)"):
                bool(loss)
