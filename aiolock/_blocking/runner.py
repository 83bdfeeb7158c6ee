"""Runs coroutines of the asynchronous library for threads, in an event loop that begins at the first use."""

import asyncio
import atexit
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

from aiolock._blocking.deputy import Deputy, Desk, Job
from aiolock._blocking.loop import Close, Loop
from aiolock._errors import ClientClosedError
from aiolock._log import log
from aiolock._process import Lineage, Unique

T = TypeVar("T")

_LOOP_HERE = (
    "aiolock.blocking would block the event loop that runs in this thread. Use the asynchronous aiolock.LockClient "
    "there, with `async with` and `await`; or call this in a thread (aiolock.to_thread)"
)
_BEGINS = (
    "the handler of a signal has used a client of aiolock.blocking that the interrupted thread was just starting: let "
    "the handler raise, or call close()"
)
_PATCHED = (
    "aiolock.blocking needs real threads, and {} has replaced them in this process. Use another kind of worker, or the "
    "asynchronous aiolock.LockClient in a program on asyncio"
)


class Runner(Unique):
    """
    The event loop of one client, which begins at the first use; *close* closes the client, in the loop.

    Before that, *let_go* is called in the loop with the task of the thread that closes the client, because that thread
    leaves no block any more.
    """

    # Invariant: no deputy begins after the client is `_closed`.

    # An interrupt may come before `__init__`.
    _loop: Loop | None = None

    def __init__(self, close: Close, let_go: Callable[[asyncio.Task[object]], None]) -> None:
        self._close = close
        self._let_go = let_go
        self._closed = False
        self._local = threading.local()
        # A lock for the beginning, by the number of forks: a lock that the parent holds is never released in a child.
        # It is reentrant, because the handler of a signal may close the client while this thread begins.
        self._beginnings: dict[int, threading.RLock] = {}

    def result_of(self, job: Job[T]) -> T:
        """
        Send *job*, wait for it, and return its result.

        Raises:
            RuntimeError: an event loop runs in this thread, or greenlets have replaced the threads.
            ClientClosedError: the client is closed, or was used before a fork.
        """
        if is_in_loop():
            raise RuntimeError(_LOOP_HERE)
        self.send(job)
        return job.result.wait()

    def send(self, job: Job[Any]) -> None:
        """Send *job* to the deputy of the calling thread, without waiting."""
        loop = self._begun()
        deputy = job.deputy = self.deputy(loop)
        loop.call(deputy.take, job)

    def deputy(self, loop: Loop) -> Deputy:
        """The deputy of the calling thread."""
        desk: Desk | None = getattr(self._local, "desk", None)
        if desk is None:
            with self._beginning:
                self._refuse_if_closed()
                # The handler of a signal may have been here meanwhile.
                desk = vars(self._local).setdefault("desk", Desk(loop.deputy()))
        return desk.deputy

    @property
    def is_running(self) -> bool:
        """Whether the loop runs, in this process."""
        return self._loop is not None and self._loop.forks == Lineage.forks and not self._loop.ended

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the process in which the loop began."""
        return self._loop is not None and self._loop.forks != Lineage.forks

    @property
    def task(self) -> "asyncio.Task[object] | None":
        """The task that acts for the calling thread, if there is one."""
        desk: Desk | None = getattr(self._local, "desk", None)
        return None if desk is None else desk.deputy.task

    def check(self) -> None:
        """Raise `ClientClosedError` if the client cannot be used."""
        self._refuse_if_closed()
        self._refuse_if_forked()

    def close(self) -> None:
        """Close the client, and end the loop, if it has begun. Safe to call twice."""
        if is_in_loop():
            raise RuntimeError(_LOOP_HERE)
        self._refuse_if_forked()
        with self._beginning:
            self._closed = True
        if self._loop is not None:
            if self.task is not None:
                with suppress(ClientClosedError):
                    self._loop.call(self._let_go, self.task)
            self._loop.end()

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._loop is not None and not is_exiting() and self.is_running and not self._closed:
            self._loop.tell_end()
            text = "unclosed aiolock.blocking.LockClient: use `with LockClient(...)`, or call close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    @property
    def _beginning(self) -> "threading.RLock":
        return self._beginnings.setdefault(Lineage.forks, threading.RLock())

    def _begun(self) -> Loop:
        if self._loop is None:
            with self._beginning:
                self._refuse_if_closed()
                refuse_patched()
                self._begin()
        self._refuse_if_forked()
        assert self._loop is not None
        return self._loop

    def _begin(self) -> None:
        """Begin the loop, unless it has begun. The handler of a signal may use this client meanwhile, or close it."""
        if getattr(self._local, "begins", False):
            raise RuntimeError(_BEGINS)
        try:
            self._local.begins = True
            if self._loop is None:
                self._loop = Loop(self._close)
                _running.add(self)
        finally:
            self._local.begins = False
        if self._closed:
            self._loop.end()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClientClosedError("closed")

    def _refuse_if_forked(self) -> None:
        if self.forked:
            raise ClientClosedError("other process")


def is_in_loop() -> bool:
    """Whether an event loop runs in the calling thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_patched() -> None:
    """Raise if greenlets have replaced threads."""
    module = getattr(threading.get_ident, "__module__", None)
    if module != "_thread":
        found = next((name for name in ("gevent", "eventlet") if name in sys.modules), module)
        raise RuntimeError(_PATCHED.format(found))


_running: "WeakSet[Runner]" = WeakSet()


def _close_all() -> None:
    """Release all locks at the exit of the program; each client takes its `LockConfig.release_timeout` at most."""
    for runner in list(_running):
        if runner.is_running:
            try:
                runner.close()
            except Exception:
                log.exception("a client could not be closed at the exit of the program")


atexit.register(_close_all)
