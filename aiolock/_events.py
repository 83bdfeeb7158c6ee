"""What `LockConfig.on_event` is called with, and what a `Telemetry` is asked. Every duration is in seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, dataclass_transform, runtime_checkable

from aiolock._errors import LossReason
from aiolock._types import ClientStatistics, LockKind

NotAcquiredReason = Literal["busy", "timeout", "cancelled", "done", "error"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def event(kind: type[T]) -> type[T]:
    """Frozen to type checkers only: what is so when it runs takes three times as long to make."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


@event
class LockEvent:
    """
    Something happened to the lock *name*, of some *kind*, or to whatever else has an owner.

    *token* is that of the hold, 0 where there is none: nothing was granted yet, or what was granted has no token.
    """

    name: str
    kind: LockKind
    owner: str
    token: int


@event
class WaitStarted(LockEvent):
    """
    An acquire was refused, or others of this client were before it: it waits.

    *holder* is the owner who has the lock, if that is one of this client, else ``None``.
    """

    holder: str | None


@event
class Acquired(LockEvent):
    """
    An acquire was granted; *holds* is the hold count now, *waited* the time it took.

    *contended* says that there was a `WaitStarted`, whose *holder* this is. *mark* is what the telemetry of whoever was
    waited for left for others to find, once the wait was as long as `Telemetry.patience`; else ``None``.
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

    *reason* is ``"busy"`` when it was not to wait, ``"timeout"`` when it was, and the time is over, ``"cancelled"``,
    ``"done"`` when what runs once has been run, or ``"error"``, and then *error* is the name of its class. All else as
    in `Acquired`.
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
    One hold was given back; *holds* are left. *held* is how long the owner has had the lock.

    *confirmed* is false when the server's answer did not come, or was not waited for: the release was sent.
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
    """A renewal is *late* seconds behind: the event loop was blocked, or Redis failed; *remaining* are left."""

    late: float
    remaining: float


@event
class Lost(LockEvent):
    """
    The lock was ours and is gone, after it was *held* for so long.

    *ran_out* says that it was to be so: a lease of a given length has ended, and no block ran under it.
    """

    reason: LossReason
    held: float
    ran_out: bool


@event
class Orphaned(LockEvent):
    """The task named *task* ended while it had *holds* holds, for *held* seconds; they were released."""

    holds: int
    task: str
    held: float


@event
class HandedOff(LockEvent):
    """The lock went from one owner of this client to this one in a single round trip."""


@runtime_checkable
class Telemetry(Protocol):
    """
    What makes metrics and traces of a client, beside its events: `aiolock.opentelemetry` has one.

    Its methods are called in the event loop, and must not block. If `LockConfig.on_event` is one of them, there may be
    one more, ``hears_release() -> bool``, which is asked before each `Released`: where it says no, that is not told,
    which saves time.
    """

    patience: float
    """
    Seconds: who has waited for so long looks for the mark of whoever has the lock.

    A mark is left in Redis once the lock has been held for a quarter of that, so that a short hold costs nothing.
    """

    def started(self, client: str, statistics: Callable[[], ClientStatistics]) -> None:
        """The client with this id has started; *statistics* may be called at any time, in any thread."""

    def closed(self, client: str) -> None:
        """That client is closed."""

    def mark(self, event: Acquired) -> str:
        """
        What to leave for those who will wait for what was just granted, 200 characters at most; ``""`` for nothing.

        Called behind `LockConfig.on_event`, for a first hold.
        """
