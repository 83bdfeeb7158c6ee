"""`background`: tasks that run beside a block, and have ended when it is left."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio

logger = logging.getLogger("aiolock")

_TO_CLEAN_UP = 0.5  # Seconds from one cancellation to the next: what cleans up is not broken into before.

Work = Coroutine[Any, Any, object]


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
    for each in work:
        if not asyncio.iscoroutine(each):
            raise TypeError(f"background needs coroutines, as in background(work()), not {each!r}")
    return _running(work)


@asynccontextmanager
async def _running(work: Sequence[Work]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each, name=getattr(each, "__qualname__", None)) for each in work]
    for task in tasks:
        task.add_done_callback(_log_failure)
    try:
        yield
    finally:
        await _end(tasks)
    for task in tasks:
        if (error := _failure(task)) is not None:
            raise error


async def _end(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Cancel *tasks* until they have ended. A cancellation of the caller's is let out then, and not before."""
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):  # A scope that is cancelled would break off each wait at once.
        while running := [task for task in tasks if not task.done()]:
            for task in running:
                task.cancel()
            try:
                await asyncio.wait(running, timeout=_TO_CLEAN_UP)
            except asyncio.CancelledError as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


def _failure(task: asyncio.Task[object]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


def _log_failure(task: asyncio.Task[object]) -> None:
    if (error := _failure(task)) is not None:
        logger.error("the background work %r failed, and is not started again", task.get_name(), exc_info=error)
