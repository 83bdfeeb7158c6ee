"""A task that is cancelled at the worst moment hands the lock on, or never had it."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from aiolock import Acquired, LockClient, LockConfig, LockEvent
from aiolock._scripts import ACQUIRE
from tests.support.cancellation import Mode, cancel_at
from tests.support.observe import answered, commandstats, pubsub_channels, until
from tests.support.proxy import Proxy, Rule, drop_reply, script, withhold_reply
from tests.support.waiters import waits_quietly

AT_ONCE = 10.0
# Before this suspension a waiter was refused, parked, and was refused again when it had subscribed. Here it parks
# again.
PARKED = 4


@pytest.fixture
async def proxied(through: Redis) -> AsyncIterator[LockClient]:
    """A client whose connections the proxy carries."""
    async with LockClient(through, config=LockConfig(command_timeout=3)) as client:
        yield client


async def parked(client: LockClient, count: int) -> None:
    """Return when that many tasks wait, and the first has asked again after its subscription."""

    def all_wait() -> bool:
        now = client.statistics()
        return now.parked == count and now.pending == 0 and waits_quietly(client, client.lock("lock"))

    await until(all_wait)
    for _ in range(3):
        await asyncio.sleep(0)


async def gets_it_at_once(client: LockClient) -> None:
    lease = await client.lock("lock", owner="next").try_lock(wait=AT_ONCE)
    assert lease is not None
    await lease.release()


@pytest.mark.parametrize("local", [False, True], ids=["message", "hand-off"])
async def test_waiters_woken_and_cancelled_in_a_row_pass_the_lock_to_the_next(
    locks: LockClient, other: LockClient, local: bool
) -> None:
    holder = await (locks if local else other).lock("lock", owner="holder").acquire()
    waiters = []
    for count in range(1, 4):
        # Only the first waiter of a queue tries before it parks.
        k = PARKED if count == 1 else 1
        lock = locks.lock("lock", owner=f"waiter {count}")
        waiters.append(asyncio.create_task(cancel_at(k, "native_late", lock.acquire)))
        await parked(locks, count)
    following = asyncio.create_task(gets_it_at_once(locks))
    await parked(locks, 4)
    await holder.release()
    await following
    for waiter in waiters:
        assert isinstance((await waiter).error, asyncio.CancelledError)
    await gets_it_at_once(other)


@pytest.mark.parametrize("mode", ["native", "native_twice", "native_late", "scope"])
async def test_cancelled_between_grant_and_return(redis: Redis, other: LockClient, mode: Mode) -> None:
    """In `native_late` the answer has arrived, and the task has not seen it."""
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        outcome = await cancel_at(1, mode, locks.lock("lock", owner="me").acquire)
        assert isinstance(outcome.error, asyncio.CancelledError)
        await gets_it_at_once(other)
        await answered(locks)
        assert locks.statistics().held == 0
        assert not any(isinstance(event, Acquired) for event in events)


@pytest.mark.parametrize("action", [withhold_reply(), drop_reply()], ids=["withheld", "dropped"])
async def test_a_granted_acquire_that_is_cancelled_before_its_reply_frees_the_lock(
    proxy: Proxy, proxied: LockClient, other: LockClient, redis: Redis, action: object
) -> None:
    rule = proxy.install(Rule(script(ACQUIRE), action))  # type: ignore[arg-type]
    task = asyncio.create_task(_hold(proxied))
    await rule.caught()
    assert await redis.exists("lock")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gets_it_at_once(other)
    rule.let_go()
    await answered(proxied)
    assert not await redis.exists("lock")
    assert proxied.statistics().held == 0


async def test_cancelled_while_trying_wakes_the_next_by_itself(
    proxy: Proxy, proxied: LockClient, other: LockClient
) -> None:
    """The message that tells of the given-up grant never arrives: the next one does not depend on it."""
    holder = await other.lock("lock", owner="holder").acquire()
    trying = asyncio.create_task(_hold(proxied))
    await parked(proxied, 1)
    following = asyncio.create_task(gets_it_at_once(proxied))
    await parked(proxied, 2)
    granted = proxy.install(Rule(script(ACQUIRE), withhold_reply()))
    await holder.release()
    await granted.caught()
    proxy.swallow_messages()
    trying.cancel()
    await asyncio.wait([trying])
    granted.let_go()
    await following


async def test_cancelling_does_not_wait_for_a_server_that_is_silent(proxy: Proxy, proxied: LockClient) -> None:
    await gets_it_at_once(proxied)
    proxy.black_hole()
    task = asyncio.create_task(_hold(proxied))
    await until(lambda: proxied.statistics().pending == 1)
    began = time.monotonic()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert time.monotonic() - began < 4, "less than a release or a command may take"
    proxy.restore()
    await answered(proxied)


@pytest.mark.usefixtures("brief_linger")
async def test_five_hundred_waiters_cancelled_at_once_leave_no_trace(redis: Redis, other: LockClient) -> None:
    holder = await other.lock("lock", owner="holder").acquire()
    async with LockClient(redis) as locks:
        before = asyncio.all_tasks()
        waiters = [asyncio.create_task(_hold(locks)) for _ in range(500)]
        await parked(locks, 500)
        sent = await commandstats(redis)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)
        assert all(waiter.cancelled() for waiter in waiters)
        assert locks.statistics().parked == 0
        # The first waiter may have sent a try.
        await answered(locks)
        await until(lambda: locks.statistics().subscriptions == 0)
        assert {task for task in asyncio.all_tasks() - before if "Connection._" not in repr(task)} == set()
        await holder.release()
        await gets_it_at_once(locks)
        now = await commandstats(redis)
        # Leaving the queue tells the server nothing.
        assert now["evalsha"] - sent["evalsha"] < 10
    await answered(other)
    assert not await redis.exists("lock")
    assert not await pubsub_channels(redis)


async def test_half_of_the_waiters_cancelled_while_the_lock_goes_round(locks: LockClient, other: LockClient) -> None:
    """Every other waiter is cancelled as it is woken; the rest get the lock in turn, and none waits for a lease."""
    holder = await other.lock("lock", owner="holder").acquire()
    first = asyncio.create_task(_hold(locks))
    await parked(locks, 1)
    lost = [
        asyncio.create_task(cancel_at(1, "native_late", locks.lock("lock", owner=f"late {number}").acquire))
        for number in range(20)
    ]
    following = [asyncio.create_task(_hold(locks)) for _ in range(20)]
    await parked(locks, 41)
    await holder.release()
    async with asyncio.timeout(10):
        await asyncio.gather(first, *following)
    for task in lost:
        assert isinstance((await task).error, asyncio.CancelledError)
    await gets_it_at_once(other)


async def _hold(client: LockClient) -> None:
    async with client.lock("lock"):
        pass
