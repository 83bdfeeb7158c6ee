"""The term of a leader, and work that runs only while it leads."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar, final
from weakref import ref

from aiolock._config import Timing
from aiolock._core.held import Body
from aiolock._core.hold import margin
from aiolock._core.lease import Lease, Loss, release_unawaited
from aiolock._core.owners import running_task
from aiolock._core.session import Sessions
from aiolock._errors import AioLockError, LeaseLostError, NotHeldError
from aiolock._helpers.background import Work, Works, check_work
from aiolock._primitives.entered import Entered
from aiolock._process import Unique
from aiolock._types import quoted

# Seconds before the end of the lease at which a leader that cannot renew it begins to stop, at most.
_TO_STOP = 2.0
# The greatest part of a short lease that a leader takes to stop.
_OF_A_LEASE = 1 / 4
# How often work that swallows cancellations is cancelled in that time.
_CANCELLATIONS = 4

T = TypeVar("T")


def _time_to_stop(timing: Timing, names: int) -> float:
    """
    The seconds before the end of the lease at which work begins to stop, so that a renewal can come before that.

    The client has that many *names* in use.
    """
    from_due_to_end = timing.lease - margin(timing.lease, timing, names) - timing.renew_interval
    return min(_TO_STOP, timing.lease * _OF_A_LEASE, from_due_to_end / 2)


@final
class Term(Unique, Entered["Term"]):
    """
    The time for which one process leads; given by `AsyncLeader`.

    ``async with term:`` cancels its body when the term is over, and gives the lock back at the end. Work that was
    started under a term is cancelled when the term is over, again and again until it has ended; then the lock is given
    back. A leader that cannot renew its lease begins to stop before the lease ends.
    """

    __slots__ = ("_body", "_has_raised", "_stepped_down", "_timer", "_to_stop", "_watch", "_works", "lease")

    def __init__(self, sessions: Sessions, lease: Lease) -> None:
        super().__init__(sessions)
        self.lease: Lease = lease
        """The lease of the leader's lock."""
        self._to_stop = _time_to_stop(lease._session.timing, len(lease._session.entries))
        self._works = Works(self._work_failed)
        self._watch = _TermBody(lease, self._works, self._to_stop / _CANCELLATIONS)
        self._stepped_down = False
        # The body of an `async with`.
        self._body: _Body | None = None
        # Whether the failure of the work was raised; it is raised only once.
        self._has_raised = False
        # Checks whether it is time to stop.
        self._timer: asyncio.TimerHandle | None = None
        lease._hold.bodies.append(self._watch)
        self._look()

    @property
    def name(self) -> str:
        """The name of the leader."""
        return self.lease.name

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier leader."""
        return self.lease.token

    @property
    def lost(self) -> Loss:
        """Whether the lock is lost: ``term.lost.is_set()``, ``await term.lost``; a lock given back is not lost."""
        return self.lease.lost

    def check(self) -> None:
        """
        Raise if the term is over; cheap, no I/O.

        Raises:
            LeaseLostError: the lock is lost, or about to be.
            NotHeldError: the lock was given back, or `step_down` is about to give it back.
        """
        if self._stepped_down and not self.lost.is_set():
            why = "is over, because step_down() has ended its term"
            raise NotHeldError.of_lease(self.name, self.lease._hold.owner, self.lease._hold.kind, why)
        self.lease.check()

    def step_down(self) -> None:
        """
        End the term: cancel its work, and give the lock back when the work has ended. No I/O; any task may call it.

        Then `run` returns, and a loop runs for election again after its pause. The body of an ``async with`` or of a
        loop is not cancelled; an ``async with`` gives the lock back at its end. Does nothing when the term is over.
        """
        self._stepped_down = True
        self._works.stop()
        self._let_go()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """
        Run *work* in a task of its own, which ends before the lock is given back; returns the task.

        If the work fails, the term is over, and its exception is raised at the end of the block, or in the loop.

        Raises:
            TypeError: *work* is not a coroutine; it may be a function that was not called.
            LeaseLostError, NotHeldError: the term is over; *work* is not run.
        """
        check_work(work)
        try:
            self.check()
        except AioLockError:
            work.close()
            raise
        started = self._works.start(work)
        started.add_done_callback(self._work_ended, context=Context())
        # The callback keeps the body's task alive: Python must not destroy the owner of the lock while work runs.
        if self._body is not None:
            started.add_done_callback(partial(_keep_alive, self._body.task()))
        return started

    async def run(self, *work: Work) -> None:
        """
        Run *work* until it has ended or the term is over, and give the lock back: for ``async for term in ...``.

        Also returns if the lock is lost, unless the work fails then: another process leads, or this one in the loop's
        next term. Cancelling `run` stops the work, waits until the work has ended, and gives the lock back.

        Raises:
            TypeError: as in `start`.
            RuntimeError, NotHeldError: the term is in an ``async with`` already, or is over.
            BackendError: Redis did not answer the release; aiolock goes on trying.
            Exception: the exception of the work; if several works fail, the first exception.
        """
        check_work(*work)
        try:
            if self._blocks:
                raise RuntimeError(
                    f"leader {quoted(self.name)}: this term is in an `async with` already, which gives it back: "
                    "write `await term.start(work)` there, or `async for term in leader: await term.run(work)`"
                )
            async with self:
                for each in work:
                    _ = self.start(each)
                await self._works.ended()
        except LeaseLostError:
            if not self.lost.is_set():
                raise
            self._raise_failure()
        finally:
            # Work that was started has ended by now; this closes work that was not.
            for each in work:
                each.close()

    def __repr__(self) -> str:
        return f"<Term of {self.lease!r}>"

    async def _begin(self) -> "tuple[AbstractAsyncContextManager[Term], Term]":
        block = self._block()
        return block, await block.__aenter__()

    @asynccontextmanager
    async def _block(self) -> AsyncIterator["Term"]:
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.lease._entered())
            try:
                with _Body(running_task()) as self._body:
                    yield self
            finally:
                await self._end()
            self._raise_failure()

    async def _end(self) -> None:
        """End the started work, and stop watching the term."""
        try:
            # Without work, do not wait: Python may be destroying the task that would wait.
            if self._works.running:
                await self._works.end()
        finally:
            self._watch_no_more()

    def _watch_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with suppress(ValueError):
            self.lease._hold.bodies.remove(self._watch)

    async def _give_back(self) -> None:
        """Give the lock back, if no block did."""
        try:
            await self._end()
        finally:
            if not self.lease.given_back:
                await self.lease.release()

    def _work_ended(self, work: object) -> None:
        """Give the lock back after a loss, which may have come with the end of the loop's task."""
        if self._stepped_down or self.lease._hold.loss is not None:
            self._let_go()

    def _let_go(self) -> None:
        """Give the lock back, without waiting for the answer, if no running work or block will do it."""
        if not self._works.is_busy and not self.lease._scoped and not self.lease.given_back:
            self._watch_no_more()
            release_unawaited([self.lease])

    def _raise_failure(self) -> None:
        failure, over = self._works.failure, self._stepped_down or self.lost.is_set()
        # Work that was told of the end of its own term has not failed.
        told = over and isinstance(failure, (LeaseLostError, NotHeldError)) and failure.name == self.name
        if failure is not None and not told and not self._has_raised:
            self._has_raised = True
            raise failure

    def _work_failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        """End the term. A loss has cancelled the body already; work that cleans up is left alone."""
        if not self._works.stopping:
            self._works.stop()
        if self._body is not None and not self.lost.is_set():
            self._body.cancel()

    def _look(self) -> None:
        """If the lease was not renewed in time, begin to stop while no other process can lead."""
        hold = self.lease._hold
        left = hold.deadline - monotonic() - self._to_stop
        if self.lease.given_back:
            # An outer lease of the same owner keeps the hold, whose end is not that of this term.
            self._watch_no_more()
        elif left <= 0:
            hold.tell_early(hold.why_over)
            # Without work or a block, nothing gives the lock back after the loss: it ends with its lease.
            hold.watch.renews = hold.watch.renews and hold.in_use
        elif not hold.ended:
            self._timer = asyncio.get_running_loop().call_later(left, self._look, context=Context())


class _Body:
    """The body of a block, which a failure of its work cancels; an `asyncio.timeout` would keep its task alive."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = ref(task)
        self._cancelling = task.cancelling()
        self._cancelled = self._left = False

    def cancel(self) -> None:
        """Cancel the body, once, unless the block was left."""
        if (task := self.task()) is not None and not self._cancelled and not self._left:
            self._cancelled = task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Take the cancellation back, and swallow it unless the user has cancelled the body as well."""
        self._left = True
        if (task := self.task()) is None or not self._cancelled:
            return False
        return task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)


class _TermBody(Body):
    """The body of a term's hold; the hold tells it about a loss."""

    is_work = True

    def __init__(self, lease: Lease, works: Works, cancel_every: float) -> None:
        self.lease: Lease = lease
        self._works = works
        self._cancel_every = cancel_every

    @property
    def has_lost_its_task(self) -> bool:
        """Whether no work of the term runs."""
        return not self._works.is_busy

    def cancel_if_lost(self) -> None:
        """Stop the work, because the lock is lost."""
        self._works.to_clean_up = min(self._works.to_clean_up, self._cancel_every)
        self._works.stop()


def _keep_alive(body: object, work: object) -> None:
    """Do nothing: a `partial` of this function keeps *body* alive."""
