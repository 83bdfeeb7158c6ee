"""A count-down latch: all waiters go on at zero."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncCountDownLatch, LockClient
from tests.support.inside import session_of
from tests.support.observe import all_parked, until

NAME = "jobs"


@pytest.fixture
def latch(locks: LockClient) -> AsyncCountDownLatch:
    return locks.count_down_latch(NAME)


@pytest.fixture
def theirs(other: LockClient) -> AsyncCountDownLatch:
    """The same latch in another process."""
    return other.count_down_latch(NAME)


async def waiting(locks: LockClient, number: int, name: str = NAME) -> list[asyncio.Task[bool]]:
    """That many tasks, which wait for the latch and hear its messages."""
    tasks = [asyncio.create_task(locks.count_down_latch(name).wait()) for _ in range(number)]
    channel = f"redisson_countdownlatch__channel__{name if '{' in name else f'{{{name}}}'}"
    await until(lambda: session_of(locks).entries.notifier.confirmed(channel))
    await all_parked(locks, number)
    return tasks


async def test_nothing_to_wait_for(latch: AsyncCountDownLatch) -> None:
    assert await latch.wait()
    assert await latch.wait(0)
    assert await latch.count() == 0


async def test_waits_until_all_is_counted(
    latch: AsyncCountDownLatch, theirs: AsyncCountDownLatch, locks: LockClient, other: LockClient
) -> None:
    assert await latch.try_set_count(3)
    tasks = [*await waiting(locks, 5), *await waiting(other, 5)]
    await theirs.count_down()
    await latch.count_down()
    assert await latch.count() == 1
    assert not await latch.wait(0)
    assert not await latch.wait(0.01)
    assert not any(task.done() for task in tasks)
    await theirs.count_down()
    async with asyncio.timeout(4):
        assert await asyncio.gather(*tasks) == [True] * 10
    assert await latch.count() == 0


async def test_set_once_until_it_is_zero(latch: AsyncCountDownLatch, theirs: AsyncCountDownLatch) -> None:
    assert await latch.try_set_count(1)
    assert not await theirs.try_set_count(5)
    assert await latch.count() == 1
    await theirs.count_down()
    assert await theirs.try_set_count(5)
    assert await latch.count() == 5


async def test_a_count_of_zero_stays_zero(latch: AsyncCountDownLatch, redis: Redis) -> None:
    await latch.count_down()
    assert await latch.count() == 0
    # So that a late copy of the call does not count down what is set later.
    assert await redis.keys("*") == [b"aiolock_token:{jobs}"]
    assert 0 < await redis.pttl("aiolock_token:{jobs}") <= 60_000


async def test_delete_lets_waiters_go(latch: AsyncCountDownLatch, theirs: AsyncCountDownLatch, other: Any) -> None:
    assert await latch.try_set_count(3)
    tasks = await waiting(other, 3)
    assert await latch.delete()
    async with asyncio.timeout(4):
        assert await asyncio.gather(*tasks) == [True] * 3
    assert not await theirs.delete()


async def test_a_waiter_that_comes_while_others_go_on_goes_on(latch: AsyncCountDownLatch, locks: LockClient) -> None:
    await latch.try_set_count(1)
    tasks = await waiting(locks, 2)
    counted = asyncio.create_task(latch.count_down())
    while not counted.done():
        tasks.append(asyncio.create_task(latch.wait()))
        await asyncio.sleep(0)
    async with asyncio.timeout(4):
        assert all(await asyncio.gather(*tasks))


async def test_names_with_braces(locks: LockClient, other: LockClient) -> None:
    name = "{shop}:jobs"
    await locks.count_down_latch(name).try_set_count(1)
    tasks = await waiting(other, 2, name)
    await locks.count_down_latch(name).count_down()
    async with asyncio.timeout(4):
        assert all(await asyncio.gather(*tasks))


async def test_a_string_in_redis_and_nothing_after_a_minute(latch: AsyncCountDownLatch, redis: Redis) -> None:
    await latch.try_set_count(2)
    assert (await redis.get(NAME), await redis.ttl(NAME)) == (b"2", -1)
    await latch.count_down()
    assert await redis.get(NAME) == b"1"
    await latch.count_down()
    assert await redis.keys("*") == [b"aiolock_token:{jobs}"]
    assert 0 < await redis.ttl("aiolock_token:{jobs}") <= 60


async def test_a_wait_is_a_task_of_its_own_and_no_event(latch: AsyncCountDownLatch, locks: LockClient) -> None:
    await asyncio.wait_for(asyncio.create_task(latch.wait()), 10)
    assert locks.statistics().held == 0


@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("1", TypeError), (2**31, ValueError)]
)
async def test_invalid_counts_are_refused(latch: AsyncCountDownLatch, count: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="count must be"):
        await latch.try_set_count(count)


@pytest.mark.parametrize("wait", [-1, "1", float("nan")])
async def test_invalid_waits_are_refused(latch: AsyncCountDownLatch, wait: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="wait must be"):
        await latch.wait(wait=wait)
