"""A lease: what the user of a lock gets to see of a hold."""

import asyncio
from collections.abc import Coroutine, Generator
from time import monotonic
from types import TracebackType
from typing import Any, Self, final

from aiolock._core.hold import Grant, Hold
from aiolock._core.lease_manager import refuse_if_given_back
from aiolock._core.scope import Place
from aiolock._core.session import Session
from aiolock._errors import LossReason
from aiolock._types import Duration, lease_seconds


@final
class Loss:
    """Whether a lease was lost: ask `is_set`, or await it."""

    __slots__ = ("_hold", "_session")

    def __init__(self, hold: Hold, session: Session) -> None:
        self._hold = hold
        self._session = session

    def is_set(self) -> bool:
        """Whether the lock is lost; by the clock too, so that it is right after a blocked loop or a paused process."""
        return self._hold.over

    def __await__(self) -> Generator[Any, None, LossReason]:
        """
        Wait until the lock is lost, and tell why; for ever if it never is, also after its release.

        Raises:
            ClientClosedError: in another event loop or process than that of its client.
        """
        self._session.check_place()
        return self._hold.until_lost().__await__()

    def __repr__(self) -> str:
        return f"<Loss {self._hold.loss or 'expired' if self.is_set() else 'not set'}>"


@final
class Lease(Grant):
    """
    One hold of a lock, as `AsyncRLock.acquire` and its kin return it.

    It stands for one acquire: releasing it gives back one hold. It may be passed to other tasks; the hold still
    belongs to the owner that acquired it, and ends with it. ``async with lease:`` gives it back at the end, and cancels
    its body when the lock is lost, as ``async with lock:`` does.
    """

    __slots__ = ("_session",)

    def __init__(self, hold: Hold, session: Session, lease: float, watched: bool, task: "asyncio.Task[object]") -> None:
        super().__init__(hold, lease, watched, task)
        self._session = session

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
        return Loss(self._hold, self._session)

    def check(self) -> None:
        """
        Raise if the lock is no longer held; cheap, no I/O: call it before each step that must not be done twice.

        Raises:
            LeaseLostError: the lock is lost, by the clock or by word of the server; also if this lease was given back.
            NotHeldError: this lease was given back.
        """
        if self._hold.over:
            raise self._hold.error()
        refuse_if_given_back(self)

    async def __aenter__(self) -> Self:
        self._refuse_block()
        self._open_block(None)
        return self

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[object, object, None]:
        return self._session.blocks.leave_lease(self, error)

    def _open_block(self, place: Place | None) -> None:
        """A block begins that will give it back; found by *place*, if it is to be left without it."""
        self._session.blocks.enter(self, place)

    def _refuse_block(self) -> None:
        """Raise if no ``async with`` may give it back."""
        self._session.check_place()
        self._session.leases.refuse_if_over(self._hold)
        refuse_if_given_back(self)
        if self._scoped:
            raise RuntimeError(f"lock {self.name!r}: this lease is in an `async with` already, which gives it back")

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
        self._session.check_place()
        await self._session.leases.give_back(self)

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
        seconds = self.lease if lease is None else lease_seconds(lease)
        self._session.check_place()
        self._session.check_open()
        await self._session.leases.renew_lease(self, seconds)

    def __repr__(self) -> str:
        state = "lost" if self._hold.over else "given back" if self.given_back else f"{self.remaining:.3g} s left"
        return f"<Lease of {self.name!r}, token {self.token}, {state}>"
