"""`to_thread`: a function in a thread, which is waited for whatever happens."""

import asyncio
import functools
from collections.abc import Callable
from contextvars import copy_context
from typing import ParamSpec, TypeVar

import anyio
import anyio.lowlevel

P = ParamSpec("P")
R = TypeVar("R")


async def to_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """
    Call *function* in a thread, and return what it returns, as `asyncio.to_thread` does; but not before it has ended.

    A thread cannot be cancelled. `asyncio.to_thread` returns at once when its caller is, and an ``async with lock``
    around it frees its lock while the thread works on. This waits for the thread, however often the caller is
    cancelled, and lets the cancellation out then. So the lock is kept until the thread has ended, and closing the
    client waits for it as for every block, 0.6 of `LockConfig.release_timeout`.

    When the lock is lost, nobody can stop the thread: let it call `Lease.check` before each step that must not be done
    without the lock.

    Raises:
        asyncio.CancelledError: the caller was cancelled; what *function* raised is its cause. A function that has not
            begun by then, because every thread is at work, is not called.
        Exception: what *function* raised.
    """
    await anyio.lowlevel.checkpoint()  # Whoever is cancelled already begins nothing.
    call = functools.partial(copy_context().run, function, *args, **kwargs)
    cancelled: list[asyncio.CancelledError] = []
    results: list[R] = []

    def run() -> None:
        try:
            if not cancelled:
                results.append(call())
        except StopIteration as stop:  # No future of asyncio takes one: its caller would wait for ever.
            raise RuntimeError("the function raised StopIteration") from stop

    work = asyncio.get_running_loop().run_in_executor(None, run)
    with anyio.CancelScope(shield=True):  # A scope that is cancelled would break off each wait at once.
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as error:
                cancelled.append(error)
    if cancelled:
        raise cancelled[-1] from work.exception()
    work.result()
    await anyio.lowlevel.checkpoint_if_cancelled()
    return results[0]
