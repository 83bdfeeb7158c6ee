"""
Everything that aiolock raises on purpose.

    AioLockError
    ├── LockTimeoutError   (TimeoutError)   the wait ended
    ├── NotHeldError       (RuntimeError)   release by an owner that does not hold the lock
    ├── LeaseLostError                      the lock was ours and is gone
    ├── NotALockError                       the key exists and is something else
    ├── ReplicationError                    granted, but not acknowledged by the replicas asked for; undone
    ├── ClientClosedError  (RuntimeError)   the client is closed, or belongs to another loop or process
    ├── OnceFailedError                     what runs once has failed, and that is remembered
    └── BackendError                        Redis failed: the redis-py exception is the cause
        └── QuorumError                     no majority of the servers of a quorum said the same

Each carries data, builds its own message from it, and can be pickled.
"""

import copy
from collections.abc import Mapping
from typing import Literal, Self

from aiolock._types import Holder

LossReason = Literal["expired", "taken", "forced", "unreachable", "closed"]
ClosedReason = Literal["closed", "other loop", "other process"]

_LOSSES: dict[LossReason, str] = {
    "expired": "its lease ended: the key is gone or overwritten, or could not be renewed in time",
    "taken": "another owner holds it now",
    "forced": "it was released by force",
    "unreachable": "Redis did not answer before the lease ended",
    "closed": "its client was closed",
}

_CLOSED: dict[ClosedReason, str] = {
    "closed": "is closed",
    "other loop": "belongs to another event loop; each loop needs one of its own, also that of a TestClient",
    "other process": "was started in another process; start it anew after a fork",
}


class AioLockError(Exception):
    """Base of every error that aiolock raises about locks."""

    def __reduce__(self) -> tuple[object, ...]:
        # The message is built from the data, so the data is what travels, and no constructor is called.
        return type(self).__new__, (type(self),), self.__dict__ | {"args": self.args}


class LockTimeoutError(AioLockError, TimeoutError):
    """
    The wait for a lock ended before it was granted; *waited* is in seconds.

    *held_here* says who of the same client holds it, if anybody does: a task that waits for its own child, say.
    """

    def __init__(self, name: str, waited: float, held_here: str | None = None) -> None:
        self.name = name
        self.waited = waited
        self.held_here = held_here
        why = "" if held_here is None else f": {held_here} of this client holds it; a child task is another owner"
        super().__init__(f"lock {name!r} was not granted within {waited:.3g} s{why}")


class NotHeldError(AioLockError, RuntimeError):
    """
    A release by an owner that holds nothing, or of a lease that was given back.

    *holder* says who holds the lock, if the server was asked and said that anyone does.
    """

    def __init__(self, name: str, owner: str, holder: Holder | None, why: str = "nobody holds it") -> None:
        self.name = name
        self.owner = owner
        self.holder = holder
        if holder is not None:
            why = f"owner {holder.owner!r} of client {holder.client!r} holds it"
        super().__init__(
            f"lock {name!r} is not held by {owner!r}: {why}. "
            "A task can only give back what it acquired itself; use `lease.release()` or a named owner across tasks"
        )

    @classmethod
    def of_lease(cls, name: str, owner: str) -> "NotHeldError":
        """The error for a lease that was given back."""
        error = cls(name, owner, None)
        error.args = (f"this lease of lock {name!r} was given back already",)
        return error


class LeaseLostError(AioLockError):
    """
    The lock was ours and is gone.

    *reason* is ``"expired"`` (the key is no longer there: its time ended, or it was deleted, evicted, flushed
    or overwritten), ``"taken"`` (another owner has it), ``"forced"`` (`force_release`), ``"unreachable"`` (no renewal
    was acknowledged in time) or ``"closed"`` (the client was closed).
    """

    def __init__(self, name: str, token: int, reason: LossReason) -> None:
        self.name = name
        self.token = token
        self.reason: LossReason = reason
        super().__init__(f"lock {name!r} (token {token}) was lost: {_LOSSES[reason]}")


class NotALockError(AioLockError):
    """The key exists and is not a lock; it was left untouched."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"the key of lock {name!r} holds something that is not a lock; "
            "use another name, or a prefix of its own: LockConfig(prefix=...)"
        )


class ReplicationError(AioLockError):
    """The lock was granted, but fewer replicas acknowledged it than asked for; the grant was undone."""

    def __init__(self, name: str, acks: int, wanted: int) -> None:
        self.name = name
        self.acks = acks
        self.wanted = wanted
        super().__init__(f"lock {name!r} reached {acks} of {wanted} replicas and was given back")


class OnceFailedError(AioLockError):
    """What runs once has failed elsewhere, or before, and that is remembered; *failure* says with what."""

    def __init__(self, name: str, failure: str) -> None:
        self.name = name
        self.failure = failure
        super().__init__(f"once {name!r} has failed, and is not run again while that is remembered: {failure}")


class ClientClosedError(AioLockError, RuntimeError):
    """
    The client cannot be used.

    *reason* is ``"closed"``; or ``"other loop"`` or ``"other process"``: a mistake in the program.
    """

    def __init__(self, reason: ClosedReason) -> None:
        self.reason: ClosedReason = reason
        super().__init__(f"this LockClient {_CLOSED[reason]}")


class BackendError(AioLockError):
    """Redis failed; the redis-py exception is the ``__cause__``."""

    def copy(self) -> Self:
        """The same for another task: what is raised in a task collects its traceback and notes."""
        error = copy.deepcopy(self)
        error.__dict__.pop("__notes__", None)
        error.__cause__ = self.__cause__
        return error


class QuorumError(BackendError):
    """
    No majority of the servers of a quorum said the same; *errors* has what each said or met, by its address.

    A `BackendError`, since it is met as one: a majority cannot be reached now, and may be later.
    """

    def __init__(self, what: str, errors: Mapping[str, str]) -> None:
        self.what = what
        self.errors: dict[str, str] = dict(errors)
        said = "; ".join(f"{address}: {words}" for address, words in self.errors.items()) or "no server answered"
        super().__init__(f"{what} failed: no majority of servers ({said})")
