"""
The task that acts for one thread in the event loop.

For the asynchronous library, this task is the owner of the locks that the thread acquires: no other task has its id, it
may acquire its locks again, and locks that it still holds at its end are freed, with a warning. It ends with its
thread.
"""

import asyncio
import sys
import threading
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

from aiolock._blocking.outcome import Outcome
from aiolock._core.owners import running_task
from aiolock._errors import ClientClosedError
from aiolock._process import Lineage

T = TypeVar("T")
Undo = Callable[[T], Coroutine[Any, Any, object]]


class Job(Generic[T]):
    """A coroutine function that runs for a thread, and its outcome; *undo* gives back a result that no thread got."""

    # Invariant: only the event loop uses the attributes other than `deputy` and `result`.

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], undo: Undo[T] | None = None) -> None:
        self.deputy: Deputy | None = None
        """The deputy that does the job, once the job is sent."""
        self.result: Outcome[T] = Outcome()
        self._work = work
        self._undo = undo
        # The task that does the job, while it runs.
        self._task: asyncio.Task[object] | None = None
        self._given_up = False
        self.is_taken: bool = False
        """Whether the deputy has the job already: an interrupted thread may send it twice."""

    async def run(self) -> None:
        """Do the job, in the deputy's task."""
        if self._given_up:
            return
        task = self._task = running_task()
        try:
            result = await self._work()
        except CancelledError:
            self.refuse()
            if not self._given_up:
                raise
        except BaseException as error:
            self.result.fail(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.result.set(result)
        finally:
            self._task = None
            if self._given_up:
                task.uncancel()

    def refuse(self) -> None:
        """Fail, because the loop ends before the job is done."""
        self.result.fail(ClientClosedError("closed"))

    def give_up(self) -> None:
        """Cancel or undo the job, because an interrupt has ended the thread's wait; a failed job needs nothing."""
        if self.deputy is not None and self.result.error is None:
            self.deputy.tell(self._give_up)

    def _give_up(self) -> None:
        assert self.deputy is not None
        if self._task is not None:
            self._given_up = True
            self._task.cancel()
        elif not self.result.is_set:
            self._given_up = True
        self.deputy.take(Job(self._take_back))

    async def _take_back(self) -> None:
        """Undo the job, which has ended, because no thread gets its result."""
        if self._undo is not None and self.result.is_set and self.result.error is None:
            await self._undo(self.result.value)


class Deputy:
    """Does the jobs of one thread, one after the other."""

    def __init__(self, call: Callable[[Callable[[], object]], None]) -> None:
        self._call = call
        self.task: asyncio.Task[object] | None = None
        """The task of this deputy, once it runs."""
        self.name: str = f"thread {threading.current_thread().name}"
        self._jobs: deque[Job[Any]] = deque()
        self._woken = asyncio.Event()
        self._is_over = False

    async def run(self) -> None:
        """Act for the thread as long as it lives."""
        self.task = running_task()
        try:
            while self._jobs or not self._is_over:
                if self._jobs:
                    await self._jobs.popleft().run()
                else:
                    self._woken.clear()
                    await self._woken.wait()
        finally:
            self._is_over = True
            for job in self._jobs:
                job.refuse()

    def take(self, job: Job[Any]) -> None:
        """Do *job* after the jobs before it, and only once; called in the loop."""
        if job.is_taken:
            return
        job.is_taken = True
        if self._is_over:
            job.refuse()
            return
        self._jobs.append(job)
        self._woken.set()

    def tell(self, function: Callable[[], object]) -> None:
        """Call *function* in the loop soon, unless the loop has ended, which ends the deputy, too."""
        with suppress(ClientClosedError):
            self._call(function)

    def end(self) -> None:
        """End the deputy, because its thread has ended; called in the loop."""
        self._is_over = True
        self._woken.set()


class Desk:
    """The entry of a deputy in a `threading.local`; the end of the thread deletes it."""

    # An interrupt may come before `__init__`.
    _forks: int | None = None

    def __init__(self, deputy: Deputy) -> None:
        self.deputy: Deputy = deputy
        self._forks = Lineage.forks

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # In a forked child, the thread and the loop are the parent's.
        if not is_exiting() and self._forks == Lineage.forks:
            self.deputy.tell(self.deputy.end)
