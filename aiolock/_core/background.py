"""`background`: tasks that run beside a block, and have ended when it is left."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from typing import Any, TypeVar

import anyio

from aiolock._log import log

_TO_CLEAN_UP = 0.5  # Seconds from one cancellation to the next: what cleans up is not broken into before.

Work = Coroutine[Any, Any, object]
T = TypeVar("T")


def background(*work: Work) -> AbstractAsyncContextManager[None]:
    """
    Run coroutines beside a block, and end them with it.

    Write ``async with aiolock.background(lead(locks), count(locks)): ...``.

    Each is a task of its own, and so an owner of its own. At the end of the block they are cancelled, again every half
    second until they have ended: code that swallows a cancellation, as `asyncio.wait_for` may on Python 3.11, cannot
    keep them alive. Cancelling whoever leaves the block does not leave them behind either.

    Put it inside of the ``async with`` of the `LockClient` that the work uses, so that it cleans up under its locks.

    Raises:
        TypeError: at once; something is not a coroutine, a function that was not called, for example.
        Exception: at the end of the block, what the work raised; of several, the first in their order. It is logged
            when it happens, and the block goes on until then. What the block itself raises comes first.
    """
    check_work(*work)
    return _running(work)


class Works:
    """Tasks that are ended together, however often they swallow what cancels them."""

    def __init__(self, failed: Callable[[asyncio.Task[Any], BaseException], object]) -> None:
        self.to_clean_up: float = _TO_CLEAN_UP  # Seconds from one cancellation to the next.
        self._failed = failed  # Called when one has, with what.
        self._tasks: list[asyncio.Task[Any]] = []
        self._again: asyncio.TimerHandle | None = None  # Cancels once more what has not ended by then.

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *work* in a task of its own."""
        task = asyncio.create_task(work, name=getattr(work, "__qualname__", None))
        self._tasks.append(task)
        task.add_done_callback(self._ended)
        return task

    @property
    def running(self) -> list[asyncio.Task[Any]]:
        """Those that have not ended."""
        return [task for task in self._tasks if not task.done()]

    @property
    def stopping(self) -> bool:
        """Whether they have been cancelled, and will be again until they have ended."""
        return self._again is not None

    @property
    def failure(self) -> BaseException | None:
        """What they raised; of several, the first in their order."""
        return next((error for task in self._tasks if (error := _failure(task)) is not None), None)

    def stop(self) -> None:
        """Cancel them, and again until they have ended."""
        self._go_on()
        running = self.running
        for task in running:
            task.cancel()
        if running:
            context = Context()
            self._again = asyncio.get_running_loop().call_later(self.to_clean_up, self.stop, context=context)

    async def end(self, *, insist: bool = False) -> None:
        """Stop them, and wait until they have ended; as `ended`."""
        if not self.stopping:
            self.stop()
        try:
            await self.ended(insist=insist)
        finally:
            self._go_on()

    async def ended(self, *, insist: bool = False) -> None:
        """
        Wait until they have ended. A cancellation of the caller's stops them, and is let out then, not before.

        If they are being stopped, another breaks into their cleanup only if *insist* is set.
        """
        cancelled: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):  # A scope that is cancelled would break off each wait at once.
            while running := self.running:
                try:
                    await asyncio.wait(running)
                except asyncio.CancelledError as error:
                    cancelled = error
                    if insist or not self.stopping:
                        self.stop()
        if cancelled is not None:
            raise cancelled

    def _go_on(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if (error := _failure(task)) is not None:
            self._failed(task, error)


def _log_failure(task: asyncio.Task[Any], error: BaseException) -> None:
    """It is raised at the end of the block only, which may be that of the program."""
    log.error("the background work %r failed, and is not started again", task.get_name(), exc_info=error)


def check_work(*work: object) -> None:
    """Raise `TypeError` if any is no coroutine, such as a function that was not called."""
    for each in work:
        if not asyncio.iscoroutine(each):
            raise TypeError(f"background needs coroutines, as in background(work()), not {each!r}")


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


def _failure(task: asyncio.Task[Any]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None
