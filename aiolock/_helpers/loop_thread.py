"""An event loop in a thread of its own."""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from aiolock._errors import ClientClosedError
from aiolock._process import Lineage

Live = Callable[[], Coroutine[Any, Any, None]]


class _Loop(asyncio.SelectorEventLoop):
    """
    An event loop that can still look up host names, and end, when the main thread has ended.

    asyncio looks them up in a pool of threads, and the pools of Python take no more work then, though other threads may
    run on for long. This loop then stands still until the answer comes.
    """

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        try:
            return await super().getaddrinfo(host, port, **hints)
        except RuntimeError:
            return socket.getaddrinfo(host, port, **hints)

    async def shutdown_default_executor(self, *limit: Any) -> None:
        # In some versions of Python it needs a thread, and none can begin at the end of the program.
        with suppress(RuntimeError):
            await super().shutdown_default_executor(*limit)


class LoopThread:
    """
    A thread whose event loop runs *live*, and ends with it; after the loop is closed, the thread calls *over*.

    It is a daemon: a program that ends does not wait for it.
    """

    # Invariant: functions that `call` has accepted are called before the loop stops. There is no lock for that: the
    # handler of a signal, or the garbage collector, may run in a thread in the middle of `call`, and wait for the end.

    def __init__(self, live: Live, over: Callable[[], object]) -> None:
        self.forks: int = Lineage.forks
        """The process in which it runs: its number of forks."""
        self.ended: bool = False
        # The accepted functions that were not called yet.
        self._calls: deque[Callable[[], object]] = deque()
        # For callbacks, so that they keep nothing of the calling thread's context alive.
        self._context = Context()
        self._loop = _Loop()
        self._thread = threading.Thread(target=self._run, args=(live, over), name="aiolock", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the thread runs in this process."""
        return not self.ended and self.forks == Lineage.forks

    def call(self, function: Callable[..., object], *args: object) -> None:
        """
        Call *function* in the loop soon, without waiting.

        Raises:
            ClientClosedError: the loop has ended.
        """
        accepted = partial(function, *args)
        self._calls.append(accepted)
        # If the end comes later, `refuse_calls` finds the function; if it was before, the loop may have called it.
        if self.ended and self._withdraw(accepted):
            raise ClientClosedError("closed")
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._call_all, context=self._context)

    def refuse_calls(self) -> None:
        """Accept no more calls, because the loop is about to end."""
        if not self.ended:
            self.ended = True
            self._call_all()

    def join(self, seconds: float | None = None) -> None:
        """Wait *seconds* at most for the end of the thread."""
        self._thread.join(seconds)

    def _withdraw(self, accepted: Callable[[], object]) -> bool:
        """Take *accepted* back; returns whether that was possible."""
        with suppress(ValueError):
            self._calls.remove(accepted)
            return True
        return False

    def _call_all(self) -> None:
        while self._calls:
            self._calls.popleft()()

    def _run(self, live: Live, over: Callable[[], object]) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._to_end(live), context=self._context)
        finally:
            self.refuse_calls()
            over()

    async def _to_end(self, live: Live) -> None:
        try:
            await live()
        finally:
            self.refuse_calls()
