"""AsyncLeader: one leader among many processes, and what it does only while it leads."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import Context
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar, final
from weakref import ref

from aiolock._core.background import Work, Works, check_work
from aiolock._core.lease import Lease, Loss
from aiolock._core.owners import running_task
from aiolock._errors import AioLockError, BackendError, ClientClosedError, LeaseLostError, ReplicationError
from aiolock._log import log
from aiolock._primitives.entered import Entered
from aiolock._primitives.rlock import AsyncRLock
from aiolock._process import Unique
from aiolock._types import Duration, Holder, seconds

_TO_STOP = 2.0  # Seconds before the end of its lease at which a leader that cannot renew it begins to stop,
_OF_A_LEASE = 1 / 4  # but no more of a short lease than this;
_CANCELLATIONS = 4  # and how often work is cancelled by then that swallows it.

T = TypeVar("T")


@final
class Term(Unique, Entered["Term"]):
    """
    The time for which one process leads; what `AsyncLeader` gives.

    ``async with term:`` cancels its body when the term is over, and gives the lock back at the end. What is started
    under a term is cancelled when the term is over, again and again until it has ended, and the lock is given back
    when it has. A leader that cannot renew its lease begins with that before the lease ends.
    """

    __slots__ = ("_body", "_has_raised", "_timer", "_to_stop", "_watch", "_works", "lease")

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self.lease: Lease = lease
        """The lease of the lock that the leader has."""
        self._to_stop = min(_TO_STOP, lease.lease * _OF_A_LEASE)
        self._works = Works(self._work_failed)
        self._watch = _Watch(self._works, self._to_stop / _CANCELLATIONS)
        self._body: _Body | None = None  # Of a block.
        self._has_raised = False  # What failed in it was raised once.
        self._timer: asyncio.TimerHandle | None = None  # Looks whether it is time to stop.
        lease._hold.bodies.append(self._watch)
        self._look()

    @property
    def name(self) -> str:
        """What it leads."""
        return self.lease.name

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier leader."""
        return self.lease.token

    @property
    def lost(self) -> Loss:
        """Whether it leads no more: ``term.lost.is_set()``, ``await term.lost``; not when it gave the lock back."""
        return self.lease.lost

    def check(self) -> None:
        """
        Raise if the term is over; cheap, no I/O.

        Raises:
            LeaseLostError: the lock is lost, or about to be.
            NotHeldError: it was given back.
        """
        self.lease.check()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """
        Run *work* in a task of its own, which has ended when the lock is given back; the task.

        When the work fails, the term is over, and its exception is raised where the block or the loop goes on.

        Raises:
            TypeError: *work* is no coroutine, but a function that was not called, for example.
            LeaseLostError, NotHeldError: the term is over; *work* is not run.
        """
        check_work(work)
        try:
            self.check()
        except AioLockError:
            work.close()
            raise
        started = self._works.start(work)
        if self._body is not None:  # While work runs, whoever owns its lock is not to be destroyed.
            started.add_done_callback(partial(_forget, self._body.task()))
        return started

    async def run(self, *work: Work) -> None:
        """
        Run *work* until it has ended or the term is over, and give the lock back: for ``async for term in ...``.

        Returns also when the lock was lost: the next term is another's, or the loop's next. Cancelling stops the work,
        waits until it has ended, and gives the lock back.

        Raises:
            TypeError: as `start`.
            RuntimeError, NotHeldError: the term is in an ``async with`` already, or is over.
            BackendError: Redis did not answer the release; it is tried on.
            Exception: what the work raised; of several, the first in their order.
        """
        check_work(*work)
        try:
            if self._blocks:
                raise RuntimeError(
                    f"leader {self.name!r}: this term is in an `async with` already, which gives it back: "
                    "`await term.start(work)` there, or use `async for term in leader: await term.run(work)`"
                )
            async with self:
                for each in work:
                    _ = self.start(each)
                await self._works.ended()
        except LeaseLostError:
            if not self.lost.is_set():
                raise
        finally:
            for each in work:
                each.close()  # What was not started: else it has ended.

    def __repr__(self) -> str:
        return f"<Term of {self.lease!r}>"

    async def _begin(self) -> "tuple[AbstractAsyncContextManager[Term], Term]":
        block = self._block()
        return block, await block.__aenter__()

    @asynccontextmanager
    async def _block(self) -> AsyncIterator["Term"]:
        async with self.lease:
            with _Body(running_task()) as self._body:
                try:
                    yield self
                finally:
                    await self._end()
            self._raise_failure()

    async def _end(self) -> None:
        """End what was started; nothing watches over the term any more."""
        try:
            if self._works.running:
                await self._works.end()  # Where nothing runs, its task may be destroyed, which can wait for nothing.
        finally:
            if self._timer is not None:
                self._timer.cancel()
            with suppress(ValueError):
                self.lease._hold.bodies.remove(self._watch)

    async def _give_back(self) -> None:
        """Give back what no block did."""
        try:
            await self._end()
        finally:
            if not self.lease.given_back:
                await self.lease.release()

    def _raise_failure(self) -> None:
        if (failure := self._works.failure) is not None and not self._has_raised:
            self._has_raised = True
            raise failure

    def _work_failed(self, task: asyncio.Task[Any], error: BaseException) -> None:
        """The term is over; if the lock is lost, that is told already. What cleans up by now goes on with that."""
        if not self._works.stopping:
            self._works.stop()
        if self._body is not None and not self.lost.is_set():
            self._body.cancel()

    def _look(self) -> None:
        """If the lease was not renewed in time, begin to stop while nobody else can lead."""
        hold = self.lease._hold
        left = hold.deadline - monotonic() - self._to_stop
        if left <= 0:
            self.lease._session.leases.tell_early(hold)
        elif not hold.ended:
            self._timer = asyncio.get_running_loop().call_later(left, self._look, context=Context())


class _Body:
    """The body of a block, to be cancelled when work has failed; an `asyncio.timeout` would keep its task alive."""

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = ref(task)
        self._cancelling = task.cancelling()
        self._cancelled = self._left = False

    def cancel(self) -> None:
        """Cancel it, once, unless it was left."""
        if (task := self.task()) is not None and not self._cancelled and not self._left:
            self._cancelled = task.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Take the cancellation back, which goes no further unless one of the user's own came as well."""
        self._left = True
        if (task := self.task()) is None or not self._cancelled:
            return False
        return task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)


class _Watch:
    """What the hold of a term tells that it is lost."""

    def __init__(self, works: Works, hurry: float) -> None:
        self._works = works
        self._hurry = hurry  # Seconds from one cancellation to the next, once it is lost.

    @property
    def has_lost_its_task(self) -> bool:
        """Whether nothing of it runs."""
        return not self._works.running

    def lost(self) -> None:
        """The lock is lost."""
        self._works.to_clean_up = min(self._works.to_clean_up, self._hurry)
        self._works.stop()

    def look(self, due: float) -> None:
        """The end of the hold may be near: the term looks by itself."""


def _forget(body: object, work: object) -> None:
    pass


@final
class AsyncLeader(Entered[Term]):
    """
    The leader *name* among all that stand for it; made by `LockClient.leader`.

    Who has the lock of that name leads. ``async with locks.leader(name) as term:`` waits until this task leads, for one
    term; ``async for term in locks.leader(name):`` stands again after each; `run` does so with one function. The others
    wait, which costs nothing but a message when the leader goes: one of them leads a moment after a leader that ended,
    and one lease after one that was killed.
    """

    __slots__ = ("_lock", "_pause")

    def __init__(self, lock: AsyncRLock, pause: Duration) -> None:
        super().__init__()
        self._lock = lock
        self._pause = seconds(pause, "pause", zero=True)

    @property
    def name(self) -> str:
        """What is led."""
        return self._lock.name

    async def run(self, work: Callable[[Term], Coroutine[Any, Any, object]]) -> None:
        """
        Stand for election, and run ``work(term)`` whenever this process leads: for `background`.

        Goes on until it is cancelled, the client is closed, or *work* fails. Work that returns ends its term.
        Cancelling is as of `Term.run`.

        Raises:
            NotALockError: the key is something else.
            Exception: what *work* raised.
        """
        async for term in self:
            await term.run(work(term))

    async def holder(self) -> Holder | None:
        """Who leads, by Redis; ``None`` if nobody does. Waits and raises as `AsyncRLock.holder`."""
        return await self._lock.holder()

    async def __aiter__(self) -> AsyncGenerator[Term, None]:
        """
        One term after the other, with a pause between, until the client is closed; failures of Redis are waited out.

        The body of the loop is not cancelled when the term is over: what it runs by `Term.run`, or in ``async with
        term:``, is. What it leaves is given back before the next term, or when the loop is left.

        Raises:
            NotALockError: the key is something else.
            Exception: what work raised that was started with `Term.start`.
        """
        while (term := await self._elected()) is not None:
            try:
                yield term
            finally:
                with suppress(LeaseLostError, BackendError):  # The next acquire tells.
                    await term._give_back()
            term._raise_failure()
            if term.lease._hold.loss != "closed":
                await asyncio.sleep(self._pause)  # After a loss, others go first.

    def __repr__(self) -> str:
        return f"<AsyncLeader {self.name!r}>"

    async def _begin(self) -> tuple[Term, Term]:
        term = Term(await self._lock.acquire())
        return term, await term.__aenter__()

    async def _elected(self) -> Term | None:
        """The next term of this process; ``None`` when the client is closed."""
        level = logging.WARNING
        while True:
            try:
                return Term(await self._lock.acquire())
            except ClientClosedError as error:
                if error.reason == "closed":
                    return None
                raise
            except (BackendError, ReplicationError, LeaseLostError) as error:
                log.log(level, "leader %r: not elected, tried again (said once): %s", self.name, error)
                level = logging.DEBUG
            await asyncio.sleep(self._pause)
