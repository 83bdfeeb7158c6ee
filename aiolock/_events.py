"""What `LockConfig.on_event` is called with. Every duration is in seconds."""

from dataclasses import dataclass

from aiolock._errors import LossReason


@dataclass(frozen=True, slots=True)
class LockEvent:
    """Something happened to a hold of this client."""

    name: str
    owner: str
    token: int


@dataclass(frozen=True, slots=True)
class Acquired(LockEvent):
    """An acquire was granted; *holds* is the hold count now, *waited* the time it took."""

    holds: int
    waited: float


@dataclass(frozen=True, slots=True)
class Released(LockEvent):
    """One hold was given back; *holds* are left."""

    holds: int


@dataclass(frozen=True, slots=True)
class Renewed(LockEvent):
    """The server acknowledged a renewal; the lease now has *remaining* seconds."""

    remaining: float


@dataclass(frozen=True, slots=True)
class RenewalLate(LockEvent):
    """A renewal is *late* seconds behind: the event loop was blocked, or Redis failed; *remaining* are left."""

    late: float
    remaining: float


@dataclass(frozen=True, slots=True)
class Lost(LockEvent):
    """The lock was ours and is gone."""

    reason: LossReason


@dataclass(frozen=True, slots=True)
class Orphaned(LockEvent):
    """The task named *task* ended while it had *holds* holds; they were released."""

    holds: int
    task: str


@dataclass(frozen=True, slots=True)
class HandedOff(LockEvent):
    """The lock went from one owner of this client to this one in a single round trip."""
