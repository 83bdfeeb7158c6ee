"""`aiolock.background`: the work beside a block has always ended when the block is left."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Coroutine

import anyio
import pytest

import aiolock
from aiolock import LockClient
from aiolock._helpers import background
from tests.support.observe import until


class Work:
    """Runs until it has been cancelled that many times, or let go, and then cleans up for some turns of the loop."""

    def __init__(self, cancellations: int = 1) -> None:
        self.left = cancellations
        self.began, self.cancelled, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        # It is true also if a cancellation interrupted the cleanup.
        self.is_over = False
        self.go = asyncio.Event()

    async def __call__(self) -> None:
        try:
            while self.left and not self.go.is_set():
                self.began.set()
                try:
                    await self.go.wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    self.left -= 1
            raise asyncio.CancelledError
        finally:
            try:
                for _ in range(5):
                    await asyncio.sleep(0)
                self.ended.set()
            finally:
                self.is_over = True


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_TO_CLEAN_UP", 0.01)


@pytest.fixture
async def patient(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The block cancels no work a second time."""
    monkeypatch.setattr(background, "_TO_CLEAN_UP", 3600)
    async with asyncio.timeout(30):
        yield


async def is_left(use: Coroutine[None, None, None], go: asyncio.Event) -> bool:
    """Whether *use* leaves its block by itself; if not, *go* lets it leave, as cancellations do not end it."""
    using = asyncio.create_task(use)
    await asyncio.wait([using], timeout=10)
    left = using.done()
    go.set()
    await using
    return left


@pytest.mark.usefixtures("hasty")
async def test_work_that_swallows_cancellations_has_ended_when_the_block_has() -> None:
    stubborn, willing = Work(4), Work()

    async def use() -> None:
        async with aiolock.background(stubborn(), willing()):
            await stubborn.began.wait()

    assert await is_left(use(), stubborn.go)
    assert stubborn.left == 0
    assert stubborn.is_over
    assert willing.is_over


@pytest.mark.usefixtures("patient")
async def test_work_is_cancelled_once_while_it_cleans_up_and_its_locks_are_given_back(locks: LockClient) -> None:
    work = Work()

    async def under_lock() -> None:
        async with locks.lock("report"):
            await work()

    async with aiolock.background(under_lock()):
        await work.began.wait()
        assert locks.statistics().held == 1
    assert work.ended.is_set()
    assert not await locks.lock("report").locked()


@pytest.mark.usefixtures("patient")
async def test_a_task_that_is_cancelled_while_it_stops_the_work_leaves_none_behind() -> None:
    work = Work(3)

    async def use() -> None:
        async with aiolock.background(work()):
            await work.began.wait()

    task = asyncio.create_task(use())
    for left in (2, 1):
        await until(lambda left=left: work.left == left)
        assert not task.done()
        # This wakes the block, which cancels the work once more.
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert work.ended.is_set()


@pytest.mark.usefixtures("patient")
async def test_a_scope_that_is_cancelled_meanwhile_does_not_make_it_spin() -> None:
    work = Work(2)
    with anyio.CancelScope() as scope:
        async with aiolock.background(work()):
            await work.began.wait()
            (running,) = [task for task in asyncio.all_tasks() if task.get_name() == Work.__call__.__qualname__]

            async def cancel() -> None:
                await work.cancelled.wait()
                scope.cancel()
                for _ in range(50):
                    await asyncio.sleep(0)
                assert work.left == 1
                running.cancel()

            cancelling = asyncio.create_task(cancel())
    assert work.ended.is_set()
    await cancelling


async def test_the_exception_of_the_work_is_logged_at_once_and_raised_at_the_end_of_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError("the feed")

    work, through = Work(), False
    with pytest.raises(ZeroDivisionError, match="the feed"):
        async with aiolock.background(work(), fail()):
            await until(lambda: "the feed" in caplog.text)
            await asyncio.sleep(0)
            through = True
    assert through
    assert work.ended.is_set()
    assert [(record.name, record.levelno) for record in caplog.records] == [("aiolock", logging.ERROR)]


async def test_the_exception_of_the_block_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(LookupError):
        async with aiolock.background(fail()):
            await until(lambda: bool(caplog.records))
            raise LookupError


def test_an_object_that_is_no_coroutine_is_refused_at_once() -> None:
    async def work() -> None: ...

    with pytest.raises(TypeError, match=r"such as the one that work\(\) returns, not <function"):
        aiolock.background(work)  # type: ignore[arg-type]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio.wait_for does not swallow cancellations any more")
@pytest.mark.usefixtures("hasty")
async def test_work_ends_though_wait_for_swallows_its_cancellation() -> None:
    """As redis-py does on Python 3.11 when its answer arrives in the turn of the cancellation."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asked, answered, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        asked.set()
        await asyncio.wait_for(answer, 60)
        answered.set()
        await go.wait()

    async def use() -> None:
        async with aiolock.background(work()):
            await asked.wait()
            await asyncio.sleep(0)
            answer.set_result(None)

    assert await is_left(use(), go)
    assert answered.is_set(), "the first cancellation was not swallowed"
