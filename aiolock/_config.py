"""LockConfig: what holds for a whole client."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Literal

from aiolock._events import LockEvent, Telemetry
from aiolock._keys import OWN_KEYS
from aiolock._types import LONGEST, Duration, lease_seconds, seconds, text

# A command may still be on its way this long after its caller gave up on it: ended acquisitions are remembered for as
# long, and the release of what such a command could be granted is tried for as long.
ENDED_MEMORY = 60.0
_LEAST_INTERVAL = 0.01  # Seconds; a server that is well may take a few milliseconds to answer.
LEAST_LEASE = 0.03  # Seconds; of less, an ordinary stall of the event loop leaves nothing to be renewed.
_PRINTABLE = re.compile("[!-~]*")
_MOST_REPLICAS = 1000  # Above what any server has; the server itself counts no further than 64 bits.


@dataclass(frozen=True, slots=True, kw_only=True)
class LockConfig:
    """
    Settings of a `LockClient`, checked when made; durations are seconds or a `timedelta`.

    Raises:
        TypeError, ValueError: a setting cannot work; the message names it.
    """

    prefix: str = ""
    """Put before every lock name to form its Redis key."""
    lease: Duration = 30.0
    """The lease that the watchdog renews. Shorter: a crashed holder's lock is free sooner; a stall is fatal sooner."""
    renew_interval: Duration | None = None
    """Time from one renewal to the next, 10 ms at least and half the lease at most; ``None`` means a third of it."""
    drift: Duration | None = None
    """
    How long before its end on the server a lease counts as over; ``None`` means 1 % of the lease and 10 ms.

    A quarter of the lease at most, also of a shorter lease that is asked for when acquiring.
    """
    token_retention: Duration = 3600.0
    """How long the last fencing token of an unused name is remembered, so how far the server's clock may step back."""
    release_timeout: Duration = 5.0
    """How long a release waits for its reply, and how long closing the client may take; bodies have 0.6 of it."""
    command_timeout: Duration = 5.0
    """How long any other command is tried before `BackendError`; failures shorter than that go unnoticed."""
    replicas: int | Literal["all"] | None = None
    """
    How many replicas must have acknowledged a grant or a renewal before it counts; ``None`` does not ask them.

    ``"all"`` means as many as the primary has at that moment, and one at least.
    """
    replicas_timeout: Duration = 1.0
    """How long the replicas may take for that; a quarter of the lease and half the command timeout at most."""
    client_name: str | None = None
    """Shown by `AsyncRLock.holder()` and by ``CLIENT LIST``."""
    on_event: Callable[[LockEvent], object] | None = None
    """Called with every event, in the event loop; must not block. Its exceptions are logged once and swallowed."""

    telemetry: Telemetry | None = None
    """What makes metrics and traces of the client: `aiolock.opentelemetry.instrument` sets it, with `on_event`."""

    def __post_init__(self) -> None:
        if self.prefix != "" and text(self.prefix, "prefix").startswith(OWN_KEYS):
            raise ValueError(f"prefix {self.prefix!r} would make keys that are aiolock's own: {', '.join(OWN_KEYS)}")
        if self.client_name is not None and not _PRINTABLE.fullmatch(text(self.client_name, "client_name")):
            raise ValueError(f"client_name must be printable ASCII without spaces, for Redis, not {self.client_name!r}")
        self._check_hook(self.on_event)
        self._check_telemetry(self.telemetry)
        lease = lease_seconds(self.lease)
        if lease < LEAST_LEASE:
            raise ValueError(f"lease must be at least {LEAST_LEASE} s, so that it can be renewed, not {self.lease!r}")
        self._check_most("renew_interval", lease / 2, "half the lease, so that a renewal can be tried again")
        self._check_most("drift", lease / 4, "a quarter of the lease")
        if seconds(self.token_retention, "token_retention") < ENDED_MEMORY:
            raise ValueError(f"token_retention must be at least {ENDED_MEMORY:.0f} s, not {self.token_retention!r}")
        for what in ("release_timeout", "command_timeout"):
            if seconds(getattr(self, what), what) > ENDED_MEMORY / 2:
                raise ValueError(f"{what} must be at most {ENDED_MEMORY / 2:.0f} s, not {getattr(self, what)!r}")

        if self.renew_interval is not None and seconds(self.renew_interval, "renew_interval") < _LEAST_INTERVAL:
            raise ValueError(f"renew_interval must be at least {_LEAST_INTERVAL} s, not {self.renew_interval!r}")
        self._check_replicas(self.replicas, lease)

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
            raise TypeError(f"telemetry must have what aiolock.Telemetry has, unlike {telemetry!r}")

    def _check_most(self, what: str, most: float, why: str) -> None:
        value = getattr(self, what)
        if value is not None and seconds(value, what) > most:
            raise ValueError(f"{what} must be at most {most:g} s, {why}; not {value!r}")


@dataclass(frozen=True, slots=True)
class Timing:
    """The durations of a `LockConfig` as plain seconds, with its defaults worked out."""

    lease: float
    renew_interval: float
    drift: float | None
    token_retention: float
    release_timeout: float
    command_timeout: float
    replicas: int | None
    """``None`` for all that there are, 0 for not asking."""
    replicas_timeout: float
    longest_lease: float
    """What no lease may be longer than."""

    @classmethod
    def of(cls, config: LockConfig, longest_lease: float = LONGEST) -> "Timing":
        """Work out what *config* leaves open."""
        lease = seconds(config.lease, "lease")
        return cls(
            lease=lease,
            renew_interval=lease / 3 if config.renew_interval is None else seconds(config.renew_interval, ""),
            drift=None if config.drift is None else seconds(config.drift, "drift"),
            token_retention=seconds(config.token_retention, "token_retention"),
            release_timeout=seconds(config.release_timeout, "release_timeout"),
            command_timeout=seconds(config.command_timeout, "command_timeout"),
            replicas=None if config.replicas == "all" else config.replicas or 0,
            replicas_timeout=seconds(config.replicas_timeout, "replicas_timeout"),
            longest_lease=longest_lease,
        )

    def check_lease(self, lease: float) -> None:
        """Raise `ValueError` if *lease* is longer than the servers are known to remember."""
        if lease > self.longest_lease:
            raise ValueError(
                f"lease must be at most longest_lease, which is {self.longest_lease:g} s for this quorum, not {lease:g}"
            )

    @property
    def patience(self) -> float:
        """How long a server may take for a connection or an answer: three attempts within a command's time."""
        return self.command_timeout / 3

    @property
    def renewal_patience(self) -> float:
        """The same for a renewal: two attempts from one to the next."""
        return min(self.patience, self.renew_interval / 2)
