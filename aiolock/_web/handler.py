"""The lock around a web handler: what the handler's client is told when it cannot be had, or is lost."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

from aiolock import AioLockError, BackendError, Lease, LeaseLostError, MultiLease, NotHeldError
from aiolock._log import log
from aiolock._primitives.handle import Handle, block_of, shown
from aiolock._web.problem import Problem, problem_of


@asynccontextmanager
async def locked_for_handler(
    lock: Handle,
    wait: float | None,
    lease: float | None,
    status: int,
    refuse: Callable[[Problem, AioLockError], NoReturn],
) -> AsyncIterator[Lease | MultiLease | None]:
    """
    *lock* for the body, a handler. What aiolock raises about it ends in *refuse*, which raises what the framework makes
    an answer of. *status* is for contention.

    A body that raises, whatever it is, is refused as well when its lock is lost: what it raises may be the answer of a
    success. Else it passes, also an error of aiolock that is the body's own. So does a body that is through when the
    release gets no answer: it was alone, and its client is to know that it is done; the lock ends with its lease at the
    latest.
    """
    granted: Lease | MultiLease | None = None
    done = False
    try:
        async with block_of(lock, wait, lease) as granted:
            yield shown(lock, granted)
            done = True
    except Exception as error:
        if done and isinstance(error, BackendError):
            log.warning("lock %r: its release was not answered (%s)", lock.name, error)
            return
        ours = _about_the_lock(error, granted)
        if ours is None or (problem := problem_of(ours, status, began=granted is not None)) is None:
            raise
        # An answer about another lock was told of already, and so were both losses.
        if not isinstance(error, AioLockError) and not isinstance(error.__cause__, AioLockError):
            log.warning("lock %r was lost; what its handler raised is answered with 503", lock.name, exc_info=error)
        refuse(problem, ours)


def _about_the_lock(error: Exception, granted: Lease | MultiLease | None) -> AioLockError | None:
    """What *error* means for the lock: it was not granted, or is lost, or, ``None``, neither."""
    if granted is None:
        return error if isinstance(error, AioLockError) else None
    try:
        granted.check()
    except LeaseLostError as loss:
        return loss
    except NotHeldError:  # It was given back, as it should be.
        pass
    return None
