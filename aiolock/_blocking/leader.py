"""One leader among many processes, in a thread. A loss cannot end the work of a thread, so the work has to check."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, final

from aiolock._blocking.blocks import Entered
from aiolock._blocking.deputy import Job
from aiolock._blocking.functions import called, check_plain
from aiolock._blocking.lease import Lease, Loss
from aiolock._blocking.runner import is_in_loop
from aiolock._blocking.verbs import perhaps, plain, verb
from aiolock._errors import BackendError, ClientClosedError, LeaseLostError, NotHeldError, beside
from aiolock._primitives.leader import AsyncLeader
from aiolock._primitives.term import Term as AsyncTerm


@final
class Term(Entered[AsyncTerm, "Term"]):
    """The time for which one process leads. ``with term:`` gives the lock back at its end; the body calls `check`."""

    __slots__ = ()

    check: Final = plain(AsyncTerm.check)
    step_down: Final = plain(AsyncTerm.step_down)

    @property
    def lease(self) -> Lease:
        """The lease of the leader's lock."""
        return Lease(self._runner, face_of=self._async.lease)

    @property
    def name(self) -> str:
        """The name of the leader."""
        return self._async.name

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier leader."""
        return self._async.token

    @property
    def lost(self) -> Loss:
        """Whether the lock is lost; a lock given back is not lost."""
        return self.lease.lost

    @property
    def _is_over(self) -> bool:
        return self._async._stepped_down or self._async.lost.is_set()

    async def _begin(self) -> "tuple[Term, Term]":
        self._async.lease._refuse_block()
        return self._in_block(), self

    def _in_block(self) -> "Term":
        self._async.lease._scoped = True
        return self

    def _refuse_lost(self) -> None:
        self.lease._refuse_lost()

    async def _leave(self, error: BaseException | None) -> None:
        with beside(error):
            await self._async._give_back()


@final
class Leader(Entered[AsyncLeader, Term]):
    """
    The election of one leader among all candidates; made by `LockClient.leader`. See `AsyncLeader`.

    ``with leader as term:`` is for one term, ``for term in leader: with term: ...`` for all terms; or use `run`.
    """

    __slots__ = ()

    try_lead: Final = perhaps(AsyncLeader.try_lead, Term)
    holder: Final = verb(AsyncLeader.holder)

    @property
    def name(self) -> str:
        """The name of the leader."""
        return self._async.name

    def run(self, work: Callable[[Term], object]) -> None:
        """
        Run for election, and call ``work(term)`` whenever this process leads, until the client is closed.

        A term also ends when *work* returns. Let *work* call `Term.check` before each step: after a loss, nothing else
        ends it. Any other exception of *work* ends `run`, too.
        """
        check_plain(work, "work")
        for term in self:
            has_worked = False
            try:
                with term:
                    called(work, term)
                    has_worked = True
            except (LeaseLostError, NotHeldError) as error:
                if not term._is_over or error.name != term.name:
                    raise
            except BackendError:
                # Redis did not answer the release, which the next acquire reports.
                if not has_worked:
                    raise

    def __iter__(self) -> Iterator[Term]:
        """One term after the other, as with `AsyncLeader`; each term ends before the next one begins."""
        terms = self._async.__aiter__()

        async def following() -> Term | None:
            term = await anext(terms, None)
            return None if term is None else Term(self._runner, face_of=term)

        try:
            while (term := self._wait_for(Job(following))) is not None:
                yield term
        finally:
            with suppress(ClientClosedError):
                (self._runner.send if is_in_loop() else self._runner.result_of)(Job(terms.aclose))

    def _wait_for(self, job: "Job[Term | None]") -> Term | None:
        try:
            return self._runner.result_of(job)
        except ClientClosedError as closed:
            if closed.reason == "closed":
                return None
            raise
        except BaseException:
            job.give_up()
            raise

    async def _begin(self) -> tuple[Term, Term]:
        led = await self._async.try_lead(None)
        assert led is not None, "a wait without a limit ends with a term"
        term = Term(self._runner, face_of=led)
        return term._in_block(), term
