"""An acquire that is the whole of a task would own the lock and end: refused; all that only looks like it is not."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LockClient

Acquire = Callable[[AsyncRLock], Coroutine[Any, Any, object]]

ACQUIRES: dict[str, Acquire] = {
    "acquire": lambda lock: lock.acquire(),
    "try_lock": lambda lock: lock.try_lock(),
    "waiting try_lock": lambda lock: lock.try_lock(1),
    "async with": lambda lock: lock.__aenter__(),
    "hold": lambda lock: lock.hold().__aenter__(),
}
each_acquire = pytest.mark.parametrize("acquire", ACQUIRES.values(), ids=ACQUIRES)


async def in_a_group(coroutine: Coroutine[Any, Any, object]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(coroutine)
    except* RuntimeError as errors:
        raise errors.exceptions[0] from None


async def as_first_completed(coroutine: Coroutine[Any, Any, object]) -> None:
    for first in asyncio.as_completed([coroutine]):
        await first


Run = Callable[[Coroutine[Any, Any, object]], Awaitable[object]]
TASKS: dict[str, Run] = {
    "create_task": asyncio.create_task,
    "ensure_future": asyncio.ensure_future,
    "gather": asyncio.gather,
    "shield": asyncio.shield,
    "TaskGroup": in_a_group,
    "as_completed": as_first_completed,
}
if sys.version_info < (3, 12):  # From 3.12 on it awaits in the task of its caller.
    TASKS["wait_for"] = lambda coroutine: asyncio.wait_for(coroutine, 5)
each_run = pytest.mark.parametrize("run", TASKS.values(), ids=TASKS)


@each_run
async def test_an_acquire_that_is_the_whole_of_a_task_is_refused(
    locks: LockClient, lock: AsyncRLock, redis: Redis, run: Run
) -> None:
    ways_out = (
        "wait_for on Python 3.11",
        "try_lock(wait=...)",
        "hold(wait=...)",
        "asyncio.timeout()",
        "named owner",
        "locks.lock(name, owner=...)",
    )
    for name, acquire in ACQUIRES.items():
        with pytest.raises(RuntimeError, match="this acquire is the whole of a task") as caught:
            await run(acquire(lock))
        assert [way_out for way_out in ways_out if way_out not in str(caught.value)] == [], name
    assert locks.statistics().commands == 0, "before Redis is touched"
    assert await redis.exists("orders") == 0


@each_run
async def test_so_is_that_of_whatever_is_given_back_by_its_block(locks: LockClient, redis: Redis, run: Run) -> None:
    semaphore, leader, once = locks.semaphore("seats", 1), locks.leader("jobs"), locks.once("report", keep=60)
    for handle in (semaphore, semaphore.hold(), leader, once):
        with pytest.raises(RuntimeError, match="this acquire is the whole of a task"):
            await run(handle.__aenter__())
    assert await redis.dbsize() == 0


@each_run
async def test_a_named_owner_may_be_acquired_so(locks: LockClient, run: Run) -> None:
    job = locks.lock("orders", owner="job-17")
    for name, acquire in ACQUIRES.items():
        await run(acquire(job))
        assert await job.held(), name
        await job.release()


async def test_within_a_task_of_ones_own_it_is_welcome(lock: AsyncRLock) -> None:
    async def work() -> int:
        lease = await lock.acquire()
        await lock.release()
        return lease.token

    assert await asyncio.create_task(work()) > 0


@each_acquire
@pytest.mark.skipif(sys.version_info < (3, 12), reason="before 3.12 wait_for makes a task")
async def test_wait_for_awaits_in_the_callers_task_from_3_12_on(lock: AsyncRLock, acquire: Acquire) -> None:
    await asyncio.wait_for(acquire(lock), 5)
    assert await lock.held()
    await lock.release()


async def test_asyncio_timeout_is_the_way_to_bound_an_acquire(locks: LockClient, lock: AsyncRLock) -> None:
    async with locks.lock("orders", owner="somebody"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await lock.acquire()
    async with asyncio.timeout(5):
        await lock.acquire()
    await lock.release()
