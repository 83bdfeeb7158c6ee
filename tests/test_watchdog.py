"""The watchdog inside one client: when it runs, what it tells, and what it costs."""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, RenewalLate, _scripts
from aiolock._config import LEAST_LEASE
from aiolock._core.hold import Hold
from aiolock._embedded_server import Server
from aiolock._events import LockEvent, Lost, Renewed
from aiolock._keys import LockKeys
from aiolock.testing import delayed_renewals
from tests.support.calls import acquire
from tests.support.cancellation import cancelling
from tests.support.contexts import outlives_its_task
from tests.support.holding import lock_client
from tests.support.inside import hold_of, session_of
from tests.support.observe import renewed, until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One kind of server is enough: these tests are about our clock, not the server's."""
    with Server() as running:
        yield running


@pytest.fixture
async def quick(server: Server, redis: Redis) -> AsyncIterator[LockClient]:
    """A client whose watchdog renews soon, with a lease that a busy machine does not use up."""
    async with lock_client(server.url, lease=3, renew_interval=0.3) as client:
        yield client


async def pttl(redis: Redis, key: str) -> float:
    return int(await redis.pttl(key)) / 1000


async def test_a_renewal_counts_even_if_its_lease_was_given_back_meanwhile(quick: LockClient) -> None:
    lock = quick.lock("a")
    async with lock.hold(lease=3) as outer:
        with delayed_renewals(quick):
            inner = await lock.acquire()
            await until(lambda: hold_of(outer).watch.unanswered == 1)
            await inner.release()
            before = hold_of(outer).deadline
        await until(lambda: hold_of(outer).watch.unanswered == 0)
        assert hold_of(outer).deadline > before


async def test_a_fixed_lease_is_as_long_as_the_server_says_after_an_outage(
    server: Server, redis: Redis, locks: LockClient
) -> None:
    """Its last renewal may be lost, as in a failover."""
    lease = await locks.lock("a").acquire(lease=30)
    await lease.renew(600)
    await redis.pexpire("a", 20_000)
    await redis.client_kill_filter(_type="normal", skipme=True)
    await until(lambda: lease.remaining < 20)
    lease.check()
    await lease.release()


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


async def test_holds_are_renewed_together_and_each_by_a_task_of_its_own(quick: LockClient) -> None:
    many = 3 * 32
    async with asyncio.TaskGroup() as tasks:
        for number in range(many):
            tasks.create_task(acquire(quick.lock(f"a:{number}", owner="all")))
    # Some of them may have been due at another moment than the rest.
    await renewed(quick, many)
    before, tasks_before = quick.statistics(), asyncio.all_tasks()
    names = sorted(task.get_name() for task in tasks_before if "watchdog" in task.get_name())
    assert names == sorted(f"aiolock: watchdog of lock 'a:{number}'" for number in range(many))
    await until(lambda: quick.statistics().renewals >= before.renewals + 3 * many)
    after = quick.statistics()
    assert (after.commands - before.commands) * 4 < after.renewals - before.renewals
    assert asyncio.all_tasks() == tasks_before


async def test_the_first_alarm_does_not_keep_the_context_of_the_task_that_acquired(locks: LockClient) -> None:
    assert not await outlives_its_task(locks.lock("a", owner="job").acquire)
    await locks.lock("a", owner="job").release()


async def test_a_watchdog_does_not_keep_the_context_of_the_task_that_acquired(quick: LockClient) -> None:
    async def acquire_and_be_renewed() -> None:
        await quick.lock("a", owner="job").acquire()
        await renewed(quick, 1)

    assert not await outlives_its_task(acquire_and_be_renewed)
    assert [task for task in asyncio.all_tasks() if "watchdog" in task.get_name()]
    await quick.lock("a", owner="job").release()


async def test_a_guard_does_not_keep_the_context_of_the_task_that_acquired(locks: LockClient) -> None:
    assert not await outlives_its_task(lambda: locks.lock("a", owner="job").acquire(lease=60))
    await locks.lock("a", owner="job").release()


async def test_a_missing_lock_among_those_that_are_renewed_together_is_lost(server: Server, redis: Redis) -> None:
    async with lock_client(server.url, lease=30, renew_interval=0.1, command_timeout=10) as client:
        async with asyncio.TaskGroup() as tasks:
            granted = [tasks.create_task(acquire(client.lock(f"a:{number}", owner="all"))) for number in range(5)]
        leases = [each.result() for each in granted]
        await renewed(client, 5)
        await redis.delete("a:3")
        assert await asyncio.wait_for(leases[3].lost, 30) == "expired"
        await renewed(client, 8)
        assert [lease.lost.is_set() for lease in leases] == [False, False, False, True, False]


async def test_a_lock_that_cannot_be_renewed_keeps_no_other_from_being_renewed(quick: LockClient, redis: Redis) -> None:
    """The server answers the renewal of all with an error, and then each renewal by itself."""
    names = [f"a:{number}" for number in range(5)]
    async with asyncio.TaskGroup() as tasks:
        granted = [tasks.create_task(acquire(quick.lock(name, owner="all"))) for name in names]
    leases = [each.result() for each in granted]
    await renewed(quick, 5)
    await redis.delete("a:3")
    await redis.set(LockKeys.of("a:3", "").tokens, "none of ours")
    before = quick.statistics().renewals
    await until(leases[3].lost.is_set)
    await until(lambda: quick.statistics().renewals >= before + 12)
    assert [lease.lost.is_set() for lease in leases] == [False, False, False, True, False]


async def test_the_shortest_lease_that_is_watched_can_be_used_and_renewed(server: Server, redis: Redis) -> None:
    """A stall of this machine may be longer than the lease: then the lock is lost, and taken once more."""
    async with lock_client(server.url, lease=LEAST_LEASE) as client:
        lock, tries, kept = client.lock("a"), 0, False
        while not kept and tries < 200:
            tries += 1
            with suppress(LeaseLostError):
                async with lock:
                    await until(lambda: lock.statistics().renewals >= 4)
                    kept = True
        assert kept


@pytest.mark.parametrize("at", [0, 1, 2], ids=["before its first step", "as it waits for an answer", "as it sleeps"])
async def test_a_watchdog_that_somebody_else_cancels_has_a_successor(quick: LockClient, at: int) -> None:
    with cancelling("Watchdog._keep", at) as cancelled:
        async with quick.lock("a") as lease:
            await until(lambda: bool(cancelled) and cancelled[0].done())
            await renewed(quick, 2)
            assert hold_of(lease).watch.task not in (None, *cancelled)


@pytest.mark.parametrize("at", [0, 1, 2], ids=["before its first step", "as it waits for an answer", "as it sleeps"])
async def test_the_lock_of_a_named_owner_outlives_a_watchdog_that_somebody_else_cancels(
    quick: LockClient, at: int
) -> None:
    """No block of a task has it, but it is renewed until its release."""
    with cancelling("Watchdog._keep", at) as cancelled:
        lease = await quick.lock("a", owner="job").acquire()
        await until(lambda: bool(cancelled) and cancelled[0].done())
        await renewed(quick, 2)
        await lease.release()


async def test_a_fixed_lease_that_the_server_forgot_is_lost_though_somebody_cancels_the_watchdog(
    quick: LockClient, redis: Redis
) -> None:
    lease = await quick.lock("a").acquire(lease=60)
    await redis.delete("a")
    with cancelling("Watchdog._keep", 0) as cancelled:
        session_of(quick).watchdog.check(hold_of(lease))
        assert await asyncio.wait_for(lease.lost, 10) == "expired"
    assert len(cancelled) == 1


async def test_a_doubt_is_not_put_off_by_an_answer_to_an_earlier_request(locks: LockClient) -> None:
    """The acquire is nested, and has the hold watched again; the next renewal is due in ten seconds."""
    lease = await locks.lock("a").acquire()
    watchdog = session_of(locks).watchdog
    watchdog.check(hold_of(lease))
    watchdog.watch(hold_of(lease))
    await renewed(locks, 1, within=5)


async def test_nothing_is_sent_after_the_release(quick: LockClient) -> None:
    lock = quick.lock("a")
    async with lock:
        await renewed(quick, 1)
    await until(lambda: not any("watchdog" in task.get_name() for task in asyncio.all_tasks()))
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


async def test_a_renewal_that_a_blocked_loop_delayed_is_reported_and_logged(
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


async def test_a_late_first_renewal_is_reported_too(server: Server, redis: Redis) -> None:
    events: list[LockEvent] = []
    async with lock_client(server.url, lease=3, renew_interval=0.5, on_event=events.append) as client, client.lock("a"):
        time.sleep(1.2)
        await renewed(client, 1)
    assert [type(event) for event in events if isinstance(event, RenewalLate)] == [RenewalLate]


async def test_renewals_in_time_are_reported_and_never_called_late(server: Server, redis: Redis) -> None:
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


async def test_a_server_that_does_not_answer_is_reported_before_the_lock_is_lost(own: Server) -> None:
    events: list[LockEvent] = []
    async with lock_client(own.url, lease=1, on_event=events.append) as client:
        lease = await client.lock("a").acquire()
        own.stop()
        assert await asyncio.wait_for(lease.lost, 5) == "unreachable"
    kinds = [type(event) for event in events if isinstance(event, (RenewalLate, Lost))]
    assert kinds[0] is RenewalLate
    assert kinds[-1] is Lost
    assert kinds.count(Lost) == 1


@pytest.mark.parametrize("kind", ["LOCK", "FAIR", "ONCE", "PERMIT", "READ", "WRITE"])
def test_nothing_queues_before_a_renewal(kind: str) -> None:
    assert getattr(_scripts, kind).renew.urgent


async def test_a_renewal_that_was_answered_keeps_nothing_of_a_lock_that_was_released(locks: LockClient) -> None:
    lease = await locks.lock("renewed and released").acquire()
    session_of(locks).watchdog.check(hold_of(lease))
    await renewed(locks, 1)
    await lease.release()
    del lease
    # The lock's own task ends in the next turn of the loop.
    await asyncio.sleep(0)
    gc.collect()
    left = [each for each in gc.get_objects() if isinstance(each, Hold)]
    assert [hold for hold in left if hold.keys.name == "renewed and released"] == []
