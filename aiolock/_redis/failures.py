"""Fails many calls without blocking the event loop for everything else."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context

from aiolock._backend import Call

# Calls that fail in one turn of the loop. Each of them wakes a task.
_MOST_AT_ONCE = 128


class Failures:
    """
    Calls that will fail, in order.

    If a server goes away, all its calls fail at the same moment. If all callers woke in one turn of the loop, timers of
    locks on healthy servers would be late. A call that is answered before its turn to fail keeps its answer.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._next: deque[Call] = deque()
        self._fail: Callable[[Call], None] | None = None

    def __bool__(self) -> bool:
        """Whether some calls have not failed yet."""
        return bool(self._next)

    def tell(self, calls: Iterable[Call], fail: Callable[[Call], None]) -> None:
        """Fail *calls*, and earlier calls that have not failed yet, by *fail*: some now, the others soon."""
        idle = not self._next
        self._next.extend(calls)
        self._fail = fail
        if idle:
            self._tell_some()

    def _tell_some(self) -> None:
        assert self._fail is not None
        for _ in range(min(len(self._next), _MOST_AT_ONCE)):
            self._fail(self._next.popleft())
        if self._next:
            self._loop.call_soon(self._tell_some, context=Context())
