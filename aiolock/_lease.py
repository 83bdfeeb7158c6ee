"""
A hold and its leases: what one owner has of one lock, and what its user gets to see of it.

The deadline of a hold lies on the monotonic clock, a margin before the key can expire on the server, because it is
reckoned from the moment *before* the command that was answered left. Whoever acts before it acts alone.
"""

import asyncio
from collections.abc import Coroutine, Generator
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self, final
from weakref import ref

from aiolock._errors import LeaseLostError, LossReason, NotHeldError
from aiolock._types import Claim, Duration, LockKeys

# Seconds that a body which is unwinding by a cancellation of the user's own has for its cleanup when the lock is lost;
# and how long before its deadline a hold has its bodies look whether they unwind.
CLEANUP = 0.5


class Keeper(Protocol):
    """Gives leases back and renews them; a lease asks it on its user's behalf."""

    def check_place(self) -> None: ...

    def enter(self, lease: "Lease") -> None: ...

    def leave(self, lease: "Lease", error: BaseException | None) -> Coroutine[object, object, None]: ...

    async def give_back(self, lease: "Lease") -> None: ...

    async def renew_lease(self, lease: "Lease", duration: Duration | None) -> None: ...


class Body(Protocol):
    """What runs under a hold until it is cancelled for its loss."""

    @property
    def has_lost_its_task(self) -> bool:
        """Whether whoever entered it is no more."""

    def lost(self) -> None: ...

    def look(self, due: float) -> None:
        """The end of the hold may be near: note what the body is at; late, if the loop was blocked since *due*."""


class Hold:
    """An acquisition that was granted, from the first acquire of its owner to the last release."""

    # Invariant: the server's hold count = len(leases), once the replies are in. Every change of the count takes the
    # next step, every renewal the next renewal; the server ignores what comes out of turn.
    # Invariant: a lost hold has ended, but for one whose client is being closed: it is renewed until its body has left.

    __slots__ = (
        *("claim", "keys", "owner", "token", "leases", "in_a_row", "step", "renewal", "renewals", "unanswered"),
        *("heard", "expires", "deadline", "renew_at", "ended", "loss", "gone", "bodies", "patient_until", "sent_once"),
        *("renewal_slot", "deadline_slot", "timer", "asked", "doubted", "_lost", "_watched"),
    )

    def __init__(self, claim: Claim, token: int, *, sent_once: bool = False) -> None:
        self.claim = claim
        self.sent_once = sent_once  # No try to acquire it was sent a second time: no copy of one can be late.
        self.keys: LockKeys = claim.keys
        self.owner: str = claim.owner
        self.token = token
        self.leases: list[Lease] = []
        self._watched = 0  # Leases that asked to be renewed.
        self.in_a_row = 0  # Local hand-offs that led here without a chance for other processes.
        self.step: int = 1
        self.renewal: int = 0
        self.renewals = 0  # Acknowledged ones.
        self.unanswered = 0  # Renewals on their way, failed or cancelled, since the last acknowledged one.
        self.heard: float = 0.0  # When the command left whose answer told the TTL last.
        self.expires: float = 0.0  # The server keeps the key at least until then (monotonic clock).
        self.deadline: float = 0.0  # From then on the hold counts as over.
        self.renew_at: float = 0.0
        self.ended: bool = False  # Given back, or lost for good.
        self.loss: LossReason | None = None
        self.gone = False  # The server said that the lock is not ours, or was told to free it.
        self._lost: asyncio.Event | None = None  # Made when somebody waits for it.
        self.bodies: list[Body] = []
        self.patient_until: float | None = None  # No rollback need be broken into before that (monotonic clock).
        # The watchdog's: its places for the next renewal and for the deadline, and a timer once that is near.
        self.renewal_slot: int | None = None
        self.deadline_slot: int | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.asked = False  # A renewal of the watchdog's is on its way.
        self.doubted: float = 0.0  # When the server may have forgotten it; no answer to what was sent before tells.

    @property
    def watched(self) -> bool:
        """Whether the watchdog has to renew: any lease of the hold asked for it."""
        return self._watched > 0 and not self.ended

    @property
    def over(self) -> bool:
        """Whether the lock is lost, by the clock or by word of the server."""
        return self.loss is not None or self.expired

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return not self.ended and monotonic() >= self.deadline

    @property
    def ran_out(self) -> bool:
        """Whether it ended as its user wanted it: nobody asked to have it renewed, nor ran a block under it."""
        return self._watched == 0 and not self.has_body and monotonic() >= self.deadline

    @property
    def has_body(self) -> bool:
        """Whether an `async with` runs under it."""
        return any(lease._scoped for lease in self.leases)

    def add(self, lease: "Lease") -> None:
        """One more lease; the server is to be told."""
        self.leases.append(lease)
        self._watched += lease.watched

    def remove(self, lease: "Lease") -> None:
        """One lease less; the server is to be told."""
        self.leases.remove(lease)
        self._watched -= lease.watched

    def last_lease(self) -> "Lease | None":
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

    def extend(self, sent: float, left: float, margin: float, renew_after: float) -> None:
        """A command that left at *sent* was answered: the key had *left* seconds."""
        if sent >= self.heard:
            self.heard = sent
            self.expires = sent + left
            self.deadline = sent + left - margin
            self.renew_at = sent + renew_after

    def next_step(self) -> int:
        self.step += 1
        return self.step

    def next_renewal(self) -> int:
        self.renewal += 1
        return self.renewal

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


@final
class Loss:
    """Whether a lease was lost: ask `is_set`, or await it."""

    __slots__ = ("_hold", "_keeper")

    def __init__(self, hold: Hold, keeper: Keeper) -> None:
        self._hold = hold
        self._keeper = keeper

    def is_set(self) -> bool:
        """Whether the lock is lost; by the clock too, so that it is right after a blocked loop or a paused process."""
        return self._hold.over

    def __await__(self) -> Generator[Any, None, LossReason]:
        """
        Wait until the lock is lost, and tell why; for ever if it never is, also after its release.

        Raises:
            ClientClosedError: in another event loop or process than that of its client.
        """
        self._keeper.check_place()
        return self._hold.until_lost().__await__()

    def __repr__(self) -> str:
        return f"<Loss {self._hold.loss or 'expired' if self.is_set() else 'not set'}>"


@final
class Lease:
    """
    One hold of a lock, as `AsyncRLock.acquire` and its kin return it.

    It stands for one acquire: releasing it gives back one hold. It may be passed to other tasks; the hold still
    belongs to the owner that acquired it, and ends with it. ``async with lease:`` gives it back at the end, and cancels
    its body when the lock is lost, as ``async with lock:`` does.
    """

    __slots__ = ("_granted", "_hold", "_keeper", "_scoped", "_task", "given_back", "lease", "watched")

    def __init__(self, hold: Hold, keeper: Keeper, lease: float, watched: bool, task: asyncio.Task[object]) -> None:
        self._hold = hold
        self._keeper = keeper
        self.lease: float = lease
        """Seconds: how long the lock was asked for, or the watchdog's lease."""
        self.watched: bool = watched
        """Whether the watchdog renews it: no lease was asked for."""
        self._task = ref(task)  # Who acquired it.
        self._granted = False  # The server has acknowledged it.
        self._scoped = False  # An `async with` will give it back.
        self.given_back: bool = False
        """Whether it was released."""

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._hold.keys.name

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant of this name. Register it when you read."""
        return self._hold.token

    @property
    def remaining(self) -> float:
        """Seconds until the lease counts as over, unless it is renewed; 0 when it is lost or given back."""
        return 0.0 if self._hold.over or self.given_back else max(0.0, self._hold.deadline - monotonic())

    @property
    def holds(self) -> int:
        """The hold count of the owner, as far as this client knows; 0 when the lock is lost or given back."""
        return 0 if self._hold.over or self.given_back else len(self._hold.leases)

    @property
    def lost(self) -> Loss:
        """Whether the lock is lost: ``lease.lost.is_set()``, ``await lease.lost``."""
        return Loss(self._hold, self._keeper)

    def check(self) -> None:
        """
        Raise if the lock is no longer held; cheap, no I/O: call it before each step that must not be done twice.

        Raises:
            LeaseLostError: the lock is lost, by the clock or by word of the server; also if this lease was given back.
            NotHeldError: this lease was given back.
        """
        if self._hold.over:
            raise self._hold.error()
        if self.given_back:
            raise NotHeldError.of_lease(self.name, self._hold.owner)

    async def __aenter__(self) -> Self:
        self._keeper.enter(self)
        return self

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, None]:
        return self._keeper.leave(self, error)

    async def release(self) -> None:
        """
        Give this hold back, from any task.

        Waits for the server's answer, up to `LockConfig.release_timeout`. Cancelling stops the waiting only: the
        release is sent all the same.

        Raises:
            NotHeldError: it was given back before.
            LeaseLostError: the lock was lost.
            BackendError: no answer in time; the release is tried on for as long as there can be something to free.
        """
        await self._keeper.give_back(self)

    async def renew(self, lease: Duration | None = None) -> None:
        """
        Let the lock live *lease* seconds from now; ``None`` means as long as it was asked for.

        Never shortens a lease; sent again if another renewal overtook it. Waits for the server's answer; cancelling
        leaves the renewal done or not done.

        Raises:
            LeaseLostError: the lock was lost; it is never taken back.
            NotHeldError: this lease was given back, or the lock was released meanwhile.
            BackendError: Redis failed; the lease is as long as it was.
            ReplicationError: fewer replicas than `LockConfig.replicas` have heard of it; it does not count.
        """
        await self._keeper.renew_lease(self, lease)

    def __repr__(self) -> str:
        state = "lost" if self._hold.over else "given back" if self.given_back else f"{self.remaining:.3g} s left"
        return f"<Lease of {self.name!r}, token {self.token}, {state}>"
