"""Durations, the keys of a lock, and the small records that the public API hands out."""

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from aiolock._scripts import LockScripts

# Every duration that a user gives or gets is in seconds; milliseconds exist only on the wire.
Duration = float | timedelta

SHORTEST = 0.001  # Seconds: Redis counts whole milliseconds.
OWN_KEYS = ("aiolock_token:", "aiolock_client:")  # What aiolock keeps in Redis beside the locks.
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
        raise ValueError(f"{what} must be a finite number of seconds below {LONGEST:.0e}, not {value!r}")
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
    return value


@dataclass(frozen=True, slots=True)
class LockKeys:
    """Where a lock lives in Redis; Redisson uses the same lock key and the same channel."""

    name: str
    lock: str
    tokens: str
    channel: str
    both: tuple[str, str]
    """What every script is sent with: the lock and its tokens."""

    @classmethod
    @lru_cache(1024)
    def of(cls, name: str, prefix: str) -> "LockKeys":
        """
        Keys for *name*, in one hash slot, braced by Redisson's rule: no braces when there is a ``{`` already.

        `ValueError` if the lock would be one of aiolock's own keys.
        """
        lock = prefix + name
        if lock.startswith(OWN_KEYS):
            raise ValueError(f"name {name!r} would make the key {lock!r}, and keys that begin so are aiolock's own")
        tag = lock if "{" in lock else f"{{{lock}}}"
        tokens = f"aiolock_token:{tag}"
        return cls(name, lock, tokens, f"redisson_lock__channel:{tag}", (lock, tokens))


class Claim(NamedTuple):
    """What an acquisition is known by to the server: *id* is unique, *owner* is who will hold the lock."""

    keys: LockKeys
    scripts: LockScripts
    owner: str
    id: str


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
class LockStatistics:
    """What one client does with one name right now."""

    held: int = 0
    """Owners of this client that hold the lock: 0 or 1."""
    parked: int = 0
    """Tasks that have a place in this client's queue for the name."""
    subscriptions: int = 0
    """1 while the unlock channel is subscribed, else 0."""
    renewals: int = 0
    """Renewals acknowledged for the present hold."""
    hand_offs: int = 0
    """Local hand-offs since the name was last idle in this client."""


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """What one client does right now, and what it has done since it started."""

    held: int = 0
    """Locks held now."""
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
    """Writes of script calls so far; calls of one turn of the event loop share one, unless they are more than 32."""
    renewals: int = 0
    """Renewals acknowledged so far."""
    losses: int = 0
    """Holds lost so far."""
    hand_offs: int = 0
    """Times a release sent the next local waiter's acquire along, so far."""
