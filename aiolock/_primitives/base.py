"""What the primitives with leases share: acquiring for a lease, and the verbs of a lock."""

import asyncio
import sys
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import astuple
from time import monotonic
from types import CoroutineType, TracebackType
from typing import Any, Unpack, cast

from aiolock._answers import answering, marked
from aiolock._core.acquire import Acquisition
from aiolock._core.hold import BaseLease
from aiolock._core.lease import Lease, refuse_under_work
from aiolock._core.owners import Caller, current_task, for_caller, in_own_task, refuse_elsewhere
from aiolock._core.session import Sessions
from aiolock._errors import BackendError, LockTimeoutError, NotALockError, NotHeldError
from aiolock._primitives.held_block import HeldLock
from aiolock._primitives.named import Named
from aiolock._scripts import INSPECT, Want
from aiolock._scripts.replies import SeenHold
from aiolock._types import BlockRelease, Duration, Holder, LockStatistics, lease_seconds, quoted, seconds
from aiolock._words import NoMore, shown_as, unexpected


@shown_as("handle")
class Single(Named):
    """
    A primitive with one name that is held for a lease; *want* says what an acquire takes.

    The owner is the running task, or the *named* owner for which the handle was made.
    """

    __slots__ = ("_named", "_want")

    def __init__(self, sessions: Sessions, *, want: Want, named: str | None) -> None:
        super().__init__(sessions, keys=want.keys)
        self._want = want
        self._named = named

    def __repr__(self) -> str:
        owner = "" if self._named is None else f" owner={quoted(self._named)}"
        return f"<{type(self).__name__} {quoted(self._keys.name)}{owner}>"

    @property
    def _acts_as_one(self) -> bool:
        """Whether all tasks that acquire it are the same owner."""
        return self._named is not None

    # pyright accepts only the type that it gives to an `async def`, and mypy gives it another: therefore the casts.
    @marked
    def __aenter__(self) -> "CoroutineType[Any, Any, Lease]":
        return cast("CoroutineType[Any, Any, Lease]", self._enter(current_task()))

    @marked
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> "CoroutineType[Any, Any, None]":
        # Find the block now: another task may await the coroutine.
        left = self._sessions.leave(sys._getframe(1), current_task(), self._want, self._named, error)
        return cast("CoroutineType[Any, Any, None]", left)

    async def _enter(self, caller: "asyncio.Task[object] | None", depth: int = 1) -> Lease:
        acquisition = self._acquisition(None)
        if caller is not acquisition.record.task():
            refuse_elsewhere(self)
        granted = await acquisition.run(None)
        # A wait without a limit ends with a grant.
        assert granted is not None
        # Asked for before the grant, each waiter would keep the object of a frame.
        granted._session.blocks.enter(granted, entered_by=sys._getframe(depth))
        return granted

    def _acquire(self, wait: Duration | None, lease: Duration | None) -> Coroutine[Any, Any, Lease | None]:
        """Acquire within *wait* seconds (``None``: for ever), for *lease* seconds (``None``: the watchdog's)."""
        most = None if wait is None else seconds(wait, "wait", zero=True)
        return self._acquisition(None if lease is None else lease_seconds(lease)).run(most)

    def _acquisition(self, lease: float | None) -> Acquisition:
        """A new acquire by the owner; raises if the server could not grant it."""
        session, want = self._sessions.open(), self._want
        if lease is not None or want.at_least:
            session.timing.check_lease(max(lease or 0.0, want.at_least))
        owner, task = session.owners.acting(self._named)
        opened, keys = session.blocks.opened, want.keys
        if want.scripts.reentrant and (keys.entry in opened or keys.other in opened):
            session.blocks.refuse_in_lost(task, keys, owner)
        return Acquisition(session, want, owner, task, lease)

    def _owner(self, caller: Caller = None) -> str:
        """The id of the owner in the task of the *caller*, or the running one."""
        return self._sessions.open().owners.acting(self._named, caller)[0]

    def _is_same(self, other: "Single") -> bool:
        """Whether *other* is a handle of the same lock, for the same owner."""
        return (self._sessions, self._want, self._named) == (other._sessions, other._want, other._named)

    def _last_lease(self, caller: Caller) -> BaseLease | None:
        """The lease that the next release by the *caller*, or the running task, gives back."""
        session = self._sessions.here()
        owner, task = session.owners.acting(self._named, caller)
        return session.leases.last_lease(self._keys, owner, task)

    async def _acquire_or_raise(self, wait: Duration | None, lease: Duration | None) -> Lease:
        """Acquire as in `_acquire`, but raise `LockTimeoutError` at the end of the wait."""
        started = monotonic()
        granted = await self._acquire(wait, lease)
        if granted is None:
            raise self._timeout(monotonic() - started)
        return granted

    def _timeout(self, waited: float) -> LockTimeoutError:
        """The error after a wait of *waited* seconds without a grant."""
        held_here = self._sessions.here().leases.held_here(self._want)
        return LockTimeoutError(self._keys.name, waited, held_here, kind=self._want.scripts.kind)


def refuse_release(lease: BaseLease) -> None:
    """
    Raise if a block gives *lease* back at its end, which would fail after a release by the handle; or if work of a term
    runs under it.
    """
    if lease._scoped and not lease._hold.over:
        raise RuntimeError(
            f"lock {quoted(lease._hold.keys.name)}: every hold of the owner is in a block, which gives it back at its "
            "end. To give it back sooner, end the block, or acquire without a block"
        )
    if lease._hold.bodies:
        refuse_under_work(lease)


def added_up(parts: Iterable[Single]) -> LockStatistics:
    """The numbers of this client for all *parts*, added up."""
    each = [astuple(part.statistics()) for part in parts]
    return LockStatistics(*map(sum, zip(*each, strict=True)))


@shown_as("lock")
@answering
class Lock(Single):
    """A reentrant lock of the kind that *want* has; Redis knows its owner and its hold count."""

    __slots__ = ()

    @in_own_task
    async def acquire(self, *, lease: Duration | None = None) -> Lease:
        """
        Wait as long as it takes until the owner holds the lock.

        Waits in a FIFO with the other tasks of this client; an unlock message wakes the first. *lease* is in seconds:
        the lock is held for exactly that time and never renewed. ``None`` means the configured lease, which the
        watchdog renews until the release. A nested acquire never shortens the lease. Cancelling leaves nothing behind:
        a grant that was on its way is given back.

        Raises:
            LeaseLostError: the owner held the lock already, and it is lost.
            NotALockError: the key is not a lock.
            BackendError: Redis failed for longer than `LockConfig.command_timeout`.
            ReplicationError: fewer replicas than `LockConfig.replicas` acknowledged it; the grant was undone.
            ClientClosedError: the client is closed, or belongs to another loop or process.
            RuntimeError: the coroutine runs in another task than its caller's, and that task would own the lock; or the
                owner would wait for itself, because it has the fair lock of the name and asks for the plain one, or the
                other way round.
        """
        granted = await self._acquire(None, lease)
        # A wait without a limit ends with a grant.
        assert granted is not None
        return granted

    @in_own_task
    async def try_lock(self, wait: Duration | None = 0, lease: Duration | None = None) -> Lease | None:
        """
        Take the lock if that is possible within *wait* seconds, else return ``None``.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. *lease*, cancellation and errors are as in `acquire`.
        When Redis does not answer, the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        return await self._acquire(wait, lease)

    # Every primitive that can be acquired has `try_acquire`; a lock has Redisson's name as well.
    try_acquire = try_lock

    @for_caller
    async def release(self, caller: Caller) -> None:
        """
        Release one hold of the current owner, the last that it acquired.

        Waits for the server's answer, up to `LockConfig.release_timeout`. Cancelling only stops the waiting: the
        release is sent all the same. The owner is the task that calls this, even if another one awaits it, as in
        ``asyncio.shield(lock.release())``.

        Raises:
            NotHeldError: the owner holds nothing; the error names the holder.
            RuntimeError: every hold of the owner belongs to an ``async with`` block, which gives it back itself; or
                work of a leader's term runs under the hold.
            LeaseLostError: the owner held it, and the lock is lost.
            BackendError: no answer in time; the release is tried for as long as there can be something to free.
        """
        lease = self._last_lease(caller)
        if lease is None:
            raise await self._not_held(caller)
        refuse_release(lease)
        await lease._hold.give_back(lease)

    def hold(
        self,
        wait: Duration | None = None,
        lease: Duration | None = None,
        *,
        release: BlockRelease | None = None,
        **unknown: Unpack[NoMore],
    ) -> HeldLock:
        """
        Hold the lock for an ``async with`` block: ``async with lock.hold(wait=2, lease=10) as lease:``.

        *wait* and *lease* are in seconds, as in `try_lock`, but a wait that ends raises `LockTimeoutError`. If the lock
        is lost, the block is cancelled, once, and `LeaseLostError` is raised. *release* overrides `LockConfig.release`.
        """
        if unknown:
            raise unexpected("hold", unknown)
        return HeldLock(self, wait, lease, release)

    async def locked(self) -> bool:
        """
        Whether there is a holder, according to Redis.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        `held`, `hold_count`, `remaining`, `holder` and `holders` do the same.

        Raises:
            NotALockError: the key is not a lock.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return bool(await self._seen())

    @in_own_task
    async def held(self) -> bool:
        """
        Whether the current owner holds the lock, according to Redis; waits and raises like `locked`.

        If its coroutine runs in another task, as in ``gather(lock.held())``, it raises `RuntimeError`: that task is
        another owner.
        """
        return await self.hold_count() > 0

    @in_own_task
    async def hold_count(self) -> int:
        """The number of the current owner's holds, according to Redis; waits and raises like `held`."""
        return sum(hold.holds for hold in await self._seen(self._owner()))

    async def remaining(self) -> float | None:
        """
        Seconds until the last of the holders' leases ends, according to Redis; ``None`` if the lock is free.

        Waits and raises like `locked`.
        """
        return max((hold.left for hold in await self._seen()), default=None)

    async def force_release(self) -> bool:
        """
        Free the lock from all holders, and wake the waiters; returns whether there were holders.

        For operators: a holder in another client learns of the loss at its next renewal or release. Waits for the
        server's answer, up to `LockConfig.command_timeout`; a cancelled call may have freed the lock or not. Raises
        `NotALockError` and `BackendError`.
        """
        return await self._sessions.open().force_release(self._want)

    async def _seen(self, owner: str = "") -> Sequence[SeenHold]:
        """The holds of this name that Redis has: those of *owner*, or all."""
        holds = await self._sessions.open().commands.ask(INSPECT, self._keys, 1)
        return [hold for hold in holds if owner in ("", hold.owner)]

    async def _holders(self) -> Sequence[Holder]:
        return [seen.holder for seen in await self._seen()]

    async def _holder(self) -> Holder | None:
        """The holder; if there are several, the first."""
        return next((seen.holder for seen in await self._seen()), None)

    async def _not_held(self, caller: Caller) -> NotHeldError:
        owner = self._owner(caller)
        try:
            return NotHeldError(self.name, owner, await self._holder())
        except (BackendError, NotALockError):
            return NotHeldError(self.name, owner, None, "the holder is not known")
