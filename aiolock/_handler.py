"""The lock around a web handler: what the handler's client is told when it cannot be had, or is lost."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiolock._errors import AioLockError, BackendError, LeaseLostError
from aiolock._lease import Lease
from aiolock._problem import Problem, problem_of
from aiolock._rlock import AsyncRLock

logger = logging.getLogger("aiolock")


class RefusedError(Exception):
    """The request is to be answered with *problem*; the error of aiolock is the ``__cause__``."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@asynccontextmanager
async def locked_for_handler(
    lock: AsyncRLock, wait: float | None, lease: float | None, status: int
) -> AsyncIterator[Lease]:
    """
    *lock* for the body, a handler; `RefusedError` instead of what aiolock raises about it. *status* is for contention.

    Errors of aiolock that are the body's own pass. So does a body that is through when the release gets no answer: it
    was alone, and its client is to know that it is done; the lock ends with its lease at the latest.
    """
    began = done = False
    try:
        async with lock.hold(wait, lease) as granted:
            began = True
            yield granted
            done = True
    except AioLockError as error:
        if done and isinstance(error, BackendError):
            logger.warning("lock %r: its release was not answered (%s)", lock.name, error)
            return
        problem = problem_of(error, status, began=began)
        own = not began or (isinstance(error, LeaseLostError) and error.name == lock.name)
        if problem is None or not own:
            raise
        raise RefusedError(problem) from error
