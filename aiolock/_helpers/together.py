"""
Several coroutines in one task, so that their first commands are sent in one turn of the loop.

They cannot run in several tasks, because the task that acquires a lock owns it.
"""

from asyncio import CancelledError, Future
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, TypeVar

from aiolock._errors import AioLockError, LeaseLostError, beside

T = TypeVar("T")
# Leaves a block, with an error or without.
Leave = Callable[[BaseException | None], Coroutine[Any, Any, None]]


class Begun(Generic[T]):
    """
    A coroutine that has run up to its first wait; the task that began it awaits the rest, or closes it.

    The commands before that wait have been submitted. `close` stops the coroutine where it waits, like Python does with
    a coroutine without references: its cleanup runs, but cannot wait.
    """

    # Invariant: the coroutine has ended, or waits for the last future that it has yielded (`_waits_for`; `None` means
    # that it waits for the next turn of the loop).

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
            # The event loop throws the error into this await: pass it on to the coroutine.
            except BaseException as error:
                self._resume(self._coroutine.throw, error)
            else:
                self._resume(self._coroutine.send, value)
        if self._error is not None:
            raise self._error
        return self._result

    def close(self) -> None:
        """Stop the coroutine, if it has not ended, because nothing awaits it any more."""
        if self._ended:
            return
        self._ended = True
        self._coroutine.close()
        if self._waits_for is not None:
            # asyncio would log an exception of the future that nothing retrieves.
            self._waits_for.cancel()

    def _resume(self, resume: Callable[[Any], Any], value: Any) -> None:
        try:
            self._waits_for = resume(value)
        except StopIteration as end:
            self._ended, self._result = True, end.value
        except (Exception, CancelledError) as error:
            self._ended, self._error = True, error


async def all_of(begun: Sequence[Begun[T]]) -> list[T]:
    """
    The results of all coroutines, in their order.

    This waits for all of them, even if one fails. Then it raises the first error of aiolock, a loss before others, with
    the other errors as notes. After any other error or a cancellation, the coroutines that have not ended are closed.
    """
    results: list[T] = []
    failures: list[AioLockError] = []
    try:
        for each in begun:
            try:
                results.append(await each)
            except AioLockError as error:
                failures.append(error)
    finally:
        for each in begun:
            each.close()
    if not failures:
        return results
    failures.sort(key=lambda each: not isinstance(each, LeaseLostError))
    for other in failures[1:]:
        failures[0].add_note(f"aiolock: {other}")
    raise failures[0]


def leave_all(leaves: Sequence[Leave], error: BaseException | None) -> Coroutine[Any, Any, None]:
    """
    Leave nested blocks, the innermost first, with *error* or without: all releases are sent before this returns.

    The answers are awaited in the reverse order: each wait is in an anyio scope, and the last one entered must end
    first.
    """
    begun: list[Begun[None]] = []
    passed = error
    for leave in leaves:
        try:
            begun.append(Begun(leave(passed)))
        # The loss replaces the cancellation that ended the body.
        except AioLockError as loss:
            passed = loss
    begun.reverse()
    return _left(begun, None if passed is error else passed)


async def _left(begun: Sequence[Begun[None]], loss: BaseException | None) -> None:
    with beside(loss):
        await all_of(begun)
    if loss is not None:
        raise loss
