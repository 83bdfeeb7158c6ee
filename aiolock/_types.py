"""Durations, checked, and the small records that the public API hands out."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

# Every duration that a user gives or gets is in seconds; milliseconds exist only on the wire.
Duration = float | timedelta

# What there is to be acquired, by the names of the factories of `LockClient`.
LockKind = Literal[
    "lock",
    "fair_lock",
    "read_lock",
    "write_lock",
    "permit_expirable_semaphore",
    "semaphore",
    "count_down_latch",
    "once",
]

SHORTEST = 0.001  # Seconds: Redis counts whole milliseconds.
MOST_PERMITS = 2**31 - 1  # As in Java; also of a latch's count.
LONGEST = 1e9  # Seconds, about 31 years: above it Redis refuses the expiry of a key.


def seconds(value: object, what: str, *, zero: bool = False) -> float:
    """
    The duration *value* as seconds, checked.

    Zero is refused unless *zero* is set: it means "do not wait" for a wait, and nothing for a lease.
    """
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be seconds (int or float) or a timedelta, not {value!r}")
    if not value <= LONGEST:  # So that it is false for NaN, too.
        raise ValueError(f"{what} must be a finite number of seconds, {LONGEST:.0e} at most, not {value!r}")
    if value < 0 or (value == 0 and not zero):
        raise ValueError(f"{what} must be {'zero or more' if zero else 'more than zero'} seconds, not {value!r}")
    return float(value)


def lease_seconds(value: object, what: str = "lease") -> float:
    """The lease *value* as seconds, checked."""
    lease = seconds(value, what)
    if lease < SHORTEST:
        raise ValueError(f"{what} must be at least one millisecond ({SHORTEST}), not {value!r}")
    return lease


def milliseconds(value: float) -> int:
    """Seconds as the whole milliseconds that Redis counts in."""
    return round(value * 1000)


def number_of_permits(value: object, *, least: int | None, most: int = MOST_PERMITS) -> int:
    """The number of permits *value*, checked; ``None`` as the *least* lets it be as far below zero as above."""
    return whole_number(value, "the number of permits", least=-most if least is None else least, most=most)


def whole_number(value: object, what: str, *, least: int, most: int = MOST_PERMITS) -> int:
    """The whole number *value*, checked."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{what} must be {least} to {most}, not {value!r}")
    return int(value)  # No member of an enumeration, which is written in words.


def text(value: object, what: str) -> str:
    """The non-empty string *value*, checked; it becomes part of a Redis key."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}")
    if not value:
        raise ValueError(f"{what} must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} cannot be encoded as UTF-8: {value!r}") from error
    return str.__str__(value)  # No member of an enumeration, which may be formatted as something else.


@dataclass(frozen=True, slots=True)
class Holder:
    """
    Who holds a lock, as far as Redis knows.

    *host*, *pid* and *client_name* are ``None`` when the holder is no aiolock client (a Java service, say)
    or its client card is gone. *remaining* is in seconds.
    """

    client: str
    owner: str
    holds: int
    remaining: float
    host: str | None = None
    pid: int | None = None
    client_name: str | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """
    Something that a client holds; *held* says for how long, *remaining* until when, in seconds.

    *task* is the name of the task that owns it, ``None`` of a named owner. Without an end, *remaining* is ``None``.
    """

    owner: str
    task: str | None
    token: int
    holds: int
    held: float
    remaining: float | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Somebody of a client who waits, for *waited* seconds so far; all else as in `Holding`."""

    owner: str
    task: str | None
    waited: float


@dataclass(frozen=True, slots=True)
class LockActivity:
    """What one client has to do with one name right now: who of it is *holding*, and who *waiting*, in that order."""

    name: str
    kind: LockKind
    holding: tuple[Holding, ...]
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class LockStatistics:
    """What one client does with one name right now."""

    held: int = 0
    """
    Holds of this client: of a lock 0 or 1, however often it nests; of a read lock one for each owner who reads; of a
    semaphore one for each acquire.
    """
    parked: int = 0
    """Tasks that have a place in this client's queue for the name."""
    subscriptions: int = 0
    """1 while the unlock channel is subscribed, else 0."""
    renewals: int = 0
    """Renewals acknowledged for the present hold; where there are several, for that which is oldest."""
    hand_offs: int = 0
    """Local hand-offs since the name was last idle in this client."""


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """What one client does right now, and what it has done since it started."""

    held: int = 0
    """Locks held now, and acquires of semaphores that are not given back yet."""
    parked: int = 0
    """Tasks that have a place in one of this client's queues."""
    subscriptions: int = 0
    """Unlock channels subscribed now, with those kept a moment after their last waiter left."""
    pending: int = 0
    """Commands that wait for their reply."""
    connections: int = 0
    """Connections to the server that are open now."""
    commands: int = 0
    """Script calls written so far, with those written again after a failure."""
    batches: int = 0
    """Writes of script calls so far; calls of one turn of the event loop share one."""
    renewals: int = 0
    """Renewals acknowledged so far."""
    losses: int = 0
    """Holds lost so far."""
    hand_offs: int = 0
    """Times a release sent the next local waiter's acquire along, so far."""
