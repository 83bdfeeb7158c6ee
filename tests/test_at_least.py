"""`hold(at_least=)`: a lock is kept for a time after a short body, and no task waits for the end of that time."""

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from time import monotonic
from typing import cast

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, BackendError, LeaseLostError, LockClient, LockConfig, NotHeldError
from aiolock._scripts import ACQUIRE, RELEASE_LATER
from aiolock.testing import failing_commands, lose
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, drop_reply, hold, script

LONG = 60.0


async def kept(lock: AsyncRLock, at_least: float = LONG) -> None:
    async with lock.hold(at_least=at_least):
        pass


async def left(redis: Redis, name: str = "orders") -> float:
    return float(await redis.pttl(name)) / 1000


async def fields(redis: Redis, name: str = "orders") -> dict[bytes, bytes]:
    return cast("dict[bytes, bytes]", await redis.hgetall(name))


async def test_the_lock_is_kept_after_the_body_without_a_wait(lock: AsyncRLock, redis: Redis) -> None:
    started = monotonic()
    await kept(lock)
    assert monotonic() - started < LONG / 2
    assert LONG - 30 < await left(redis) <= LONG
    assert await lock.locked()


async def test_a_kept_lock_has_no_owner_and_its_former_owner_waits_like_others(
    lock: AsyncRLock, other: LockClient, redis: Redis, locks: LockClient
) -> None:
    await kept(lock)
    assert not await lock.held()
    for each in (lock, other.lock("orders")):
        assert await each.try_lock() is None
        with pytest.raises(NotHeldError):
            await each.release()
    assert locks.statistics().held == 0
    holder = await other.lock("orders").holder()
    assert holder is not None
    assert (holder.owner, holder.holds) == ("kept", 1)
    assert await fields(redis) == {f"{holder.client}:kept".encode(): b"1"}


@pytest.mark.parametrize("near", [True, False])
async def test_a_waiter_learns_when_it_ends_and_gets_it_then(locks: LockClient, other: LockClient, near: bool) -> None:
    lock = locks.lock("orders")

    async def wait(client: LockClient) -> float:
        async with client.lock("orders"):
            return monotonic()

    # The lease is half a minute: without a message the waiters would wait for its end.
    async with lock.hold(at_least=1):
        granted = monotonic()
        waiting = [asyncio.create_task(wait(locks if near else other)) for _ in range(2)]
        await until(lambda: (locks if near else other).statistics().parked == 2)
    first = min(await asyncio.gather(*waiting))
    assert 1 - 0.01 <= first - granted < 15


@pytest.mark.parametrize("kind", ["lock", "fair_lock"])
async def test_a_try_keeps_it_after_its_release(locks: LockClient, other: LockClient, redis: Redis, kind: str) -> None:
    lock: AsyncRLock = getattr(locks, kind)("orders")
    assert await lock.try_lock(at_least=LONG)
    await lock.release()
    assert LONG - 30 < await left(redis) <= LONG
    assert await other.lock("orders").try_lock() is None
    with pytest.raises(ValueError, match="at_least must be no longer than the lease"):
        await lock.try_lock(0, 1, at_least=2)
    with pytest.raises(TypeError, match="at_least"):
        await lock.try_lock(at_least="1")  # type: ignore[arg-type]


async def test_a_body_that_takes_longer_is_followed_at_once(lock: AsyncRLock, redis: Redis) -> None:
    async with lock.hold(at_least=0.02):
        await asyncio.sleep(0.05)
    assert not await redis.exists("orders")


async def test_the_lease_is_as_long_so_that_it_is_kept_when_the_process_dies(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=5)) as client, client.lock("orders").hold(at_least=LONG) as it:
        assert LONG - 30 < await left(redis) <= LONG
        assert it.lease == 5
        await it.renew()
        assert await left(redis) > LONG - 30


@pytest.mark.parametrize("first", [LONG, 2 * LONG, None])
async def test_the_longest_of_nested_holds_counts(lock: AsyncRLock, redis: Redis, first: float | None) -> None:
    async with lock.hold(at_least=first):
        async with lock.hold(at_least=2 * LONG):
            pass
        assert await lock.held()
        await kept(lock, 1)
        assert await left(redis) > 1.5 * LONG
    assert not await lock.held()
    assert 1.5 * LONG < await left(redis) <= 2 * LONG


async def test_a_hold_that_does_not_ask_for_it_is_not_kept(lock: AsyncRLock, redis: Redis) -> None:
    await kept(lock, 0.02)
    async with lock.hold(wait=15):
        pass
    assert not await redis.exists("orders")


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
async def test_a_body_that_raises_keeps_it_too(lock: AsyncRLock, redis: Redis, error: type[BaseException]) -> None:
    async def fail() -> None:
        async with lock.hold(at_least=LONG):
            raise error

    await asyncio.gather(asyncio.create_task(fail()), return_exceptions=True)
    assert await left(redis) > LONG - 30


async def test_closing_the_client_keeps_it(redis: Redis) -> None:
    client = LockClient(redis)
    entered = asyncio.Event()

    async def work() -> None:
        async with client.lock("orders").hold(at_least=LONG):
            entered.set()
            await asyncio.sleep(LONG)

    task = asyncio.create_task(work())
    await entered.wait()
    await client.aclose()
    with pytest.raises(LeaseLostError):
        await task
    assert LONG - 30 < await left(redis) <= LONG
    assert not any(b":kept" not in field for field in await fields(redis))


async def test_a_lock_that_was_lost_is_not_kept(lock: AsyncRLock, locks: LockClient, redis: Redis) -> None:
    with pytest.raises(LeaseLostError):
        async with lock.hold(at_least=LONG):
            await lose(locks, "orders")
            await asyncio.sleep(LONG)
    await answered(locks)
    assert not await redis.exists("orders")


async def test_an_acquire_that_is_given_up_keeps_nothing(proxy: Proxy, through: Redis, redis: Redis) -> None:
    async with LockClient(through) as client:
        await client.ping()
        late = proxy.install(Rule(script(ACQUIRE), hold(reset=False)))
        task = asyncio.create_task(kept(client.lock("orders")))
        await late.caught()
        task.cancel()
        await asyncio.wait([task])
        proxy.reset_all()
        await answered(client, within=20)
        await late.deliver()
    assert not await redis.exists("orders")


async def test_force_release_frees_it(lock: AsyncRLock, redis: Redis) -> None:
    await kept(lock)
    assert await lock.force_release()
    assert await lock.try_lock() is not None
    await lock.release()


async def test_a_release_of_a_lock_that_is_only_kept_says_for_how_long_and_how_to_free_it(lock: AsyncRLock) -> None:
    await kept(lock)
    with pytest.raises(NotHeldError, match=r"given back, and `at_least` keeps it for .* s more. `force_release\(\)`"):
        await lock.release()


async def test_a_release_with_a_lost_reply_keeps_the_lock_once(proxy: Proxy, through: Redis, redis: Redis) -> None:
    async with LockClient(through) as client:
        proxy.install(Rule(script(RELEASE_LATER), drop_reply()))
        await kept(client.lock("orders"))
        assert len([each for each in proxy.requests if script(RELEASE_LATER)(each)]) == 2
        assert LONG - 30 < await left(redis) <= LONG


async def test_a_release_that_comes_late_changes_nothing(proxy: Proxy, through: Redis, redis: Redis) -> None:
    async with LockClient(through) as client:
        rule = proxy.install(Rule(script(RELEASE_LATER), hold()))
        await kept(client.lock("orders"))
        await redis.pexpire("orders", 5000)
        before = await fields(redis)
        await rule.deliver()
        assert (await fields(redis), await left(redis) <= 5) == (before, True)


async def test_a_release_without_an_answer_raises_and_keeps_it(locks: LockClient, redis: Redis) -> None:
    with ExitStack() as faults, pytest.raises(BackendError):
        async with locks.lock("orders").hold(at_least=LONG):
            faults.enter_context(failing_commands(locks))
    await answered(locks)
    assert await left(redis) > LONG - 30


async def test_a_server_that_forgot_everything_keeps_nothing(lock: AsyncRLock, redis: Redis) -> None:
    await kept(lock)
    await redis.flushall()
    async with lock.hold(wait=0):
        pass


async def test_synchronized(locks: LockClient, redis: Redis) -> None:
    @locks.synchronized("report:{day}", at_least=timedelta(seconds=LONG))
    async def report(day: int) -> int:
        return day

    assert await report(7) == 7
    assert await left(redis, "report:7") > LONG - 30


async def nothing() -> None: ...


async def test_a_fair_lock_is_kept_too_and_then_goes_to_the_next_in_line(locks: LockClient, other: LockClient) -> None:
    async with locks.fair_lock("orders").hold(at_least=1):
        granted = monotonic()
        waiting = asyncio.create_task(other.fair_lock("orders", owner="waiter").acquire())
        await until(lambda: other.statistics().parked == 1)
    assert await locks.fair_lock("orders").try_lock() is None
    assert await locks.lock("orders").try_lock() is None
    await (await waiting).release()
    assert 1 - 0.01 <= monotonic() - granted < 15


async def test_impossible_times_are_refused_at_once(lock: AsyncRLock, locks: LockClient) -> None:
    for bad in (0, -1, float("nan"), float("inf"), 0.0001):
        with pytest.raises(ValueError, match="at_least"):
            lock.hold(at_least=bad)
    for wrong in ("1", True):
        with pytest.raises(TypeError, match="at_least"):
            lock.hold(at_least=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no longer than the lease"):
        lock.hold(lease=1, at_least=2)
    with pytest.raises(ValueError, match="no longer than the lease"):
        locks.synchronized("a", lease=1, at_least=2)
    for of in (LockClient.counting_semaphore, lambda client, name: client.read_write_lock(name).read):
        with pytest.raises(TypeError, match="at_least is for"):
            await locks.synchronized("a", of=of, at_least=2)(nothing)()
    with pytest.raises(ValueError, match="one lock"):
        locks.synchronized("a", "b", at_least=2)


@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_anywhere_it_is_kept_or_free(mode: Mode, locks: LockClient, redis: Redis) -> None:
    """The lock is kept if the body has begun, free if it has not, and held by nobody."""
    begun: list[bool] = []

    async def setup() -> AsyncRLock:
        begun.clear()
        await redis.delete("orders")
        return locks.lock("orders")

    async def run(lock: AsyncRLock) -> None:
        async with lock.hold(at_least=LONG):
            begun.append(True)
            await asyncio.sleep(0)

    async def verify(lock: AsyncRLock, outcome: Outcome[None]) -> None:
        await answered(locks)
        assert locks.statistics().held == 0
        assert outcome.swallowed == 0
        assert (await left(redis) > LONG - 30) == bool(begun)

    assert await every_suspension(mode, setup, run, verify) > 1
