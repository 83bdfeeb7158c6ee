"""Counting semaphores and latches, shared with Redisson: both sides change one count, and messages wake waiters."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncCountDownLatch, AsyncCountingSemaphore, LockClient
from aiolock._keys import LockKeys
from tests.interop.service import Redisson
from tests.interop.test_waking import soon
from tests.support.inside import block_of, notifier_of
from tests.support.observe import all_parked, until
from tests.support.waiters import waits_quietly

NAME = "places"
PLACES = 3
EACH = 4
TIMES = 25
# A waiter asks by itself only after more seconds.
BY_MESSAGE = 4

Java = Callable[..., Awaitable[Any]]


@pytest.fixture
def semaphore(locks: LockClient) -> AsyncCountingSemaphore:
    return locks.counting_semaphore(NAME)


@pytest.fixture
def latch(locks: LockClient) -> AsyncCountDownLatch:
    return locks.count_down_latch(NAME)


@pytest.fixture
def java(redisson: Redisson) -> Java:
    """A call of Redisson's semaphore."""

    async def ask(call: str, permits: int = 1) -> Any:
        return await redisson.ask(call, NAME, kind="counted", permits=permits)

    return ask


@pytest.fixture
def java_latch(redisson: Redisson) -> Java:
    """A call of Redisson's latch."""

    async def ask(call: str, count: int = 1) -> Any:
        return await redisson.ask(call, NAME, kind="latch", count=count)

    return ask


async def waits(locks: LockClient, channel: str) -> None:
    """Return when a task of the client waits, and hears the messages of the channel."""
    await until(lambda: notifier_of(locks).confirmed(channel), within=20)
    await all_parked(locks, 1, within=20)


# Permits.


async def test_each_side_sees_the_permits_that_the_other_takes_and_adds(
    semaphore: AsyncCountingSemaphore, java: Java, redis: Redis
) -> None:
    assert await java("trySetPermits", 5)
    assert not await semaphore.try_set_permits(7)
    await semaphore.acquire(2)
    assert await java("tryAcquire", 2)
    assert (await semaphore.available(), await java("availablePermits")) == (1, 1)
    assert not await semaphore.try_acquire(permits=2)
    assert not await java("tryAcquire", 2)
    await java("release", 2)
    await semaphore.release(2)
    await java("addPermits", -1)
    await semaphore.add_permits(2)
    assert await redis.get(NAME) == b"6"
    assert (await semaphore.drain(), await java("drainPermits")) == (6, 0)
    await semaphore.add_permits(3)
    assert (await java("drainPermits"), await semaphore.drain()) == (3, 0)


async def test_the_number_of_the_first_acquire_is_redissons_too(locks: LockClient, java: Java) -> None:
    async with locks.counting_semaphore(NAME, 3):
        assert not await java("trySetPermits", 5)
        assert await java("availablePermits") == 2


async def test_no_more_have_permits_than_there_are_and_a_latch_counts_them_all(
    locks: LockClient, redisson: Redisson, redis: Redis
) -> None:
    """Threads and tasks work at once, and count each of their visits down, too."""
    times = 2 * EACH * TIMES
    semaphore, latch = locks.counting_semaphore(NAME, PLACES), locks.count_down_latch("times")
    inside = most = 0

    def enter(more: int) -> None:
        nonlocal inside, most
        inside += more
        most = max(most, inside)
        assert 0 <= inside <= PLACES

    async def in_java(thread: int) -> None:
        for _ in range(TIMES):
            await redisson.ask("acquire", NAME, thread=thread, kind="counted")
            enter(1)
            await asyncio.sleep(0.001)
            enter(-1)
            await redisson.ask("release", NAME, thread=thread, kind="counted")
            await redisson.ask("countDown", "times", thread=thread, kind="latch")

    async def in_python() -> None:
        for _ in range(TIMES):
            async with semaphore:
                enter(1)
                await asyncio.sleep(0.001)
                enter(-1)
            await latch.count_down()

    assert await semaphore.try_set_permits(PLACES)
    assert await latch.try_set_count(times)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(latch.wait())
        for thread in range(1, EACH + 1):
            group.create_task(in_java(thread))
            group.create_task(in_python())
    assert waiting.result()
    assert (most, await redis.get(NAME), await redis.exists("times")) == (PLACES, str(PLACES).encode(), 0)


@pytest.mark.parametrize("verb", ["release", "add_permits", "try_set_permits", "acquire"])
async def test_a_thread_is_woken(
    verb: str, semaphore: AsyncCountingSemaphore, other: LockClient, redisson: Redisson, redis: Redis
) -> None:
    """Also the first acquire wakes a waiter, as it sets the number of permits."""

    async def one() -> float:
        await redis.delete(NAME)
        waiting = redisson.post("acquire", NAME, kind="counted")
        await until(redisson.parked, within=20)
        began = monotonic()
        if verb == "acquire":
            await other.counting_semaphore(NAME, 2).acquire()
        else:
            await getattr(semaphore, verb)(1)
        return (await waiting).ended - began

    await soon(one)


async def test_a_thread_is_woken_when_a_block_ends(locks: LockClient, redisson: Redisson, redis: Redis) -> None:
    async def one() -> float:
        await redis.delete(NAME)
        async with locks.counting_semaphore(NAME, 1):
            waiting = redisson.post("acquire", NAME, kind="counted")
            await until(redisson.parked, within=20)
            began = monotonic()
        return (await waiting).ended - began

    await soon(one)


@pytest.mark.parametrize("call", ["release", "addPermits", "trySetPermits"])
async def test_a_task_is_woken(
    call: str, locks: LockClient, semaphore: AsyncCountingSemaphore, java: Java, redis: Redis
) -> None:
    waiting = asyncio.create_task(semaphore.acquire())
    await until(lambda: waits_quietly(locks, block_of(semaphore)), within=20)
    await java(call, 1)
    await asyncio.wait_for(waiting, BY_MESSAGE)
    assert await redis.get(NAME) == b"0"


# Latches.


async def test_each_side_counts_down_a_latch_that_the_other_set(latch: AsyncCountDownLatch, java_latch: Java) -> None:
    assert await latch.try_set_count(3)
    assert not await java_latch("trySetCount", 5)
    await java_latch("countDown")
    assert (await latch.count(), await java_latch("getCount")) == (2, 2)
    await latch.count_down()
    await java_latch("countDown")
    assert (await latch.count(), await java_latch("getCount")) == (0, 0)
    assert await java_latch("trySetCount", 2)
    await latch.count_down()
    await latch.count_down()
    assert await java_latch("getCount") == 0
    assert await latch.try_set_count(1)
    assert await java_latch("delete")
    assert await latch.wait(0)


@pytest.mark.parametrize("verb", ["count_down", "delete"])
async def test_a_thread_that_awaits_is_let_go(verb: str, latch: AsyncCountDownLatch, redisson: Redisson) -> None:
    async def one() -> float:
        assert await latch.try_set_count(1)
        waiting = redisson.post("await", NAME, kind="latch")
        await until(redisson.parked, within=20)
        began = monotonic()
        await getattr(latch, verb)()
        return (await waiting).ended - began

    await soon(one)


async def test_a_task_that_waits_is_let_go(locks: LockClient, latch: AsyncCountDownLatch, java_latch: Java) -> None:
    assert await java_latch("trySetCount", 2)
    waiting = asyncio.create_task(latch.wait())
    await waits(locks, LockKeys.of_latch(NAME, "").channel)
    await java_latch("countDown")
    assert not await latch.wait(0)
    await java_latch("countDown")
    assert await asyncio.wait_for(waiting, BY_MESSAGE)


@pytest.mark.parametrize(("name", "call"), [(NAME, "delete"), ("{shop}:places", "countDown")])
async def test_changes_without_a_message_of_redisson_are_found_by_asking(
    name: str, call: str, locks: LockClient, redisson: Redisson
) -> None:
    """Redisson's `delete` tells that a count begins. If the name has braces, Redisson has another channel."""
    latch = locks.count_down_latch(name)
    assert await latch.try_set_count(1)
    waiting = asyncio.create_task(latch.wait())
    await waits(locks, LockKeys.of_latch(name, "").channel)
    await redisson.ask(call, name, kind="latch")
    assert await asyncio.wait_for(waiting, 20)
