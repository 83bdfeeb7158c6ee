"""A wait that may never end is logged once, after a lease, with the words of the error that ends a bounded wait."""

import asyncio
import logging
import sys
from collections.abc import Callable
from functools import partial
from types import NoneType

import pytest
from redis.asyncio import Redis

from aiolock import (
    AsyncCountingSemaphore,
    AsyncSemaphore,
    ClientClosedError,
    LockClient,
    LockConfig,
    LockTimeoutError,
)
from tests.support.inside import session_of
from tests.support.observe import until

LEASE = 1.0


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings about waits: a busy machine also renews late, of which the client warns as well."""
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    return [each for each in told if "not granted for" in each]


async def waits(locks: LockClient, *names: str) -> None:
    """Acquire each lock inside the one before it."""
    if names:
        async with locks.lock(names[0]):
            await until(lambda: locks.statistics().held >= 2 or len(names) == 1)
            await waits(locks, *names[1:])


async def test_a_child_that_waits_for_the_lock_of_its_parent(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    async with LockClient(redis, config=LockConfig(lease=LEASE)) as locks:
        async with locks.lock("orders"):
            child = asyncio.create_task(waits(locks, "orders"))
            await until(lambda: bool(warnings(caplog)))
            renewals = locks.statistics().renewals
            await until(lambda: locks.statistics().renewals > renewals + 6)
            with pytest.raises(LockTimeoutError) as ended:
                await asyncio.create_task(bounded(locks))
        await child
    [text] = warnings(caplog)
    assert text.startswith("lock 'orders': not granted for")
    words = str(ended.value).partition(" s: ")[2]
    assert words.startswith("task ")
    assert words.endswith("of this client holds it; each task, and each thread, is an owner of its own")
    assert text.endswith(words)


async def test_a_child_that_waits_for_the_fair_lock_of_its_parent(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with LockClient(redis, config=LockConfig(lease=2 * LEASE)) as locks:
        lock = locks.fair_lock("orders")

        async def child() -> None:
            async with lock:
                pass

        async with lock:
            waiting = asyncio.create_task(child())
            await until(lambda: bool(warnings(caplog)))
        await waiting
    [text] = warnings(caplog)
    assert text.endswith("of this client holds it; each task, and each thread, is an owner of its own")


async def bounded(locks: LockClient) -> None:
    async with locks.lock("orders").hold(wait=0.01):
        pass


async def test_two_tasks_that_wait_for_each_other(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    async with LockClient(redis, config=LockConfig(lease=LEASE)) as locks:
        tasks = [
            asyncio.create_task(waits(locks, "a", "b"), name="first"),
            asyncio.create_task(waits(locks, "b", "a"), name="second"),
        ]
        await until(lambda: len(warnings(caplog)) == 2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert sorted(each.partition(" s: ")[2] for each in warnings(caplog)) == [
        f"task {who!r}, which waits for {what!r}, of this client holds it; each task, and each thread, is an owner of "
        "its own"
        for who, what in (("first", "b"), ("second", "a"))
    ]


async def parked(locks: LockClient, count: int) -> None:
    await until(lambda: locks.statistics().parked == count)


def calls_of(function: Callable[[], object]) -> int:
    """How many functions of Python *function* calls; a generator counts each time that it goes on."""
    events: list[str] = []
    sys.setprofile(lambda _frame, event, _what: events.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return events.count("call")


async def test_naming_a_holder_costs_the_same_however_many_others_wait(locks: LockClient, other: LockClient) -> None:
    lock, costs = locks.lock("orders"), list[int]()
    waiting: list[asyncio.Task[None]] = []
    async with lock:
        for crowd in (range(2), range(2, 40)):
            for number in crowd:
                await other.lock(f"other {number}", owner="holder").acquire()
            waiting += [asyncio.create_task(waits(locks, f"other {number}")) for number in crowd]
            await parked(locks, crowd.stop)
            costs.append(calls_of(partial(session_of(locks).leases.held_here, lock._want)))
    assert costs[0] == costs[1]
    await other.aclose()
    await asyncio.gather(*waiting)


async def test_a_holder_is_said_to_wait_only_while_it_waits(locks: LockClient, other: LockClient) -> None:
    wanted, outer, goes_on = await other.lock("b").acquire(), locks.lock("a"), asyncio.Event()

    async def holds() -> None:
        async with outer, locks.lock("b"):
            await goes_on.wait()

    def holder() -> str | None:
        return session_of(locks).leases.held_here(outer._want)

    holding = asyncio.create_task(holds(), name="first")
    await parked(locks, 1)
    assert holder() == "task 'first', which waits for 'b',"
    await wanted.release()
    await until(lambda: locks.statistics().held == 2)
    assert holder() == "task 'first'"
    goes_on.set()
    await holding


@pytest.mark.parametrize("closed", [False, True])
async def test_nothing_is_kept_of_a_task_that_waited(locks: LockClient, other: LockClient, closed: bool) -> None:
    session = session_of(locks)
    async with other.lock("orders"):
        waiting = asyncio.create_task(waits(locks, "orders"))
        await parked(locks, 1)
        assert session.entries.waiting
        if closed:
            await locks.aclose()
    await asyncio.wait([waiting], timeout=10)
    assert isinstance(waiting.exception(), ClientClosedError if closed else NoneType)
    assert not session.entries.waiting


async def test_a_task_that_waits_for_another_client_is_not_warned(
    redis: Redis, other: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with LockClient(redis, config=LockConfig(lease=LEASE)) as locks:
        lease = await other.lock("orders").acquire(lease=4 * LEASE)
        await waits(locks, "orders")
    assert lease.lost.is_set()
    assert warnings(caplog) == []


Semaphore = AsyncCountingSemaphore | AsyncSemaphore


def counting(locks: LockClient) -> Semaphore:
    return locks.counting_semaphore("api")


def expirable(locks: LockClient) -> Semaphore:
    return locks.semaphore("api")


# For expirable permits the server says to ask again in half a minute.


@pytest.mark.parametrize("make", [counting, pytest.param(expirable, marks=pytest.mark.slow)])
async def test_a_long_wait_for_permits_without_a_number_is_logged(
    redis: Redis, caplog: pytest.LogCaptureFixture, make: Callable[[LockClient], Semaphore]
) -> None:
    async with LockClient(redis, config=LockConfig(lease=LEASE)) as locks:

        async def take() -> None:
            async with make(locks):
                pass

        waiter = asyncio.create_task(take())
        await until(lambda: bool(warnings(caplog)), within=60)
        waiter.cancel()
        await asyncio.wait([waiter])
    [text] = warnings(caplog)
    assert text.startswith("permits of 'api': not granted for")
    assert "no number of permits is set" in text
