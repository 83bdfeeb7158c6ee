"""The lock around a web handler, and the answers to its client when the lock is busy or lost."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, ClassVar, NoReturn

from aiolock import AioLockError, AsyncOnce, Lease, LeaseLostError, MultiLease, NotHeldError
from aiolock._log import log
from aiolock._primitives.section import UNAVAILABLE, Section
from aiolock._types import quoted
from aiolock._web.problem import Problem, problem_of


class HandlerBlock:
    """
    A *block* of a lock for an ``async with`` around a handler. *status* is the answer if the lock is busy.

    An error of aiolock about the lock goes to *refuse*, which raises the framework's error response. If the lock is
    lost, *refuse* also replaces any exception of the handler, which may be the response of a success. Otherwise the
    handler's exceptions are raised, also those of aiolock. If only the release gets no answer, the handler's response
    is sent: the handler worked alone, and its client should know that the work is done. The lock ends with its lease.
    """

    _UNANSWERED: ClassVar[str] = "lock %s: its release was not answered (%s)"

    def __init__(
        self,
        block: Section | AsyncOnce,
        status: int,
        refuse: Callable[[Problem, AioLockError | None], NoReturn],
    ) -> None:
        self._block = block
        self._status = status
        self._refuse = refuse
        # None before the enter, and if the handler runs without the lock.
        self._entered: AbstractAsyncContextManager[Any] | None = None
        self._granted: Lease | MultiLease | None = None

    async def __aenter__(self) -> Any:
        try:
            begun: tuple[Any, Any] = await self._block._begin()
        except AioLockError as error:
            self._refuse_for(error, error)
            raise
        block, given = begun
        self._entered = self._granted = block
        return given

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered is None:
            return
        try:
            await self._entered.__aexit__(kind, error, trace)
        except Exception as failure:
            if error is None and isinstance(failure, UNAVAILABLE):
                log.warning(self._UNANSWERED, quoted(self._block.name), failure)
                return
            self._refuse_for(self._loss(), failure)
            raise
        if isinstance(error, Exception):
            self._refuse_for(self._loss(), error)

    @property
    def bypassed(self) -> bool:
        """Whether the handler runs without the lock."""
        return self._entered is None

    def _loss(self) -> LeaseLostError | None:
        """The error of a lost lock; ``None`` if the lock is held or was released, or the handler runs without it."""
        if self._granted is None:
            return None
        try:
            self._granted.check()
        except LeaseLostError as loss:
            return loss
        except NotHeldError:
            pass
        return None

    def _refuse_for(self, ours: AioLockError | None, raised: Exception) -> None:
        """Refuse the request because of *ours*; returns, so that *raised* is raised, if there is no answer for it."""
        if ours is None or (problem := problem_of(ours, self._status, began=self._granted is not None)) is None:
            return
        # An answer about another lock was logged before, and so were both losses.
        if not isinstance(raised, AioLockError) and not isinstance(raised.__cause__, AioLockError):
            text = "lock %s was lost; the exception of its handler is answered with 503"
            log.warning(text, quoted(self._block.name), exc_info=raised)
        self._refuse(problem, ours)
