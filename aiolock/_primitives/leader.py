"""AsyncLeader: one leader among many processes."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, final

from aiolock._answers import answering
from aiolock._core.owners import in_own_task
from aiolock._errors import BackendError, ClientClosedError, LeaseLostError, NotHeldError, ReplicationError
from aiolock._log import log
from aiolock._primitives.entered import Entered
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.term import Term
from aiolock._types import Duration, Holder, begun, check_function, quoted, seconds


@final
@answering
class AsyncLeader(Entered[Term]):
    """
    The election of one leader among all candidates; made by `LockClient.leader`.

    The holder of the lock *name* leads. ``async with locks.leader(name) as term:`` waits until this task leads, for one
    term; ``async for term in locks.leader(name):`` runs for election again after each term; `run` does the same with
    one function. The others wait for a message. When a leader ends, another one leads; after a kill, a lease later.
    """

    __slots__ = ("_lock", "_pause")

    def __init__(self, *, lock: AsyncRLock, pause: Duration) -> None:
        super().__init__(lock._sessions)
        self._lock = lock
        self._pause = seconds(pause, "pause", zero=True)

    @property
    def name(self) -> str:
        """The name of the leader."""
        return self._lock.name

    async def run(self, work: Callable[[Term], Coroutine[Any, Any, object]]) -> None:
        """
        Run for election, and run ``work(term)`` whenever this process leads: for `background`.

        Goes on, also while Redis fails, until `run` is cancelled, the client is closed, or *work* fails. A term also
        ends when its work returns. Cancellation is as in `Term.run`.

        Raises:
            TypeError: *work* cannot be called, or has returned something that is not a coroutine.
            NotALockError: the key is not a lock.
            Exception: the exception of *work*.
        """
        check_function(work, "work")
        async for term in self:
            started = begun(work, term)
            try:
                await term.run(started)
            except (BackendError, NotHeldError) as error:
                # The work has not failed: Redis did not answer the release, which the next acquire reports; or
                # `step_down` had ended the term before its work began.
                if error is term._works.failure or not (isinstance(error, BackendError) or term._stepped_down):
                    raise

    @in_own_task
    async def try_lead(self, wait: Duration | None = 0) -> Term | None:
        """
        Lead if that is possible within *wait* seconds, else return ``None``.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. End the term with ``async with term:``, `Term.run` or
        `Term.step_down`. Cancellation and errors are as in `AsyncRLock.try_lock`.
        """
        lease = await self._lock.try_lock(wait)
        return None if lease is None else Term(self._sessions, lease)

    async def holder(self) -> Holder | None:
        """The leader, according to Redis; ``None`` if there is none. Waits and raises like `AsyncRLock.holder`."""
        return await self._lock.holder()

    async def __aiter__(self) -> AsyncGenerator[Term, None]:
        """
        One term after the other, with a pause between them, until the client is closed; goes on after failures of
        Redis.

        The end of a term does not cancel the body of the loop; it does cancel work in `Term.run` or ``async with
        term:``. If the body does not give the lock back, the loop does, before the next term or at its end.

        Raises:
            NotALockError: the key is not a lock.
            Exception: the exception of work that was started with `Term.start`.
        """
        while (term := await self._elected()) is not None:
            try:
                yield term
            finally:
                # The next acquire reports the failure.
                with suppress(LeaseLostError, BackendError):
                    await term._give_back()
            term._raise_failure()
            if term.lease._hold.loss != "closed":
                await asyncio.sleep(self._pause)

    def __repr__(self) -> str:
        return f"<AsyncLeader {quoted(self.name)}>"

    async def _begin(self) -> tuple[Term, Term]:
        term = Term(self._sessions, await self._lock.acquire())
        return term, await term.__aenter__()

    async def _elected(self) -> Term | None:
        """The next term of this process; ``None`` when the client is closed."""
        level = logging.WARNING
        while True:
            try:
                return Term(self._sessions, await self._lock.acquire())
            except ClientClosedError as error:
                if error.reason == "closed":
                    return None
                raise
            except (BackendError, ReplicationError, LeaseLostError) as error:
                log.log(level, "leader %s: not elected, trying again (logged once): %s", quoted(self.name), error)
                level = logging.DEBUG
            await asyncio.sleep(self._pause)
