"""statistics(): what a client and a lock say of themselves, counted against what was done."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, ClientStatistics, LockClient, LockConfig, LockStatistics
from tests.support.calls import in_turn
from tests.support.observe import answered, asked_in_a_thread, commandstats, pubsub_channels, until


async def hold_until(event: asyncio.Event, lock: AsyncRLock) -> None:
    async with lock:
        await event.wait()


async def test_before_the_first_use_all_is_zero(redis: Redis) -> None:
    locks = LockClient(redis)
    assert locks.statistics() == ClientStatistics()
    assert locks.lock("orders").statistics() == LockStatistics()


async def test_idle_again_nothing_is_left(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock("orders")
    async with lock:
        waiting = asyncio.create_task(locks.lock("orders", owner="waiting").try_lock(5))
        await until(lambda: lock.statistics().parked == 1)
    lease = await waiting
    assert lease is not None
    await lease.release()
    assert lock.statistics().parked == lock.statistics().held == lock.statistics().hand_offs == 0
    await until(lambda: locks.statistics().subscriptions == 0, within=10)
    assert lock.statistics() == LockStatistics()
    assert locks.statistics().held == locks.statistics().parked == locks.statistics().pending == 0


async def test_statistics_can_be_asked_in_any_thread(locks: LockClient) -> None:
    """The exporter of a telemetry asks in a thread of its own, at any time."""
    async with asked_in_a_thread(locks):
        await asyncio.gather(*(in_turn(locks, number) for number in range(20)))


async def test_held_counts_locks_not_holds(locks: LockClient) -> None:
    a, b = locks.lock("a"), locks.lock("b")
    async with a, a, b:
        assert locks.statistics().held == 2
        assert (a.statistics().held, b.statistics().held, locks.lock("c").statistics().held) == (1, 1, 0)
    assert locks.statistics().held == 0


async def test_parked_and_subscriptions(locks: LockClient, redis: Redis) -> None:
    go = asyncio.Event()
    tasks = [asyncio.create_task(hold_until(go, locks.lock(name))) for name in "aaabb"]
    await until(lambda: locks.statistics().parked == 3 and locks.statistics().held == 2)
    assert (locks.lock("a").statistics().parked, locks.lock("b").statistics().parked) == (2, 1)
    assert locks.statistics().held == 2
    assert locks.statistics().subscriptions == 2, "one for each name, however many wait"
    assert locks.lock("a").statistics().subscriptions == 1
    channels = {"redisson_lock__channel:{a}", "redisson_lock__channel:{b}"}
    await until(lambda: _subscribed(redis, channels))
    go.set()
    await asyncio.gather(*tasks)
    assert locks.statistics().parked == 0


async def _subscribed(redis: Redis, channels: set[str]) -> bool:
    return await pubsub_channels(redis) == channels


async def test_the_number_of_commands_is_that_of_the_server(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock("orders")
    await lock.locked()
    before, ran = locks.statistics().commands, await scripts_run(redis)
    async with lock:
        await lock.held()
        await lock.acquire()
        await lock.release()
    await answered(locks)
    sent = locks.statistics().commands - before
    assert sent == await scripts_run(redis) - ran
    assert sent == 5, "acquire, inspect, acquire, release, release"


async def scripts_run(redis: Redis) -> int:
    stats = await commandstats(redis)
    return stats.get("eval", 0) + stats.get("evalsha", 0)


@pytest.mark.parametrize("calls", [1, 100])
async def test_calls_of_one_turn_share_a_batch(locks: LockClient, calls: int) -> None:
    await asyncio.gather(*(locks.lock(name).locked() for name in ("warm", "too", "also")))
    before = locks.statistics()
    await asyncio.gather(*(locks.lock(f"n{number}").locked() for number in range(calls)))
    after = locks.statistics()
    assert after.commands - before.commands == calls
    assert after.batches - before.batches == 1


async def test_pending_are_those_without_a_reply(locks: LockClient) -> None:
    await locks.lock("warm").locked()
    asking = [asyncio.ensure_future(locks.lock(f"n{number}").locked()) for number in range(3)]
    await asyncio.sleep(0)
    assert locks.statistics().pending == 3
    await asyncio.gather(*asking)
    assert locks.statistics().pending == 0


async def test_connections_are_those_in_use(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=2, renew_interval=0.05)) as locks:
        assert locks.statistics().connections == 0
        async with locks.lock("orders"):
            assert locks.statistics().connections == 1
            await until(lambda: locks.statistics().renewals > 0)
            await until(lambda: locks.statistics().connections == 2)
    assert locks.statistics().connections == 0


async def test_renewals_are_counted_for_the_hold_and_for_the_client(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=2, renew_interval=0.05)) as locks:
        lock = locks.lock("orders")
        async with lock:
            await until(lambda: lock.statistics().renewals >= 3)
        assert lock.statistics().renewals == 0, "the count is that of the present hold"
        assert locks.statistics().renewals >= 3


async def test_a_renewal_by_hand_is_counted_too(locks: LockClient) -> None:
    lock = locks.lock("orders")
    async with lock.hold(lease=5) as lease:
        await lease.renew()
        assert lock.statistics().renewals == locks.statistics().renewals == 1


async def test_losses_are_counted(locks: LockClient, redis: Redis) -> None:
    for name in ("a", "b"):
        await locks.lock(name).acquire()
        await locks.lock(name).force_release()
    assert (locks.statistics().losses, locks.statistics().held) == (2, 0)


async def settled(locks: LockClient, parked: int) -> None:
    """Wait until the head was refused with its subscription in place: all waiters are asleep then."""
    tries = {"of the holder": 1, "of the head": 1}
    await until(lambda: locks.statistics().commands == sum(tries.values()) and locks.statistics().pending == 0)
    # The head takes note of its reply during this round trip.
    await locks.lock("another").locked()
    assert locks.statistics().parked == parked


async def test_activity_lists_the_holders_and_the_waiters(locks: LockClient, other: LockClient) -> None:
    assert LockClient.from_url("redis://127.0.0.1:1").activity() == []
    async with locks.lock("b"), locks.lock("b"), locks.counting_semaphore("c", 1), other.lock("a"):
        first = asyncio.create_task(hold_until(asyncio.Event(), locks.lock("a")), name="first")
        await until(lambda: locks.statistics().parked == 1)
        second = asyncio.create_task(locks.lock("a", owner="job-17").acquire())
        await until(lambda: locks.statistics().parked == 2)
        a, b, c = locks.activity()
        assert (a.name, a.kind, a.holding) == ("a", "lock", ())
        assert [each.task for each in a.waiting] == ["first", None]
        assert a.waiting[1].owner.endswith(":named:job-17")
        assert a.waiting[0].waited >= a.waiting[1].waited >= 0
        [holding] = b.holding
        task = asyncio.current_task()
        assert task is not None
        assert (b.name, b.waiting, holding.task, holding.holds) == ("b", (), task.get_name(), 2)
        assert holding.remaining is not None
        assert 0 <= holding.held < 25 < holding.remaining <= 30
        assert (c.kind, c.holding[0].remaining) == ("counting_semaphore", None)
        for waiting in (first, second):
            waiting.cancel()
        await asyncio.wait([first, second])
    assert locks.activity() == []


async def test_activity_lists_the_tasks_that_wait_for_a_primitive_without_owners(locks: LockClient) -> None:
    semaphore, latch = locks.counting_semaphore("a", 1), locks.count_down_latch("b")
    await semaphore.acquire()
    assert await latch.try_set_count(1)
    tasks = [asyncio.create_task(semaphore.acquire(), name="first"), asyncio.create_task(latch.wait(), name="second")]
    await until(lambda: locks.statistics().parked == 2)
    assert [[each.task for each in one.waiting] for one in locks.activity()] == [["first"], ["second"]]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await semaphore.release()


async def test_each_name_counts_its_own_hand_offs(locks: LockClient) -> None:
    go, last = asyncio.Event(), asyncio.Event()
    go.set()
    lock = locks.lock("orders")
    async with lock:
        tasks = [asyncio.create_task(hold_until(event, lock)) for event in (go, go, last, go)]
        await settled(locks, parked=4)
    await until(lambda: lock.statistics().parked == 1)
    assert lock.statistics().hand_offs == 3
    assert locks.lock("other").statistics().hand_offs == 0
    last.set()
    await asyncio.gather(*tasks)
    assert lock.statistics().hand_offs == 0, "the name is idle"
    assert locks.statistics().hand_offs == 4
