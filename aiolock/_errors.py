"""
The errors of aiolock.

    AioLockError
    ├── LockTimeoutError   (TimeoutError)   the wait ended
    ├── NotHeldError       (RuntimeError)   release by an owner that does not hold the lock
    ├── LeaseLostError                      the client lost the lock
    ├── NotALockError                       the key exists and is not a lock
    ├── ReplicationError                    granted, but not acknowledged by the replicas asked for; undone
    ├── ClientClosedError  (RuntimeError)   the client is closed, or belongs to another loop or process
    ├── OnceFailedError                     the body of a `once` has failed, and the failure is remembered
    └── BackendError                        Redis failed: the redis-py exception is the cause
        └── QuorumError                     no majority of the servers of a quorum gave the same answer

Each error carries data, builds its message from this data, and can be pickled.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, Self

from aiolock._identity import KEPT
from aiolock._types import Holder, LockKind, quoted
from aiolock._words import EACH_AN_OWNER

LossReason = Literal["expired", "taken", "forced", "unreachable", "closed", "orphaned", "max_hold"]
ClosedReason = Literal["closed", "other loop", "other process"]
Replicated = Literal["grant", "hold", "renewal", "result"]

_LOSSES: dict[LossReason, str] = {
    "expired": "its lease ended, or its key was deleted or overwritten",
    "taken": "another owner holds it now",
    "forced": "it was released by force",
    "unreachable": "no renewal was acknowledged before the lease ended",
    "closed": "its client was closed",
    "max_hold": "it was held for LockConfig.max_hold or longer, so that its lease was no longer renewed",
    "orphaned": "the task or thread that acquired it has ended, and can hold no lock any more",
}

# The same reasons for a ticket. The server forgets them after a minute: then a ticket counts as `_ENDED`.
_USELESS: dict[LossReason, str] = {
    "taken": "it was adopted or released before, or its time ended and the lock was granted to another owner",
    "forced": "the lock was released by force",
}
_ENDED = (
    "its time has ended, it was adopted or released before, or its lock is on another server or in another database"
)

# What became of a command that too few replicas acknowledged.
_SHORT: dict[Replicated, str] = {
    "grant": "{lock} reached {acks} of {wanted} replicas and was given back",
    "hold": "one more hold of {lock} reached {acks} of {wanted} replicas and was given back",
    "renewal": "the renewal of {lock} reached {acks} of {wanted} replicas and does not count: its lease ends as before",
    "result": "the result of once {name} reached {acks} of {wanted} replicas and may be forgotten in a failover",
}

_ELSEWHERE = (
    "A task or a thread can only release what it acquired itself; to release elsewhere, use `lease.release()` or a "
    "named owner"
)

_GIVEN_BACK = "was given back already, by a release or by the end of its block, and cannot be used any more"

_CLOSED: dict[ClosedReason, str] = {
    "closed": "is closed, and does not start again: make a new one, and close it after its last use",
    "other loop": "belongs to another event loop; each loop needs a client of its own, even that of a TestClient",
    "other process": "was used in another process before a fork; make a client in each process",
}


class AioLockError(Exception):
    """Base of every error that aiolock raises about locks."""

    def __reduce__(self) -> tuple[object, ...]:
        # The message is built from the data, so pickling copies the data, and calls no constructor.
        return type(self).__new__, (type(self),), self.__dict__ | {"args": self.args}


@contextmanager
def beside(error: BaseException | None) -> Iterator[None]:
    """In the block, a failure of aiolock becomes a note of *error*; if *error* is ``None``, the failure is raised."""
    try:
        yield
    except AioLockError as failure:
        if error is None:
            raise
        error.add_note(f"aiolock: {failure}")


def _called(name: str, kind: LockKind) -> str:
    """The lock or the permit with this *name*, as the text of an error calls it."""
    return f"permit of {quoted(name)}" if kind.endswith("semaphore") else f"lock {quoted(name)}"


class LockTimeoutError(AioLockError, TimeoutError):
    """
    The wait for a lock, or for permits, ended before it was granted; *waited* is in seconds.

    *held_here* names the holder if it belongs to the same client: for example, a task that waits for the waiting task.
    """

    def __init__(self, name: str, waited: float, held_here: str | None = None, *, kind: LockKind = "lock") -> None:
        self.name = name
        self.waited = waited
        self.held_here = held_here
        why = "" if held_here is None else f": {held_here} of this client holds it; {EACH_AN_OWNER}"
        super().__init__(f"{_called(name, kind)} was not granted within {waited:.3g} s{why}")


class NotHeldError(AioLockError, RuntimeError):
    """
    The owner that releases the lock does not hold it, or the lease was released before.

    *holder* is the present holder, if the server was asked and there is one.
    """

    def __init__(
        self,
        name: str,
        owner: str,
        holder: Holder | None,
        why: str = "nobody holds it; it was released before, or never acquired",
        *,
        kind: LockKind = "lock",
    ) -> None:
        self.name = name
        self.owner = owner
        self.holder = holder
        advice = _ELSEWHERE
        if holder is not None and holder.owner == KEPT:
            why = f"it was given back, and `at_least` keeps it for {holder.remaining:.3g} s more"
            advice = "`force_release()` frees it sooner"
        elif holder is not None and holder.detached:
            why = f"it was detached by owner {quoted(holder.owner)} of client {holder.client!r}"
            advice = "Adopt its ticket, and release that lease; or `force_release()` frees it"
        elif holder is not None and f"{holder.client}:{holder.owner}" == owner:
            why = "the server has it for this owner, but the owner has no lease by this kind of handle"
            advice = "Release it by the handle that acquired it, such as a fair lock"
        elif holder is not None:
            why = f"owner {quoted(holder.owner)} of client {holder.client!r} holds it"
        super().__init__(f"{_called(name, kind)} is not held by {quoted(owner)}: {why}. {advice}")

    @classmethod
    def of_lease(cls, name: str, owner: str, kind: LockKind, why: str = _GIVEN_BACK) -> "NotHeldError":
        """The error for a lease that was released before, or that will be."""
        error = cls(name, owner, None)
        lease = "this" if kind.endswith("semaphore") else "this lease of"
        error.args = (f"{lease} {_called(name, kind)} {why}",)
        return error


class LeaseLostError(AioLockError):
    """
    The client lost the lock.

    *reason* is ``"expired"`` (the key is gone: its time ended, or it was deleted, evicted, flushed or overwritten),
    ``"taken"`` (another owner has it), ``"forced"`` (`force_release`), ``"unreachable"`` (no renewal was acknowledged
    in time), ``"closed"`` (the client was closed), ``"orphaned"`` (the task that acquired it ended) or ``"max_hold"``
    (it was held for `LockConfig.max_hold` or longer).

    *trouble* is the last error of the server or the connection, if a renewal failed before the loss; else ``None``.
    *task* is the name of the task that ended, if that is the reason; else ``None``.
    """

    def __init__(
        self,
        name: str,
        token: int,
        reason: LossReason,
        trouble: str | None = None,
        *,
        task: str | None = None,
        kind: LockKind = "lock",
    ) -> None:
        self.name = name
        self.token = token
        self.reason: LossReason = reason
        self.trouble = trouble
        self.task = task
        who = "" if task is None else f" (task {task!r})"
        why = "" if trouble is None else f"; the last renewal failed: {trouble}"
        super().__init__(f"{_called(name, kind)} (token {token}) was lost: {_LOSSES[reason]}{who}{why}")

    @classmethod
    def of_ticket(cls, name: str, token: int, reason: LossReason, kind: LockKind) -> "LeaseLostError":
        """The error for a ticket that cannot be adopted any more; *token* is that of the hold that was detached."""
        error = cls(name, token, reason, kind=kind)
        why = _USELESS.get(reason, _ENDED)
        error.args = (f"the ticket of {_called(name, kind)} (token {token}) is of no use any more: {why}",)
        return error


class NotALockError(AioLockError):
    """The key exists and is not a lock; it was left untouched."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"the key of {quoted(name)} holds something else, which was left as it is; "
            "use another name, or a prefix of its own: LockConfig(prefix=...)"
        )


class ReplicationError(AioLockError):
    """
    Fewer replicas than `LockConfig.replicas` acknowledged a command.

    If the command was an acquire, its grant was undone. If it was a renewal, the lease is as long as before. If it
    stored the result of a `once`, a failover may lose it.
    """

    def __init__(
        self, name: str, acks: int, wanted: int, *, kind: LockKind = "lock", what: Replicated = "grant"
    ) -> None:
        self.name = name
        self.acks = acks
        self.wanted = wanted
        super().__init__(_SHORT[what].format(lock=_called(name, kind), name=quoted(name), acks=acks, wanted=wanted))


class OnceFailedError(AioLockError):
    """The body of a `once` has failed, here or elsewhere, and the failure is remembered; *failure* is its error."""

    def __init__(self, name: str, failure: str) -> None:
        self.name = name
        self.failure = failure
        super().__init__(
            f"once {quoted(name)} has failed, and is not run again while the failure is remembered: {failure}"
        )


class ClientClosedError(AioLockError, RuntimeError):
    """
    The client cannot be used.

    *reason* is ``"closed"``, ``"other loop"`` or ``"other process"``; the last two are mistakes in the program.
    """

    def __init__(self, reason: ClosedReason) -> None:
        self.reason: ClosedReason = reason
        super().__init__(f"this LockClient {_CLOSED[reason]}")


class BackendError(AioLockError):
    """Redis failed; the redis-py exception is the ``__cause__``."""

    def copy(self) -> Self:
        """The same error for another task: each task adds a traceback and notes to its own copy."""
        error = copy.copy(self)
        error.__dict__.pop("__notes__", None)
        error.__cause__ = self.__cause__
        return error


class QuorumError(BackendError):
    """
    No majority of the servers of a quorum gave the same answer; *errors* has each server's answer or error, by address.

    It is a `BackendError`, because the reaction is the same: try again later, when a majority may be reachable.
    """

    def __init__(self, what: str, errors: Mapping[str, str]) -> None:
        self.what = what
        self.errors: dict[str, str] = dict(errors)
        said = "; ".join(f"{address}: {words}" for address, words in self.errors.items()) or "no server answered"
        super().__init__(f"{what} failed: no majority of servers ({said})")

    def copy(self) -> Self:
        """The same as `BackendError.copy`."""
        error = super().copy()
        error.errors = dict(self.errors)
        return error
