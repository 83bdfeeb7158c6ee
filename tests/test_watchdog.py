"""The watchdog inside one client: when it runs, what it tells, and what it costs."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, RenewalLate
from aiolock._config import LEAST_LEASE
from aiolock._events import LockEvent, Lost, Renewed
from aiolock._server import Server
from tests.support.holding import lock_client
from tests.support.observe import renewed, until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One kind is enough: this is about our clock, not theirs."""
    with Server() as running:
        yield running


@pytest.fixture
async def quick(server: Server, redis: Redis) -> AsyncIterator[LockClient]:
    """A client whose watchdog has a lease of 0.9 seconds."""
    async with lock_client(server.url, lease=0.9) as client:
        yield client


async def pttl(redis: Redis, key: str) -> float:
    return int(await redis.pttl(key)) / 1000


async def test_a_short_section_starts_no_task(locks: LockClient) -> None:
    lock = locks.lock("a")
    async with lock:
        pass
    before = asyncio.all_tasks()
    async with lock:
        assert asyncio.all_tasks() == before
    named = [await locks.lock(f"a:{number}").acquire() for number in range(10)]
    assert asyncio.all_tasks() == before
    for lease in named:
        await lease.release()


async def test_one_task_renews_a_hold_and_ends_with_it(quick: LockClient) -> None:
    lock = quick.lock("a")
    await lock.acquire()
    await lock.acquire()
    await renewed(quick, 2)
    keeping = [task for task in asyncio.all_tasks() if "_keep" in repr(task)]
    assert len(keeping) == 1
    await lock.release()
    await lock.release()
    await asyncio.wait(keeping, timeout=1)
    assert not [task for task in asyncio.all_tasks() if "_keep" in repr(task)]


async def test_the_shortest_lease_that_is_watched_can_be_used_and_renewed(server: Server, redis: Redis) -> None:
    """A stall of this machine may be longer than the lease, but not every time."""
    async with lock_client(server.url, lease=LEAST_LEASE) as client:
        for _ in range(50):
            try:
                async with client.lock("a"):
                    await renewed(client, 10)
            except LeaseLostError:
                continue
            return
    pytest.fail("it was lost each time")


async def test_nothing_is_sent_after_the_release(quick: LockClient) -> None:
    lock = quick.lock("a")
    async with lock:
        await renewed(quick, 1)
    commands = quick.statistics().commands
    await asyncio.sleep(0.7)
    assert quick.statistics().commands == commands


async def test_a_watched_acquire_in_a_fixed_one_is_renewed_until_it_is_released(
    redis: Redis, quick: LockClient
) -> None:
    lock = quick.lock("a")
    outer = await lock.acquire(lease=1.5)
    inner = await lock.acquire()
    start = time.monotonic()
    await until(lambda: time.monotonic() > start + 1.8)
    outer.check()
    renewals = quick.statistics().renewals
    assert renewals >= 3
    await inner.release()
    assert await asyncio.wait_for(outer.lost, 5) == "expired"
    assert quick.statistics().renewals <= renewals + 1


async def test_a_fixed_acquire_in_a_watched_one_does_not_end_the_watch(redis: Redis, quick: LockClient) -> None:
    lock = quick.lock("a")
    outer = await lock.acquire()
    inner = await lock.acquire(lease=0.2)
    assert inner.remaining > 0.5, "a nested acquire never shortens"
    await renewed(quick, 4)
    await inner.release()
    await renewed(quick, 4)
    outer.check()
    await outer.release()


async def test_a_longer_fixed_acquire_in_a_watched_one_lengthens(redis: Redis, quick: LockClient) -> None:
    lock = quick.lock("a")
    outer = await lock.acquire()
    inner = await lock.acquire(lease=20)
    assert outer.remaining > 15
    assert await pttl(redis, "a") > 15
    await renewed(quick, 2)
    assert outer.remaining > 15, "a renewal never shortens"
    assert await pttl(redis, "a") > 15
    await inner.release()
    assert await pttl(redis, "a") > 15
    await outer.release()


async def test_a_hold_is_kept_when_its_watched_lease_is_released_before_another_watched_one(quick: LockClient) -> None:
    lock = quick.lock("a")
    first, second = await lock.acquire(), await lock.acquire()
    await first.release()
    await renewed(quick, 4)
    second.check()
    await second.release()


async def test_a_watched_acquire_is_watched_again_after_the_watch_had_ended(quick: LockClient) -> None:
    lock = quick.lock("a")
    outer = await lock.acquire(lease=20)
    for _ in range(2):
        async with lock:
            await renewed(quick, 1)
        renewals = quick.statistics().renewals
        await asyncio.sleep(0.5)
        assert quick.statistics().renewals == renewals
    await outer.release()


async def test_a_watched_acquire_in_a_short_fixed_one_is_renewed_in_time(quick: LockClient) -> None:
    lock = quick.lock("a")
    outer = await lock.acquire(lease=0.4)
    async with lock:
        await renewed(quick, 3)
        outer.check()
    await outer.release()


async def test_a_renewal_that_a_blocked_loop_delayed_is_told_and_logged(
    server: Server, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[LockEvent] = []
    async with (
        lock_client(server.url, lease=6, renew_interval=1, on_event=events.append) as client,
        client.lock("a") as lease,
    ):
        await renewed(client, 1)
        caplog.clear()
        events.clear()
        time.sleep(2.2)
        await renewed(client, 1)
        lease.check()
    late = [event for event in events if isinstance(event, RenewalLate)]
    assert len(late) == 1
    assert (late[0].name, late[0].token) == ("a", lease.token)
    assert 0.5 < late[0].late < 3
    assert 0 < late[0].remaining < 5
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "the event loop was blocked" in warnings[0].getMessage()
    assert not any(isinstance(event, Lost) for event in events)


async def test_the_first_renewal_is_told_to_be_late_as_well(server: Server, redis: Redis) -> None:
    events: list[LockEvent] = []
    async with lock_client(server.url, lease=3, renew_interval=0.5, on_event=events.append) as client, client.lock("a"):
        time.sleep(1.2)
        await renewed(client, 1)
    assert [type(event) for event in events if isinstance(event, RenewalLate)] == [RenewalLate]


async def test_renewals_in_time_are_told_and_never_called_late(server: Server, redis: Redis) -> None:
    events: list[LockEvent] = []
    async with (
        lock_client(server.url, lease=6, renew_interval=1, on_event=events.append) as client,
        client.lock("a") as lease,
    ):
        await renewed(client, 3)
    told = [event for event in events if isinstance(event, Renewed)]
    assert len(told) >= 3
    assert all(event.token == lease.token and 4 < event.remaining <= 6 for event in told)
    assert not any(isinstance(event, RenewalLate) for event in events)


async def test_a_server_that_does_not_answer_is_told_before_the_lock_is_lost(own: Server) -> None:
    events: list[LockEvent] = []
    async with lock_client(own.url, lease=1, on_event=events.append) as client:
        lease = await client.lock("a").acquire()
        own.stop()
        assert await asyncio.wait_for(lease.lost, 5) == "unreachable"
    kinds = [type(event) for event in events if isinstance(event, (RenewalLate, Lost))]
    assert kinds[0] is RenewalLate
    assert kinds[-1] is Lost
    assert kinds.count(Lost) == 1


async def test_the_renewals_of_a_hold_are_counted(quick: LockClient) -> None:
    lock = quick.lock("a")
    async with lock:
        await until(lambda: lock.statistics().renewals == 2)
    assert lock.statistics().renewals == 0
    assert quick.statistics().renewals >= 2


async def test_a_watchdog_that_somebody_cancelled_is_replaced(quick: LockClient) -> None:
    lease = await quick.lock("a").acquire()
    await renewed(quick, 1)
    for task in asyncio.all_tasks():
        if "Watchdog" in repr(task.get_coro()):
            task.cancel()
    await until(lambda: quick.lock("a").statistics().renewals >= 3)
    lease.check()
