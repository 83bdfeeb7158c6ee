"""A lease: the user's view of one hold."""

from collections.abc import Generator, Iterable
from time import monotonic
from types import CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast, final

from aiolock._answers import NoCondition, marked
from aiolock._core.detach import UNDER_WORK, detach, refuse_to_detach
from aiolock._core.hold import BaseLease, Hold
from aiolock._core.owners import OwningTask
from aiolock._core.session import Session
from aiolock._core.ticket import Ticket
from aiolock._errors import ClientClosedError, LossReason
from aiolock._process import Unique
from aiolock._types import BlockRelease, Duration, lease_seconds, quoted
from aiolock._words import refuse_attribute


@final
class Loss(NoCondition, Unique):
    """Whether a lease is lost: call `is_set`, or await this object."""

    __slots__ = ("_hold", "_session")

    def __init__(self, hold: Hold, session: Session) -> None:
        self._hold = hold
        self._session = session

    def is_set(self) -> bool:
        """Whether the lock is lost, by the clock, too: a blocked loop or a paused process hides no loss."""
        return self._hold.over

    def __await__(self) -> Generator[Any, None, LossReason]:
        """
        Wait until the lock is lost, and return the reason; never ends if it is not lost, even after the release.

        Raises:
            ClientClosedError: you await it in another event loop or process than the client's.
        """
        self._session.check_place()
        return self._hold.until_lost().__await__()

    def __repr__(self) -> str:
        return f"<Loss {self._hold.loss or self._hold.why_over if self.is_set() else 'not set'}>"


@final
class Lease(BaseLease):
    """
    One hold of a lock, as `AsyncRLock.acquire` and similar methods return it.

    A lease stands for one acquire: releasing the lease gives one hold back. You may pass it to other tasks; the hold
    still belongs to the owner that acquired it, and ends with that owner. ``async with lease:`` gives the hold back at
    the end, and cancels its body when the lock is lost, as ``async with lock:`` does.
    """

    __slots__ = ()

    _session: Session

    if not TYPE_CHECKING:
        __getattr__ = refuse_attribute

    @property
    def name(self) -> str:
        """The name of the lock."""
        return self._hold.keys.name

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant of this name."""
        return self._hold.token

    @property
    def remaining(self) -> float:
        """Seconds until the lease counts as ended, unless it is renewed; 0 if it is lost or given back."""
        return 0.0 if self._hold.over or self.given_back else max(0.0, self._hold.deadline - monotonic())

    @property
    def holds(self) -> int:
        """The hold count of the owner, as far as this client knows; 0 if the lock is lost or the lease given back."""
        return 0 if self._hold.over or self.given_back else len(self._hold.leases)

    @property
    def lost(self) -> Loss:
        """Whether the lock is lost: ``lease.lost.is_set()``, ``await lease.lost``."""
        return Loss(self._hold, self._session)

    def check(self) -> None:
        """
        Raise if the lock is no longer held; cheap, no I/O: call it before each step that must not be done twice.

        Raises:
            LeaseLostError: the lock is lost, by the clock or by an answer of the server; even if this lease was given
                back.
            NotHeldError: this lease was given back.
            ClientClosedError: this is a forked child: the lock belongs to the parent, and the child does not know its
                state.
        """
        if self._session.forked:
            raise ClientClosedError("other process")
        if self._hold.over:
            raise self._hold.error()
        self._refuse_if_given_back()

    async def __aenter__(self) -> Self:
        self._refuse_own_block()
        return self._entered()

    def _entered(self) -> Self:
        """Begin a block that gives this lease back, its own or that of a term, and return it."""
        self._refuse_block()
        self._open_block()
        return self

    @marked
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> "CoroutineType[Any, Any, None]":
        return cast("CoroutineType[Any, Any, None]", self._session.blocks.leave_lease(self, error))

    def _open_block(self, release: BlockRelease | None = None) -> None:
        """Begin a block that gives this lease back; *release* overrides `LockConfig.release`."""
        self._session.blocks.enter(self, release=release)

    def _refuse_own_block(self) -> None:
        """Raise if this lease is that of a leader's term, whose block gives it back."""
        if self._hold.has_term(self):
            raise RuntimeError(
                f"lock {quoted(self.name)}: this is the lease of a leader's term: use the block of the term, as in "
                "`async with term:`"
            )

    def _refuse_block(self) -> None:
        """Raise if this lease cannot be given back by a block."""
        self._session.check_place()
        self._hold.refuse_if_over()
        self._refuse_if_given_back()
        if self._scoped:
            raise RuntimeError(f"lock {quoted(self.name)}: this lease is in a block already, which gives it back")

    async def release(self) -> None:
        """
        Give this hold back, from any task.

        Waits for the server's answer, up to `LockConfig.release_timeout`. Cancelling only stops the waiting: the
        release is sent all the same.

        Raises:
            NotHeldError: this lease was given back before.
            LeaseLostError: the lock was lost.
            RuntimeError: work of a leader's term runs under it: `Term.step_down` ends the work first.
            BackendError: no answer in time; the release is tried for as long as there can be something to free.
        """
        self._session.check_place()
        refuse_under_work(self)
        await self._hold.give_back(self)

    async def renew(self, lease: Duration | None = None) -> None:
        """
        Let the lock live *lease* seconds from now; ``None`` means the length that the acquire asked for.

        Never shortens a lease. If another renewal overtakes this one, it is sent again. Waits for the server's answer,
        up to `LockConfig.command_timeout`; a cancelled call may have renewed the lock or not.

        Raises:
            LeaseLostError: the lock was lost; a renewal never takes it again.
            NotHeldError: this lease was given back, or the lock was released meanwhile.
            BackendError: Redis failed; the lease is as long as before.
            ReplicationError: fewer replicas than `LockConfig.replicas` acknowledged the renewal; it does not count.
        """
        seconds = self.lease if lease is None else lease_seconds(lease)
        self._session.check_place()
        self._session.check_open()
        await self._session.watchdog.renew(self, seconds)

    async def detach(self, keep: Duration) -> str:
        """
        Hand the lock over to another process; returns the ticket for `LockClient.adopt`.

        The lock stays held for *keep* seconds, which may be less than the rest of the lease. This lease counts as given
        back, and its block ends without a release; but if an exception leaves the block, the lock is released, unless
        it was adopted. The ticket is a secret: everybody who has it can adopt the lock.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and for `LockConfig.replicas`. After a
        cancellation, or without an answer, the lock is released.

        Raises:
            LeaseLostError: the lock was lost.
            NotHeldError: this lease was given back before.
            RuntimeError: the owner has more than one hold, or reads and writes, or the lock was acquired with
                *at_least*; or work of a leader's term runs under this lease.
            TypeError, ValueError: *keep* is not a duration; or this is a client of several servers (`redlock`).
            BackendError: Redis failed.
            ReplicationError: fewer replicas than `LockConfig.replicas` acknowledged the detach; the lock was released.
        """
        seconds = lease_seconds(keep, "keep")
        refuse_to_detach(self, self._session, seconds)
        part = await detach(self, self._session, seconds)
        return Ticket(part.kind, (part,)).text()

    def __repr__(self) -> str:
        state = "lost" if self._hold.over else "given back" if self.given_back else f"{self.remaining:.3g} s left"
        return f"<Lease of {quoted(self.name)}, token {self.token}, {state}>"


class NewLease(NamedTuple):
    """The last arguments of a `Lease`: what an acquire decides about it."""

    length: float
    """Seconds."""
    watched: bool
    """Whether the watchdog renews it."""
    record: OwningTask
    """The task that acquires it."""


def release_unawaited(leases: Iterable[BaseLease]) -> None:
    """Release *leases* without waiting for the answers, after a cancellation or a failure."""
    for lease in leases:
        hold = lease._hold
        if not lease.given_back and hold.take_back(lease) is not None:
            hold._keeper.report.released(hold, len(hold.leases), monotonic(), confirmed=False)


def refuse_under_work(lease: BaseLease) -> None:
    """Raise if work of a term runs under *lease*: another leader would begin before this work has ended."""
    lease._hold.notice_end()
    if lease._hold.has_work_under(lease):
        if lease._hold.ended:
            raise lease._hold.error()
        raise RuntimeError(f"lock {quoted(lease._hold.keys.name)} cannot be released: {UNDER_WORK}")
