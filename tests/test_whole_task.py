"""
An acquire is refused in another task than its caller's: that task would own the lock, and may end at once.

So is the question whether the owner holds it: that task holds nothing, and would get a wrong answer.

Tracing wraps the coroutine of each task; the wrappers here have the shapes of those of Sentry, OpenTelemetry, ddtrace.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, Lease, LockClient

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


async def trace_coroutine(coroutine: Coroutine[Any, Any, object]) -> object:
    """Wrap a coroutine that becomes a task, as OpenTelemetry does."""
    return await coroutine


async def under_wrapped_tasks(coroutine: Coroutine[Any, Any, object]) -> None:
    """As Sentry and ddtrace do: the loop wraps what each task runs, and gives the wrapper the name of the coroutine."""

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
        async def traced() -> object:
            return await coroutine

        wrapper: Any = traced()
        wrapper.__name__, wrapper.__qualname__ = coroutine.__name__, coroutine.__qualname__
        return asyncio.Task(wrapper, loop=loop, **how)

    loop = asyncio.get_running_loop()
    loop.set_task_factory(make_task)
    try:
        await asyncio.create_task(coroutine)
    finally:
        loop.set_task_factory(None)


TASKS["OpenTelemetry"] = lambda coroutine: asyncio.create_task(trace_coroutine(coroutine))
TASKS["Sentry, ddtrace"] = under_wrapped_tasks
# From 3.12 on `wait_for` awaits in the task of its caller.
if sys.version_info < (3, 12):
    TASKS["wait_for"] = lambda coroutine: asyncio.wait_for(coroutine, 5)
    TASKS["wait_for under OpenTelemetry"] = lambda coroutine: asyncio.wait_for(trace_coroutine(coroutine), 5)
each_run = pytest.mark.parametrize("run", TASKS.values(), ids=TASKS)


@each_run
async def test_an_acquire_that_becomes_a_task_is_refused(
    locks: LockClient, lock: AsyncRLock, redis: Redis, run: Run
) -> None:
    ways_out = (
        "wait_for on Python 3.11",
        "try_acquire(wait=...)",
        "hold(wait=...)",
        "asyncio.timeout()",
        "named owner",
        "locks.lock(name, owner=...)",
    )
    for name, acquire in ACQUIRES.items():
        with pytest.raises(RuntimeError, match="'orders'>: this was called in one task and runs in another") as caught:
            await run(acquire(lock))
        assert [way_out for way_out in ways_out if way_out not in str(caught.value)] == [], name
    assert locks.statistics().commands == 0, "the refusal touches no server"
    assert await redis.exists("orders") == 0


@each_run
async def test_an_acquire_by_a_block_is_refused_in_a_task_of_its_own(locks: LockClient, redis: Redis, run: Run) -> None:
    semaphore, leader, once = locks.counting_semaphore("seats", 1), locks.leader("jobs"), locks.once("report", keep=60)
    for handle in (semaphore, semaphore.hold(), leader, once):
        with pytest.raises(RuntimeError, match=f"^{handle!r}: this was called in one task and runs in another"):
            await run(handle.__aenter__())
    assert await redis.dbsize() == 0


@each_run
async def test_a_named_owner_may_be_acquired_in_a_task_of_its_own(locks: LockClient, run: Run) -> None:
    job = locks.lock("orders", owner="job-17")
    for name, acquire in ACQUIRES.items():
        await run(acquire(job))
        assert await job.held(), name
        await job.force_release()


@each_run
async def test_a_question_about_the_owner_is_refused_in_a_task_of_its_own(locks: LockClient, run: Run) -> None:
    both, job = locks.multi("here", "there"), locks.lock("orders", owner="job-17")
    half = locks.read_write_lock("prices").read
    async with both, half, job:
        for handle in (locks.lock("here"), both, half):
            for question in (handle.held, handle.hold_count):
                with pytest.raises(RuntimeError, match="was called in one task and runs in another"):
                    await run(question())
            assert await handle.held()
            await run(handle.locked())
        await run(job.held())


async def test_an_acquire_within_the_body_of_a_task_is_granted(lock: AsyncRLock) -> None:
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
    await lock.force_release()


async def test_a_wrapper_of_the_coroutine_of_a_task_may_wrap_the_work_that_acquires(lock: AsyncRLock) -> None:
    async def work() -> None:
        async with lock:
            lease = await trace_coroutine(lock.acquire())
            assert isinstance(lease, Lease)
            await lease.release()

    await under_wrapped_tasks(work())
    await asyncio.create_task(trace_coroutine(work()))


async def test_a_coroutine_that_is_never_awaited_has_the_name_of_the_verb(lock: AsyncRLock) -> None:
    with pytest.warns(RuntimeWarning, match=r"coroutine 'lock\.acquire' was never awaited"):
        lock.acquire()  # type: ignore[unused-coroutine]


async def test_asyncio_timeout_is_the_way_to_bound_an_acquire(locks: LockClient, lock: AsyncRLock) -> None:
    async with locks.lock("orders", owner="somebody"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await lock.acquire()
    async with asyncio.timeout(5):
        await lock.acquire()
    await lock.release()
