"""
Several coroutines in one task, so that what they send first leaves in one turn of the loop.

A task of its own for each would not do: a lock is owned by the task that acquires it.
"""

from asyncio import CancelledError, Future
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

from aiolock._errors import AioLockError

T = TypeVar("T")
Leave = Callable[[BaseException | None], Coroutine[Any, Any, None]]  # A block, by an error.


class Begun(Generic[T]):
    """
    A coroutine that has run up to its first wait; to be awaited for the rest, or closed, by the task that began it.

    What it sends before it waits has been sent. Closed, it is left where it waits, as a coroutine is that nobody refers
    to any more: its cleanup runs, and may not wait.
    """

    # Invariant: it has ended, or waits for the future that it gave to the event loop last (`_waits_for`; `None` for a
    # mere turn of the loop).

    __slots__ = ("_coroutine", "_ended", "_error", "_result", "_waits_for")

    _result: T

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._ended = False
        self._error: BaseException | None = None
        self._waits_for: Future[Any] | None = None
        self._resume(coroutine.send, None)

    def __await__(self) -> Generator[Any, Any, T]:
        while not self._ended:
            if self._waits_for is not None and self._waits_for.done():
                self._resume(self._coroutine.send, None)
                continue
            try:
                value = yield self._waits_for
            except BaseException as error:  # Thrown in by the event loop, to which this is where the coroutine waits.
                self._resume(self._coroutine.throw, error)
            else:
                self._resume(self._coroutine.send, value)
        if self._error is not None:
            raise self._error
        return self._result

    def close(self) -> None:
        """Nobody awaits it any more."""
        self._ended = True
        self._coroutine.close()
        if self._waits_for is not None:
            self._waits_for.cancel()  # Else asyncio tells of an exception that it has, or gets, and nobody sees.

    def _resume(self, resume: Callable[[Any], Any], value: Any) -> None:
        try:
            self._waits_for = resume(value)
        except StopIteration as end:
            self._ended, self._result = True, end.value
        except (Exception, CancelledError) as error:
            self._ended, self._error = True, error


async def all_of(begun: Sequence[Begun[T]]) -> list[T]:
    """
    What all of them come to, in their order.

    All are waited for, whatever becomes of one; then the first error of aiolock is raised, with the others as notes.
    Any other error, and cancelling, leaves those that are yet to be awaited where they are.
    """
    results: list[T] = []
    failure: AioLockError | None = None
    try:
        for each in begun:
            try:
                results.append(await each)
            except AioLockError as error:
                if failure is None:
                    failure = error
                else:
                    failure.add_note(f"aiolock: {error}")
    finally:
        for each in begun:
            each.close()
    if failure is not None:
        raise failure
    return results


def leave_all(leaves: Sequence[Leave], error: BaseException | None) -> Coroutine[Any, Any, None]:
    """
    Leave blocks that stand in one another, the innermost first, by *error*: all is sent before this returns.

    The answers are awaited in reverse: each waits in a scope of anyio, and the one that was entered last ends first.
    """
    begun: list[Begun[None]] = []
    passed = error
    for leave in leaves:
        try:
            begun.append(Begun(leave(passed)))
        except AioLockError as loss:  # Which takes the place of the cancellation that the block was left by.
            passed = loss
    begun.reverse()
    return _left(begun, None if passed is error else passed)


async def _left(begun: Sequence[Begun[None]], loss: BaseException | None) -> None:
    try:
        await all_of(begun)
    except AioLockError as failure:
        if loss is None:
            raise
        loss.add_note(f"aiolock: {failure}")
    if loss is not None:
        raise loss
