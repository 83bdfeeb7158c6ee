"""LockConfig: the settings of a client."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from math import inf
from typing import Literal

from aiolock._events import LockEvent, Telemetry
from aiolock._keys import OWN_KEYS
from aiolock._types import BlockRelease, Duration, check_choice, lease_seconds, seconds, text

# A command may still arrive this many seconds after the end of its caller's wait. For as long, the server remembers
# ended acquisitions, which get nothing any more, and the client tries to release a lock that such a command has got.
ENDED_MEMORY = 60.0
# Seconds; a healthy server may take a few milliseconds to answer.
_LEAST_INTERVAL = 0.01
# Seconds; with a shorter lease, an ordinary stall of the event loop leaves no time for a renewal.
LEAST_LEASE = 0.03
_PRINTABLE = re.compile("[!-~]*")
# More than any server has; the server itself counts in 64 bits.
_MOST_REPLICAS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LockConfig:
    """
    The settings of a `LockClient`; durations are seconds or a `timedelta`. The constructor checks them.

    Raises:
        TypeError, ValueError: a setting cannot work; the message names it.
    """

    prefix: str = ""
    """The beginning of every key: a lock's key is the prefix and its name."""
    lease: Duration = 30.0
    """
    The lease that the watchdog renews.

    With a shorter lease, the lock of a crashed holder is free sooner, but a shorter stall of the holder loses the lock.
    """
    renew_interval: Duration | None = None
    """Time from one renewal to the next, 10 ms at least and half the lease at most; ``None`` means a third of it."""
    max_hold: Duration | None = None
    """
    The longest time for which the watchdog renews a lock; then the lock is lost. ``None`` means no limit.

    At least the lease. It does not limit a lease that an acquire asks for.
    """
    max_stall: Duration | None = None
    """
    The time for which a blocked event loop keeps its locks: a thread renews them; ``None`` or 0 means no thread.

    At least the lease. The locks of a process that hangs for good are free that much later.
    """
    drift: Duration | None = None
    """
    How long before its end on the server a lease counts as ended; ``None`` means 1 % of the lease plus 10 ms.

    At most a quarter of the lease, also of a shorter lease that an acquire asks for.
    """
    token_retention: Duration = 3600.0
    """
    How long the server keeps the fencing token of the last grant.

    Tokens keep growing even if the server's clock is set back by up to this time.
    """
    release_timeout: Duration = 5.0
    """The time limit for the reply to a release, and for closing the client, which leaves open blocks 60 % of it."""
    release: BlockRelease = "answered"
    """
    The end of an ``async with``: ``"answered"`` waits for the reply to its release, ``"behind"`` does not.

    With ``"behind"`` a block takes one round trip instead of two; a loss that only this reply shows is reported as an
    event instead of an error. Not for `LockClient.once`, *at_least*, and counting semaphores. `AsyncRLock.hold` can
    choose differently for one block.
    """
    command_timeout: Duration = 5.0
    """
    The time for which all other commands, such as an acquire or a question, are tried before they raise `BackendError`;
    a shorter outage raises nothing.
    """
    replicas: int | Literal["all"] | None = None
    """
    The number of replicas that must acknowledge a grant, a renewal or a result of `once` before it counts.

    ``None`` waits for no replica. ``"all"`` means all replicas that the primary has at that moment, and at least one.
    """
    replicas_timeout: Duration = 1.0
    """
    The time limit for the replicas' acknowledgements; at most a quarter of the lease and half the command timeout.
    """
    client_name: str | None = None
    """The name of this client in `AsyncRLock.holder()` and in ``CLIENT LIST``."""
    on_event: Callable[[LockEvent], object] | None = None
    """Called with every event, in the event loop; must not block. Its exceptions are logged once and swallowed."""

    telemetry: Telemetry | None = None
    """The maker of metrics and traces: `aiolock.opentelemetry.instrument` sets it, together with `on_event`."""

    def __post_init__(self) -> None:
        if self.prefix != "" and text(self.prefix, "prefix").startswith(OWN_KEYS):
            raise ValueError(f"prefix {self.prefix!r} would make keys that are aiolock's own: {', '.join(OWN_KEYS)}")
        if self.client_name is not None and not _PRINTABLE.fullmatch(text(self.client_name, "client_name")):
            raise ValueError(f"client_name must be printable ASCII without spaces, for Redis, not {self.client_name!r}")
        check_choice(self.release, BlockRelease, "release")
        self._check_hook(self.on_event)
        self._check_telemetry(self.telemetry)
        lease = lease_seconds(self.lease)
        if lease < LEAST_LEASE:
            raise ValueError(f"lease must be at least {LEAST_LEASE} s, so that it can be renewed, not {self.lease!r}")
        self._check_most("renew_interval", lease / 2, "half the lease, so that a renewal can be tried again")
        self._check_most("drift", lease / 4, "a quarter of the lease")
        self._check_max_hold(self.max_hold, lease)
        self._check_max_stall(self.max_stall, lease)
        if seconds(self.token_retention, "token_retention") < ENDED_MEMORY:
            raise ValueError(f"token_retention must be at least {ENDED_MEMORY:.0f} s, not {self.token_retention!r}")
        for what in ("release_timeout", "command_timeout"):
            if seconds(getattr(self, what), what) > ENDED_MEMORY / 2:
                raise ValueError(f"{what} must be at most {ENDED_MEMORY / 2:.0f} s, not {getattr(self, what)!r}")

        if self.renew_interval is not None and seconds(self.renew_interval, "renew_interval") < _LEAST_INTERVAL:
            raise ValueError(f"renew_interval must be at least {_LEAST_INTERVAL} s, not {self.renew_interval!r}")
        self._check_replicas(self.replicas, lease)

    def _check_max_hold(self, max_hold: Duration | None, lease: float) -> None:
        if max_hold is not None and seconds(max_hold, "max_hold") < lease:
            raise ValueError(f"max_hold must be at least the lease, {lease:g} s, not {max_hold!r}")

    def _check_max_stall(self, max_stall: Duration | None, lease: float) -> None:
        if max_stall is not None and 0 < seconds(max_stall, "max_stall", zero=True) < lease:
            raise ValueError(f"max_stall must be at least the lease, {lease:g} s, or 0, not {max_stall!r}")

    def _check_replicas(self, replicas: object, lease: float) -> None:
        seconds(self.replicas_timeout, "replicas_timeout")
        if replicas is None:
            return
        if replicas != "all" and (isinstance(replicas, bool) or not isinstance(replicas, int)):
            raise TypeError(f'replicas must be an int, "all" or None, not {replicas!r}')
        if isinstance(replicas, int) and not 1 <= replicas <= _MOST_REPLICAS:
            raise ValueError(f"replicas must be 1 to {_MOST_REPLICAS}, or None to ask for none, not {replicas!r}")
        self._check_most("replicas_timeout", lease / 4, "a quarter of the lease, so that a renewal can be tried again")
        half = seconds(self.command_timeout, "command_timeout") / 2
        self._check_most("replicas_timeout", half, "half the command timeout, so that the answer is in time")

    def _check_hook(self, hook: object) -> None:
        if hook is None:
            return
        if not callable(hook) or iscoroutinefunction(hook) or iscoroutinefunction(hook.__call__):
            raise TypeError(f"on_event must be a plain function, not {hook!r}")

    def _check_telemetry(self, telemetry: object) -> None:
        if telemetry is not None and not isinstance(telemetry, Telemetry):
            raise TypeError(f"telemetry must implement aiolock.Telemetry, which {telemetry!r} does not")

    def _check_most(self, what: str, most: float, why: str) -> None:
        value = getattr(self, what)
        if value is not None and seconds(value, what) > most:
            raise ValueError(f"{what} must be at most {most:g} s, {why}; not {value!r}")


@dataclass(frozen=True, slots=True)
class Timing:
    """The durations of a `LockConfig` as plain seconds, with its defaults filled in."""

    lease: float
    renew_interval: float
    max_hold: float
    """Infinite if there is no limit."""
    max_stall: float
    """0 if no thread stands in for a blocked event loop."""
    drift: float | None
    token_retention: float
    release_timeout: float
    command_timeout: float
    replicas: int | None
    """``None`` means all replicas, 0 means that none is asked."""
    replicas_timeout: float
    longest_lease: float
    """The upper limit of all leases; infinite unless several independent servers have agreed on one."""

    @classmethod
    def of(cls, config: LockConfig, longest_lease: float = inf) -> "Timing":
        """The durations of *config*, with defaults filled in."""
        lease = seconds(config.lease, "lease")
        return cls(
            lease=lease,
            renew_interval=lease / 3 if config.renew_interval is None else seconds(config.renew_interval, ""),
            max_hold=inf if config.max_hold is None else seconds(config.max_hold, "max_hold"),
            max_stall=0.0 if config.max_stall is None else seconds(config.max_stall, "max_stall", zero=True),
            drift=None if config.drift is None else seconds(config.drift, "drift"),
            token_retention=seconds(config.token_retention, "token_retention"),
            release_timeout=seconds(config.release_timeout, "release_timeout"),
            command_timeout=seconds(config.command_timeout, "command_timeout"),
            replicas=None if config.replicas == "all" else config.replicas or 0,
            replicas_timeout=seconds(config.replicas_timeout, "replicas_timeout"),
            longest_lease=longest_lease,
        )

    @property
    def is_of_quorum(self) -> bool:
        """Whether several independent servers keep the locks, with an agreed limit for leases."""
        return self.longest_lease < inf

    def check_lease(self, lease: float) -> None:
        """Raise `ValueError` if *lease* is longer than the servers' agreed limit."""
        if lease > self.longest_lease:
            raise ValueError(
                f"lease must be at most longest_lease, which is {self.longest_lease:g} s for this quorum, not {lease:g}"
            )

    @property
    def patience(self) -> float:
        """The time limit for one connection or one answer: a third of the command timeout, so that three tries fit."""
        return self.command_timeout / 3

    @property
    def renewal_patience(self) -> float:
        """The time after which an unanswered renewal is sent on another connection, too."""
        return min(self.patience, self.renew_interval / 2)

    @property
    def replicas_patience(self) -> float:
        """The additional time for an answer that waits for replicas."""
        return 0.0 if self.replicas == 0 else self.replicas_timeout

    def renewal_time(self, *, alone: bool) -> float:
        """
        The seconds for which a renewal is tried after it is due; its answer may take as long.

        A failure is known before the lease ends. A renewal of several locks leaves time to try each of them *alone*.
        """
        most = 0.75 * (self.lease - self.renew_interval)
        return most if alone else min(most, self.lease / 3)
