"""`background`: tasks that run during a block, and have ended when the block is left."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from typing import Any, TypeVar

import anyio

from aiolock._log import log

# Seconds between two cancellations, in which the cleanup is not disturbed.
_TO_CLEAN_UP = 0.5

Work = Coroutine[Any, Any, object]
T = TypeVar("T")


def background(*work: Work) -> AbstractAsyncContextManager[None]:
    """
    Run coroutines as tasks during a block, and end them with it.

    Write ``async with aiolock.background(lead(locks), count(locks)): ...``.

    Each coroutine runs in a task of its own, which is an owner of its own. At the end of the block the tasks are
    cancelled, again every half second until they have ended: code that swallows a cancellation, as `asyncio.wait_for`
    may on Python 3.11, cannot keep them alive. If the task that leaves the block is cancelled, it still waits for their
    ends.

    Put the block inside of the ``async with`` of the `LockClient` that the work uses, so that the work can clean up
    under its locks.

    Raises:
        TypeError: at once; an argument is not a coroutine. It may be a function that was not called.
        Exception: at the end of the block, the exception of the work; if several tasks fail, the first exception. It is
            logged when it happens, and the block goes on. An exception of the block itself comes first.
    """
    check_work(*work)
    return _running(work)


class Works:
    """Tasks that are ended together, however often they swallow their cancellation."""

    def __init__(self, failed: Callable[[asyncio.Task[Any], BaseException], object]) -> None:
        # Seconds from one cancellation to the next.
        self.to_clean_up: float = _TO_CLEAN_UP
        # Called with a failed task and its exception.
        self._failed = failed
        # The tasks whose end has not been noted.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._failure: BaseException | None = None
        # Whether a task is being started, and how often the tasks were cancelled.
        self._begins, self._stops = False, 0
        # The timer that will cancel the remaining tasks again.
        self._again: asyncio.TimerHandle | None = None

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *work* in a task of its own."""
        # An eager task begins here, and may stop the tasks before it is one of them.
        began, self._begins, stops = self._begins, True, self._stops
        try:
            task = asyncio.create_task(work, name=getattr(work, "__qualname__", None))
        finally:
            self._begins = began
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        if self._stops != stops:
            self.stop()
        return task

    @property
    def is_busy(self) -> bool:
        """Whether a task has not ended, or is just beginning."""
        return self._begins or bool(self.running)

    @property
    def running(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended."""
        return [task for task in self._tasks if not task.done()]

    @property
    def stopping(self) -> bool:
        """Whether the tasks were cancelled, and will be cancelled again until they have ended."""
        return self._again is not None

    @property
    def failure(self) -> BaseException | None:
        """The exception of a task; if several tasks failed, that of the first one."""
        if self._failure is not None:
            return self._failure
        return next((error for task in self._tasks if (error := _error_of(task)) is not None), None)

    def stop(self) -> None:
        """Cancel the tasks, again and again until they have ended."""
        self._stops += 1
        self._drop_timer()
        running = self.running
        for task in running:
            task.cancel()
        if running:
            context = Context()
            self._again = asyncio.get_running_loop().call_later(self.to_clean_up, self.stop, context=context)

    async def end(self, *, insist: bool = False) -> None:
        """Stop the tasks, and wait until they have ended; see `ended`."""
        if not self.stopping:
            self.stop()
        try:
            await self.ended(insist=insist)
        finally:
            self._drop_timer()

    async def ended(self, *, insist: bool = False) -> None:
        """
        Wait until the tasks have ended. If the caller is cancelled, the tasks are stopped, and the error is raised
        then.

        If they are being stopped already, a cancellation of the caller breaks into their cleanup only with *insist*.
        """
        cancelled: asyncio.CancelledError | None = None
        while running := self.running:
            try:
                # Without the shield, a cancelled scope of anyio would end each later wait at once.
                with anyio.CancelScope(shield=self.stopping or cancelled is not None):
                    await asyncio.wait(running)
            except asyncio.CancelledError as error:
                cancelled = error
                if insist or not self.stopping:
                    self.stop()
        if cancelled is not None:
            raise cancelled

    def _drop_timer(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._failure = self.failure
        del self._tasks[task]
        if (error := _error_of(task)) is not None:
            self._failed(task, error)


def _log_failure(task: asyncio.Task[Any], error: BaseException) -> None:
    """Log *error* now, because it is raised only at the end of the block, which may be the end of the program."""
    log.error("the background work %r failed, and is not started again", task.get_name(), exc_info=error)


def check_work(*work: object) -> None:
    """Raise `TypeError` if an argument is not a coroutine, such as a function that was not called."""
    for each in work:
        if not asyncio.iscoroutine(each):
            raise TypeError(f"the work must be a coroutine, such as the one that work() returns, not {each!r}")


@asynccontextmanager
async def _running(work: Sequence[Work]) -> AsyncIterator[None]:
    works = Works(_log_failure)
    for each in work:
        _ = works.start(each)
    try:
        yield
    finally:
        await works.end(insist=True)
    if (error := works.failure) is not None:
        raise error


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None
