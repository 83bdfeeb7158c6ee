"""
A hold: what one owner has of one lock, from its first acquire to its last release.

    state        its user is told    it is renewed             the server
    LIVE         it is held          if a lease asks for it    has it
    CLOSING      it is lost          if a lease asks for it    has it, until whatever runs under it has left
    GIVEN_BACK   it was given back   no                        is being told
    LOST         it is lost          no                        may have it, unless it is `gone`, or is being told

    LIVE ──► GIVEN_BACK            the last lease is given back
    LIVE ──► CLOSING               the client is closed, or its time will be over before a leader's work has stopped
    LIVE, CLOSING ──► LOST         its time is over, the server says that it is not ours, or what ran under it has left
    GIVEN_BACK ──► LOST            the server answers that it was not ours any more

The deadline lies on the monotonic clock, a margin before the key can expire on the server, because it is reckoned from
the moment *before* the command that was answered left. Whoever acts before it acts alone.
"""

import asyncio
import math
from enum import Enum
from time import monotonic
from typing import NamedTuple, Protocol
from weakref import ref

from aiolock._backend import Argument
from aiolock._config import Timing
from aiolock._core.owners import is_named
from aiolock._errors import LeaseLostError, LossReason
from aiolock._keys import LockKeys
from aiolock._process import Unique
from aiolock._scripts import Claim

# Seconds that a body which is unwinding by a cancellation of the user's own has for its cleanup when the lock is lost;
# and how long before its deadline a hold has its bodies look whether they unwind.
CLEANUP = 0.5

KEPT = "kept"  # Stands in the place of the owner: no task has such a number, nor a named owner such an id.


class DoneError(Exception):
    """There is nothing to be acquired any more: what it was for has been done, and came to *outcome*."""

    def __init__(self, outcome: bytes) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class State(Enum):
    """What becomes of a hold."""

    LIVE = "live"
    CLOSING = "closing"
    GIVEN_BACK = "given back"
    LOST = "lost"


class Body(Protocol):
    """What runs under a hold until it is cancelled for its loss."""

    @property
    def has_lost_its_task(self) -> bool:
        """Whether whoever entered it is no more."""

    def lost(self) -> None:
        """The lock is lost."""

    def look(self, due: float) -> None:
        """The end of the hold may be near: note what the body is at; late, if the loop was blocked since *due*."""


class Remains(NamedTuple):
    """What is left in a lock's place when it is given back: one field, which is no owner's, for as long as it says."""

    field: str
    value: Argument
    until: float
    """On the monotonic clock."""


class Grant(Unique):
    """One acquire of the owner: granted, or on its way for one that has the lock already."""

    __slots__ = ("_granted", "_hold", "_scoped", "_task", "given_back", "lease", "watched")

    def __init__(self, hold: "Hold", lease: float, watched: bool, task: "asyncio.Task[object]") -> None:
        self._hold = hold
        self.lease: float = lease
        """Seconds: how long the lock was asked for, or the watchdog's lease."""
        self.watched: bool = watched
        """Whether the watchdog renews it: no lease was asked for."""
        self._task = ref(task)  # Who acquired it.
        self._granted = False  # The server has acknowledged it.
        self._scoped = False  # An `async with` will give it back.
        self.given_back: bool = False
        """Whether it was released."""


class Hold:
    """An acquisition that was granted."""

    # Invariant: the server's hold count = len(leases), once the replies are in. Every change of the count takes the
    # next step, every renewal the next renewal; the server ignores what comes out of turn.

    __slots__ = (
        *("claim", "keys", "owner", "token", "leases", "in_a_row", "step", "renewal", "renewals", "unanswered"),
        *("heard", "expires", "deadline", "renew_at", "state", "loss", "gone", "bodies", "patient_until"),
        *("watched", "watchdog", "alarm", "due", "asleep", "asked", "guard", "guard_at", "doubted", "late", "since"),
        *("remains", "unheard", "_lost", "_timing"),
    )

    since: float  # When it was granted, on the monotonic clock.
    late: bool  # It was logged that a renewal is late, and none has been acknowledged since.
    step: int
    renewal: int
    renew_at: float  # Once it was extended.
    asked: bool  # A renewal of the watchdog's is on its way.
    due: float  # When the next renewal is; the alarm rings then or before.
    guard_at: float

    def __init__(self, claim: Claim, token: int, timing: Timing, *, repeated: bool = False) -> None:
        self.claim = claim
        self.keys: LockKeys = claim.want.keys
        self.owner: str = claim.owner
        self.token = token
        self._timing = timing
        self.state: State = State.LIVE
        self.loss: LossReason | None = None  # Once its user is told that it is lost.
        self.gone: bool = False  # The server said that the lock is not ours, or was told to free it.
        self.leases: list[Grant] = []
        # Changes of the hold count whose answer did not come, or of which a copy can be late; first the acquire itself.
        self.unheard: int = repeated
        self.watched: bool = False  # It is to be renewed: any lease asked for it, and it has not ended.
        self.bodies: list[Body] = []
        self.in_a_row: int = 0  # Local hand-offs that led here without a chance for other processes.
        self.step, self.renewal = 1, 0  # The last of each.
        self.renewals: int = 0  # Acknowledged ones.
        self.unanswered: int = 0  # Renewals on their way, failed or cancelled, since the last acknowledged one.
        self.heard: float = 0.0  # When the command left whose answer told the TTL last.
        self.expires: float = 0.0  # The server keeps the key at least until then (monotonic clock).
        self.deadline: float = 0.0  # From then on the hold counts as over.
        self._lost: asyncio.Event | None = None  # Made when somebody waits for it.
        self.remains: Remains | None = None
        self.patient_until: float | None = None  # No rollback need be broken into before that (monotonic clock).
        self.watchdog: asyncio.Task[None] | None = None  # Renews it, from the first time on that it is due.
        self.alarm: dict[Hold, None] | None = None  # What starts that task, or wakes it; the hold is in there.
        self.asleep: asyncio.Future[None] | None = None  # What the task waits for while nothing is due.
        self.guard: asyncio.TimerHandle | None = None  # Looks whether the deadline has come, at `guard_at`.
        self.asked = self.late = False
        self.doubted: float = 0.0  # When the server may have forgotten it; no answer to what was sent before tells.

    @property
    def ended(self) -> bool:
        """Whether it was given back, or is lost for good."""
        return self.state is State.GIVEN_BACK or self.state is State.LOST

    @property
    def over(self) -> bool:
        """Whether its user is to be told that the lock is lost, by the clock or by word of the server."""
        return self.loss is not None or self.expired

    @property
    def expired(self) -> bool:
        """Whether its time is over, though nobody has noticed."""
        return monotonic() >= self.deadline and not self.ended

    @property
    def ran_out(self) -> bool:
        """Whether it ended as its user wanted it: nobody asked to have it renewed, nor ran a block under it."""
        return monotonic() >= self.deadline and not any(lease.watched or lease._scoped for lease in self.leases)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody who still is will release it: the task that owns it, or one that runs under it."""
        return not is_named(self.owner) or any(not body.has_lost_its_task for body in self.bodies)

    @property
    def has_body(self) -> bool:
        """Whether an `async with` runs under it."""
        return any(lease._scoped for lease in self.leases)

    def add(self, lease: Grant) -> None:
        """One more lease; the server is to be told."""
        self.leases.append(lease)
        self.watched = self.watched or lease.watched

    def remove(self, lease: Grant) -> None:
        """One lease less; the server is to be told."""
        self.leases.remove(lease)
        self.watched = self.watched and any(each.watched for each in self.leases)

    def last_lease(self) -> Grant | None:
        """
        The lease to give back when none is named: the last.

        Other tasks may act as the same owner, so not one that is still on its way; and, if there is another, not one
        that a scope will give back itself, nor one that another task acquired.
        """
        task = asyncio.current_task()
        granted = [lease for lease in self.leases if lease._granted]
        free = [lease for lease in granted if not lease._scoped]
        own = [lease for lease in free if lease._task() is task]
        return next(reversed(own or free or granted), None)

    def extend(self, sent: float, left: float) -> None:
        """A command that left at *sent* was answered: the key had *left* seconds."""
        if sent >= self.heard:
            self.heard = sent
            self.expires = sent + left
            self.deadline = sent + left - margin(left, self._timing)
            self.renew_at = sent + min(self._timing.renew_interval, left / 2)

    def keep(self, at_least: float, client: str) -> None:
        """It was granted just now: of what its owner asked for, the longest *at_least* counts."""
        until = monotonic() + at_least
        if self.remains is None or self.remains.until < until:
            self.remains = Remains(f"{client}:{KEPT}", 1, until)

    def stay(self, sent: float) -> None:
        """A command that left at *sent* was answered: it lasts until it is given back."""
        self.heard = sent
        self.expires = self.deadline = self.renew_at = math.inf

    def end(self, state: State) -> None:
        """It is given back or lost for good: nothing watches over it any more."""
        self.state = state
        self.watched = False
        if self.alarm is not None:
            del self.alarm[self]
        if self.guard is not None:
            self.guard.cancel()
        self.alarm = self.guard = None
        if self.watchdog is not None and not self.watchdog.get_loop().is_closed():
            self.watchdog.cancel()

    def tell(self, reason: LossReason) -> None:
        """Tell the holder that the lock is lost."""
        self.loss = reason
        if self._lost is not None:
            self._lost.set()
        for body in tuple(self.bodies):
            body.lost()

    def look(self, due: float) -> None:
        """Have its bodies look what they are at, well before the hold may be lost."""
        for body in tuple(self.bodies):
            body.look(due)

    async def until_lost(self) -> LossReason:
        """Wait until the lock is lost; for ever if it never is."""
        if self.loss is None:
            self._lost = self._lost or asyncio.Event()
            await self._lost.wait()
        assert self.loss is not None
        return self.loss

    def error(self) -> LeaseLostError:
        """What to raise about the loss; by the clock alone it is ``"expired"``."""
        return LeaseLostError(self.keys.name, self.token, self.loss or "expired")


def margin(lease: float, timing: Timing) -> float:
    """How long before its end on the server a lease of *lease* seconds counts as over; at most a quarter of it."""
    return min(0.01 * lease + 0.01 if timing.drift is None else timing.drift, lease / 4)
