"""Durations, checked, and the small records that the public API hands out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from inspect import isawaitable
from typing import Any, Literal, ParamSpec, TypeVar, get_args

P = ParamSpec("P")
A = TypeVar("A", bound=Awaitable[Any])

# Every duration in the public API is in seconds; milliseconds exist only in commands and replies.
Duration = float | timedelta

# The primitives, by the names of the factories of `LockClient`; but `read_lock` and `write_lock` are the two halves of
# what `read_write_lock` makes.
LockKind = Literal[
    "lock",
    "fair_lock",
    "read_lock",
    "write_lock",
    "semaphore",
    "counting_semaphore",
    "count_down_latch",
    "once",
]

# Whether the end of a block waits for the answer to its release.
BlockRelease = Literal["answered", "behind"]

# Whether a function runs without its lock while Redis fails.
OnUnavailable = Literal["run", "refuse"]
# Whether the end of the wait raises an error, or skips the function.
OnBusy = Literal["raise", "skip"]

# Seconds: Redis counts whole milliseconds.
SHORTEST = 0.001
# The same limit as in Java; a latch's count has it, too.
MOST_PERMITS = 2**31 - 1
# Bytes of a name with its prefix, and of an owner's name.
LONGEST_TEXT = 1024
# Characters of the longest name that a message shows whole, and of the beginning that it shows of a longer one.
_LONGEST_SHOWN, _FIRST_SHOWN = 120, 80
# Seconds, about 31 years: Redis refuses a longer expiry of a key.
LONGEST = 1e9


def seconds(value: object, what: str, *, zero: bool = False) -> float:
    """
    The duration *value* as seconds, checked.

    Zero is refused unless *zero* is set: a wait of zero means "do not wait", but a lease of zero means nothing.
    """
    length = signed_seconds(value, what)
    if length < 0 or (length == 0 and not zero):
        raise ValueError(f"{what} must be {'zero or more' if zero else 'more than zero'} seconds, not {length!r}")
    return float(length)


def signed_seconds(value: object, what: str) -> float:
    """The duration *value* as seconds, checked, but for its sign."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be seconds (int or float) or a timedelta, not {value!r}")
    # `value > LONGEST` would be false for NaN.
    if not value <= LONGEST:
        raise ValueError(f"{what} must be a finite number of seconds, {LONGEST:.0e} at most, not {value!r}")
    return value


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
    """The number of permits *value*, checked; if *least* is ``None``, negative numbers down to -*most* are allowed."""
    return whole_number(value, "the number of permits", least=-most if least is None else least, most=most)


def whole_number(value: object, what: str, *, least: int, most: int = MOST_PERMITS) -> int:
    """The whole number *value*, checked."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{what} must be {least} to {most}, not {value!r}")
    # A plain int: the text of an enumeration's member differs.
    return int(value)


def quoted(value: str) -> str:
    """*value* in quotation marks, for people; a long text loses its middle."""
    if len(value) > _LONGEST_SHOWN:
        value = f"{value[:_FIRST_SHOWN]}...{value[_FIRST_SHOWN + 3 - _LONGEST_SHOWN :]}"
    return repr(value)


def checked_url(value: object) -> str:
    """The URL *value*, checked. Errors do not show it: it may have a password, which may also be a long token."""
    if not isinstance(value, str):
        raise TypeError(f"URL must be a str, such as str(url), not {type(value).__name__}")
    if not value:
        raise ValueError("URL must not be empty")
    if any("\ud800" <= each <= "\udfff" for each in value):
        raise ValueError("URL must be text that can be encoded as UTF-8")
    return value


def text(value: object, what: str) -> str:
    """The non-empty string *value*, checked; it becomes part of a Redis key."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {value!r}")
    if not value:
        raise ValueError(f"{what} must not be empty")
    try:
        length = len(value.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} cannot be encoded as UTF-8: {quoted(value)}") from error
    if length > LONGEST_TEXT:
        raise ValueError(
            f"{what} must be at most {LONGEST_TEXT} bytes, not {length}: {quoted(value)}; use a digest of it"
        )
    # A plain str: a member of an enumeration may be formatted differently.
    return str.__str__(value)


def check_choice(value: object, choices: object, what: str) -> None:
    """Raise unless *value*, the argument *what*, is one of the *choices*, a `Literal`."""
    if value not in get_args(choices):
        words = " or ".join('"' + each + '"' for each in get_args(choices))
        raise ValueError(f"{what} must be {words}, not {value!r}")


def check_function(value: object, what: str) -> None:
    """Raise `TypeError` unless *value* can be called."""
    if not callable(value):
        raise TypeError(f"{what} must be a function that returns a coroutine, not {value!r}")


def begun(function: Callable[P, A], /, *args: P.args, **kwargs: P.kwargs) -> A:
    """The awaitable that *function* returns, such as a coroutine; `TypeError` for any other result."""
    made = function(*args, **kwargs)
    if not isawaitable(made):
        raise TypeError(f"{function!r} must be a coroutine function (async def), but it ran and returned {made!r}")
    return made


@dataclass(frozen=True, slots=True)
class Holder:
    """
    The holder of a lock, as far as Redis knows.

    *host*, *pid* and *client_name* are ``None`` when the holder is not an aiolock client (a Java service, say), or one
    of an older version. Long names are cut. *remaining* is in seconds.

    *detached* says that this owner has detached the lock (`Lease.detach`), and that nobody has adopted it yet.
    """

    client: str
    owner: str
    holds: int
    remaining: float
    host: str | None = None
    pid: int | None = None
    client_name: str | None = None
    detached: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """
    A lock or permit that a client holds, for *held* seconds so far; *remaining* is the rest of its lease in seconds.

    *task* is the name of the task that owns it, ``None`` for a named owner. *remaining* is ``None`` if the hold has no
    lease, such as a block of a counting semaphore.
    """

    owner: str
    task: str | None
    token: int
    holds: int
    held: float
    remaining: float | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiter of a client, which has waited for *waited* seconds so far; the other fields are as in `Holding`."""

    owner: str
    task: str | None
    waited: float


@dataclass(frozen=True, slots=True)
class LockActivity:
    """The activity of one client on one name: its holds in *holding*, and its waiters in *waiting*, in order."""

    name: str
    kind: LockKind
    holding: tuple[Holding, ...]
    waiting: tuple[Waiting, ...]


@dataclass(frozen=True, slots=True)
class LockStatistics:
    """The numbers of one client for one name at the moment."""

    held: int = 0
    """
    Holds of this client: 0 or 1 for a lock, however often its owner has acquired it; one per reading owner for a read
    lock; one per acquire for a semaphore.
    """
    parked: int = 0
    """Tasks that have a place in this client's queue for the name."""
    subscriptions: int = 0
    """1 while the unlock channel is subscribed, else 0."""
    renewals: int = 0
    """Acknowledged renewals of the present hold; of several holds, the oldest counts."""
    hand_offs: int = 0
    """Local hand-offs since the name was last idle in this client."""


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """The numbers of one client: the present ones, and totals since it started."""

    held: int = 0
    """Locks held now, and acquires of semaphores that were not released yet."""
    parked: int = 0
    """Tasks that have a place in one of this client's queues."""
    subscriptions: int = 0
    """Unlock channels subscribed now, including those that are kept for a moment after their last waiter left."""
    pending: int = 0
    """Commands that wait for their reply."""
    connections: int = 0
    """Connections to the server that are open now."""
    commands: int = 0
    """Script calls written so far, including those that were written again after a failure."""
    batches: int = 0
    """Writes of script calls so far; calls of one turn of the event loop share one."""
    renewals: int = 0
    """Renewals acknowledged so far."""
    losses: int = 0
    """Holds lost so far."""
    hand_offs: int = 0
    """Releases so far that were sent together with the acquire of the next waiter of this client."""
    losses_behind: int = 0
    """Losses so far that were found after the block had ended, by the reply to its release (`LockConfig.release`)."""
    renewals_by_thread: int = 0
    """Renewals so far by the thread that helps a late event loop (`LockConfig.max_stall`); `renewals` includes them."""
