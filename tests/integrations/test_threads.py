"""`aiolock.to_thread`: the task does not go on before the thread has ended, and keeps the lock until then."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

import aiolock
from aiolock import LeaseLostError, LockClient
from tests.support.observe import until

NAME = "order"
variable = contextvars.ContextVar("variable", default="none")


class Thread:
    """A function that runs in a thread until the test lets it go on."""

    def __init__(self) -> None:
        self.began, self.go_on, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, error: Exception | None = None) -> str:
        self.began.set()
        assert self.go_on.wait(30)
        self.ended.set()
        if error is not None:
            raise error
        return variable.get()


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_it_is_asyncios_to_thread() -> None:
    variable.set("the caller's")
    thread = Thread()
    thread.go_on.set()
    assert await aiolock.to_thread(thread, error=None) == "the caller's"
    with pytest.raises(ZeroDivisionError):
        await aiolock.to_thread(thread, ZeroDivisionError())


async def test_a_function_that_raises_stop_iteration_does_not_hang() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(aiolock.to_thread(next, iter(())), 5)


async def test_a_lock_is_kept_until_the_thread_has_ended_however_often_its_caller_is_cancelled(
    locks: LockClient,
) -> None:
    thread = Thread()

    async def work() -> None:
        async with locks.lock(NAME):
            await aiolock.to_thread(thread, ZeroDivisionError("in the thread"))

    task = asyncio.create_task(work())
    await until(thread.began.is_set)
    for _ in range(3):
        task.cancel()
        await turns()
    assert not task.done()
    assert await locks.lock(NAME).locked()
    thread.go_on.set()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert repr(cancelled.value.__cause__) == "ZeroDivisionError('in the thread')"
    assert not await locks.lock(NAME).locked()


async def test_a_scope_that_is_cancelled_waits_for_the_thread_without_spinning() -> None:
    thread = Thread()
    task = asyncio.current_task()
    assert task is not None
    cancelled_so_often = task.cancelling
    with anyio.CancelScope() as scope:

        async def cancel() -> None:
            await until(thread.began.is_set)
            scope.cancel()
            await turns()
            assert cancelled_so_often() == 0, "the scope reaches into the wait"
            thread.go_on.set()

        cancelling = asyncio.create_task(cancel())
        await aiolock.to_thread(thread)
        pytest.fail("the cancellation was swallowed")
    assert thread.ended.is_set()
    await cancelling


async def test_a_timeout_is_raised_when_the_thread_has_ended() -> None:
    thread = Thread()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as timeout:
            asyncio.get_running_loop().call_later(0.05, timeout.reschedule, 0)
            asyncio.get_running_loop().call_later(0.1, thread.go_on.set)
            await aiolock.to_thread(thread)
    assert thread.ended.is_set()


async def test_a_function_that_has_not_begun_when_its_caller_is_cancelled_is_not_called() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    first, second, third = Thread(), Thread(), Thread()
    at_work = asyncio.create_task(aiolock.to_thread(first))
    await until(first.began.is_set)
    queued = asyncio.create_task(aiolock.to_thread(second))
    await turns()
    queued.cancel()
    cancelled = asyncio.create_task(aiolock.to_thread(third))
    cancelled.cancel()
    await turns()
    assert not queued.done()
    first.go_on.set()
    await asyncio.wait([at_work, queued, cancelled])
    assert queued.cancelled()
    assert not second.began.is_set()
    assert not third.began.is_set()


async def test_closing_the_client_waits_for_the_thread_under_its_lock(locks: LockClient, other: LockClient) -> None:
    thread = Thread()

    async def work() -> None:
        async with locks.lock(NAME):
            await aiolock.to_thread(thread)

    task = asyncio.create_task(work())
    await until(thread.began.is_set)
    closing = asyncio.create_task(locks.aclose())
    await turns()
    assert not closing.done()
    assert await other.lock(NAME).locked()
    thread.go_on.set()
    await closing
    with pytest.raises(LeaseLostError, match="closed"):
        await task
    assert thread.ended.is_set()
    assert not await other.lock(NAME).locked()
