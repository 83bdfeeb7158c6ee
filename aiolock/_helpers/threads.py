"""`to_thread`: runs a function in a thread, and always waits for its end."""

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
    Call *function* in a thread, and return its result, as `asyncio.to_thread` does; but always wait for its end.

    A thread cannot be cancelled. `asyncio.to_thread` returns at once if its caller is cancelled, and an ``async with
    lock`` around it frees the lock while the thread still works. This function waits for the thread, however often the
    caller is cancelled, and raises the cancellation afterwards. So the lock is kept until the thread has ended. Closing
    the client waits for it as for every block: for 60 % of `LockConfig.release_timeout`.

    If the lock is lost, nothing can stop the thread: let it call `Lease.check` before each step that must not be done
    without the lock.

    Raises:
        asyncio.CancelledError: the caller was cancelled; an exception of *function* is its cause. If *function* has not
            begun by then, because all threads are busy, it is not called.
        Exception: the exception of *function*.
    """
    # A cancelled task does not begin.
    await anyio.lowlevel.checkpoint()
    call = functools.partial(copy_context().run, function, *args, **kwargs)
    cancelled: list[asyncio.CancelledError] = []
    results: list[R] = []

    def run() -> None:
        try:
            if not cancelled:
                results.append(call())
        # A future of asyncio cannot raise `StopIteration`: the caller would wait for ever.
        except StopIteration as stop:
            raise RuntimeError("the function raised StopIteration") from stop

    work = asyncio.get_running_loop().run_in_executor(None, run)
    # Without the shield, a cancelled scope of anyio would end each wait at once.
    with anyio.CancelScope(shield=True):
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
