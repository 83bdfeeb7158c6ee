"""The events that go to `LockConfig.on_event`, and the interface of a `Telemetry`. Every duration is in seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, dataclass_transform, runtime_checkable

from aiolock._errors import LossReason
from aiolock._types import ClientStatistics, LockKind

NotAcquiredReason = Literal["busy", "timeout", "cancelled", "done", "error"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def event(kind: type[T]) -> type[T]:
    """A dataclass that is frozen for type checkers only: instances of a truly frozen one take three times as long."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


@event
class LockEvent:
    """
    An event of the lock or other primitive *name*.

    *token* is the token of the hold; 0 if nothing was granted yet, or the primitive has no tokens.
    """

    name: str
    kind: LockKind
    owner: str
    token: int


@event
class WaitStarted(LockEvent):
    """
    An acquire waits: the server refused it, or other acquires of this client are before it.

    *holder* is the owner that has the lock, if it belongs to this client, else ``None``.
    """

    holder: str | None


@event
class Acquired(LockEvent):
    """
    An acquire was granted; *holds* is the hold count now, *waited* the time that the acquire took.

    *contended* says whether a `WaitStarted` came before, and *holder* is the holder in that event. *mark* is the text
    that the telemetry of the holder left for waiters, if the wait was longer than `Telemetry.patience`; else ``None``.
    """

    holds: int
    waited: float
    contended: bool
    holder: str | None
    mark: str | None


@event
class NotAcquired(LockEvent):
    """
    An acquire ended without the lock, after *waited* seconds.

    *reason* is ``"busy"`` if the acquire was not to wait, ``"timeout"`` if its wait ended, ``"cancelled"``, ``"done"``
    if the body of a `once` has run already, or ``"error"``; then *error* is the name of the exception's class. The
    other fields are as in `Acquired`.
    """

    reason: NotAcquiredReason
    error: str | None
    waited: float
    contended: bool
    holder: str | None
    mark: str | None


@event
class Released(LockEvent):
    """
    One hold was released; *holds* are left. *held* is the time since the owner got the lock.

    *confirmed* is false if the server's answer did not come in time, or nobody waited for it: after a cancellation, or
    after `Term.step_down`. The release was sent.
    """

    holds: int
    held: float
    confirmed: bool


@event
class Renewed(LockEvent):
    """The server acknowledged a renewal; the lease now has *remaining* seconds."""

    remaining: float


@event
class RenewalLate(LockEvent):
    """
    A renewal is *late* seconds behind: the event loop was blocked, or Redis failed; *remaining* seconds are left.

    *trouble* is the last error of the server or the connection, if it is the cause; else ``None``.
    """

    late: float
    remaining: float
    trouble: str | None = None


@event
class RenewedByThread(LockEvent):
    """
    A thread has renewed the lock *renewals* times, because the event loop was late (`LockConfig.max_stall`).

    *blocked* is the longest time in seconds for which the event loop did not run meanwhile, within a moment. If it is
    close to zero, the event loop did run, and its connections made the renewals late.
    """

    renewals: int
    blocked: float


@event
class Lost(LockEvent):
    """
    The client lost the lock, after *held* seconds.

    *ran_out* says that the loss is no surprise: a lease of a given length has ended, and no block ran under it.
    *trouble* is the last error of the server or the connection, if a renewal failed before; else ``None``. *behind*
    says that the reply to a release showed the loss after the block had ended without an error (`LockConfig.release`).
    """

    reason: LossReason
    held: float
    ran_out: bool
    trouble: str | None = None
    behind: bool = False


@event
class Orphaned(LockEvent):
    """
    The task named *task* ended *held* seconds after it got the lock, without releasing its *holds* holds.

    aiolock releases them.

    `Lost` follows, with the reason ``"orphaned"``, unless another hold of the same owner remains.
    """

    holds: int
    task: str
    held: float


@event
class HandedOff(LockEvent):
    """The lock went from another owner of this client to *owner* in a single round trip."""


@event
class Bypassed(LockEvent):
    """
    Redis failed, and a function runs without the lock, because ``on_unavailable`` is ``"run"``.

    *trouble* is the error of the acquire. If several locks were wanted, there is one event for each.
    """

    trouble: str


@runtime_checkable
class Telemetry(Protocol):
    """
    An object that makes metrics and traces of a client, beyond what its events tell; see `aiolock.opentelemetry`.

    Its methods are called in the event loop, and must not block. If `LockConfig.on_event` is one of them, there may be
    one more, ``hears_release() -> bool``, which is called before each `Released`: if it returns false, that event is
    not made, which saves time.
    """

    patience: float
    """
    Seconds of a wait after which the waiter looks for the mark of the holder.

    A mark is left in Redis only after a quarter of that time, so that a short hold costs nothing.
    """

    def started(self, client: str, statistics: Callable[[], ClientStatistics]) -> None:
        """The client with this id has started; *statistics* may be called at any time, in any thread."""

    def closed(self, client: str) -> None:
        """The client with this id is closed."""

    def mark(self, event: Acquired) -> str:
        """
        The mark that waiters of the lock will find, 200 characters at most; ``""`` for no mark.

        Called for each grant that does not nest in another hold, after `LockConfig.on_event`.
        """
