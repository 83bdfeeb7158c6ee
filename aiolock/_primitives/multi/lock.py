"""AsyncMultiLock: several locks as one, all of them or none."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Unpack, final

from aiolock._answers import answering
from aiolock._core.lease import Lease, release_unawaited
from aiolock._core.owners import Caller, for_caller, in_own_task
from aiolock._errors import AioLockError, LeaseLostError, NotHeldError, QuorumError
from aiolock._helpers.together import Begun, all_of
from aiolock._primitives.base import added_up, refuse_release
from aiolock._primitives.entered import Entered
from aiolock._primitives.held_block import HeldBlock
from aiolock._primitives.multi.lease import MultiLease
from aiolock._primitives.multi.member import Member, hold_count, holders, in_order, remaining
from aiolock._types import BlockRelease, Duration, Holder, LockStatistics, lease_seconds, seconds
from aiolock._words import NoMore, refuse_attribute, unexpected

# An acquire that loses locks so often while it waits for others has too short a lease, and gives up.
_MOST_LOSSES = 3
# The time between two renewals during the wait for other locks, as a part of the lease.
_RENEWED_EVERY = 1 / 3


@final
@answering
class AsyncMultiLock(Entered[MultiLease]):
    """
    Several locks as one, all of them or none; made by `LockClient.multi`.

    If all locks are free, they are acquired in one round trip. A task that waits for one lock holds only the locks
    before it, in the order of their keys, so that no two tasks deadlock, in whatever order they name the locks. Tasks
    may share the handle. A multi lock is reentrant like its members; each acquire of a semaphore takes further permits,
    and a release gives the last ones back. A multi lock and plain locks of the same names exclude each other.
    """

    __slots__ = ("_members",)

    if not TYPE_CHECKING:
        __getattr__ = refuse_attribute

    def __init__(self, *, members: Iterable[object]) -> None:
        self._members: Sequence[Member] = in_order(members)
        super().__init__(self._members[0]._sessions)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order in which an acquire waits for them."""
        return tuple(member.name for member in self._members)

    @property
    def name(self) -> str:
        """The names of the locks, as a text for people."""
        return ", ".join(self.names)

    @in_own_task
    async def acquire(self, *, lease: Duration | None = None) -> MultiLease:
        """
        Wait as long as it takes until the owner holds all the locks.

        *lease* is in seconds: the locks are held for exactly that time from the last grant on, and never renewed.
        ``None`` means the configured lease, which the watchdog renews until the release. A nested acquire never
        shortens a lease. Cancelling leaves nothing behind: locks that were granted are given back.

        Raises:
            LeaseLostError: the owner held one of the locks already, and has lost it; or locks were lost again and again
                during the wait for others.
            NotALockError, BackendError, ReplicationError, ClientClosedError: as in `AsyncRLock.acquire`, for any lock.
            RuntimeError: the coroutine runs in another task than its caller's, and that task would own the locks.
        """
        return await self._acquire_or_raise(None, lease)

    @in_own_task
    async def try_lock(self, wait: Duration | None = 0, lease: Duration | None = None) -> MultiLease | None:
        """
        Take all the locks if that is possible within *wait* seconds, else take none and return ``None``.

        ``wait=0`` asks Redis once for each lock: if several tasks try at the same moment, perhaps none gets all locks.
        ``wait=None`` waits for ever. *lease*, cancellation and errors are as in `acquire`. When Redis does not answer,
        the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        found = await self._gather(wait, lease)
        return found if isinstance(found, MultiLease) else None

    try_acquire = try_lock

    @for_caller
    async def release(self, caller: Caller) -> None:
        """
        Give one hold of each lock back, from the current owner.

        Waits for the server's answers, up to `LockConfig.release_timeout`. Cancelling only stops the waiting: the
        releases are sent all the same. The owner is the task that calls this, as in `AsyncRLock.release`.

        Raises:
            NotHeldError: the owner does not hold one of the locks; then it keeps the others.
            RuntimeError: one of the locks cannot be released by a handle, as in `AsyncRLock.release`; then the owner
                keeps all of them.
            LeaseLostError: the owner held all the locks, and has lost one; the others are given back.
            BackendError: no answer in time; the releases are tried for as long as there can be something to free.
        """
        leases = []
        for member in self._members:
            if (lease := member._last_lease(caller)) is None:
                raise await member._not_held(caller)
            leases.append(lease)
        for lease in leases:
            refuse_release(lease)
        await all_of([Begun(lease._hold.give_back(lease)) for lease in reversed(leases)])

    def hold(
        self,
        wait: Duration | None = None,
        lease: Duration | None = None,
        *,
        release: BlockRelease | None = None,
        **unknown: Unpack[NoMore],
    ) -> "HeldMultiLock":
        """
        Hold the locks for an ``async with`` block: ``async with both.hold(wait=2, lease=10) as lease:``.

        *wait* and *lease* are in seconds, as in `try_lock`, but a wait that ends raises `LockTimeoutError`, with the
        name of the lock that was not granted. If a lock is lost, the block is cancelled, once, the other locks are
        given back, and `LeaseLostError` is raised. *release* overrides `LockConfig.release`, for all locks.
        """
        if unknown:
            raise unexpected("hold", unknown)
        return HeldMultiLock(self, wait, lease, release)

    async def locked(self) -> bool:
        """Whether any of the locks has a holder, according to Redis; waits and raises like `AsyncRLock.locked`."""
        return any(await all_of([Begun(member.locked()) for member in self._members]))

    @in_own_task
    async def held(self) -> bool:
        """Whether the current owner holds all the locks, by Redis; waits and raises like `AsyncRLock.held`."""
        return await self.hold_count() > 0

    @in_own_task
    async def hold_count(self) -> int:
        """The number of times that the current owner holds all the locks; waits and raises like `AsyncRLock.held`."""
        return min(await all_of([Begun(hold_count(member)) for member in self._members]))

    async def remaining(self) -> float | None:
        """
        Seconds until all the locks are free, without further renewals, according to Redis; ``None`` if they are free.

        Waits and raises like `AsyncRLock.locked`.
        """
        each = await all_of([Begun(remaining(member)) for member in self._members])
        return max((left for left in each if left is not None), default=None)

    async def holders(self) -> Mapping[str, Sequence[Holder]]:
        """The holders of each lock, by its name, according to Redis; waits and raises like `AsyncRLock.locked`."""
        return dict(zip(self.names, await all_of([Begun(holders(member)) for member in self._members]), strict=True))

    async def force_release(self) -> bool:
        """Free every lock from its holders; returns whether there were any. See `AsyncRLock.force_release`."""
        return any(await all_of([Begun(member.force_release()) for member in self._members]))

    def statistics(self) -> LockStatistics:
        """The numbers of this client for the names at the moment, added up; no I/O."""
        return added_up(self._members)

    def __repr__(self) -> str:
        return f"<AsyncMultiLock {', '.join(map(repr, self.names))}>"

    @property
    def _acts_as_one(self) -> bool:
        return all(member._acts_as_one for member in self._members)

    async def _acquire_or_raise(self, wait: Duration | None, lease: Duration | None) -> MultiLease:
        started = monotonic()
        found = await self._gather(wait, lease)
        if isinstance(found, Member):
            raise found._timeout(monotonic() - started)
        return found

    def _gather(self, wait: Duration | None, lease: Duration | None) -> Coroutine[Any, Any, MultiLease | Member]:
        most = None if wait is None else seconds(wait, "wait", zero=True)
        length = None if lease is None else lease_seconds(lease)
        return _Gathering(self._members, length, most).run()

    async def _begin(self) -> tuple[MultiLease, MultiLease]:
        granted = await self._acquire_or_raise(None, None)
        granted._open_block()
        return granted, granted


@final
class HeldMultiLock(HeldBlock[MultiLease]):
    """The result of `AsyncMultiLock.hold`, for one ``async with`` at a time."""

    __slots__ = ()


class _Gathering:
    """
    One acquire of all *members*.

    *lease* is in seconds, ``None`` for the watchdog's lease. *wait* is in seconds, ``None`` for ever.
    """

    # Invariant: `_granted` has the leases of the first members, in order. So a waiter for one member holds no later
    # one.

    def __init__(self, members: Sequence[Member], lease: float | None, wait: float | None) -> None:
        self._members = members
        self._lease = lease
        self._wait = wait
        self._started = monotonic()
        self._granted: list[Lease] = []
        # Members that were refused, and that `_wait_for` has not waited for since.
        self._taken: set[Member] = set()
        # Whether one of the grants came after a wait, so that the leases began at different times.
        self._waited = False
        self._losses = 0

    async def run(self) -> MultiLease | Member:
        """Acquire; returns the leases of all members, or the member that was not granted in time."""
        try:
            while len(self._granted) < len(self._members):
                refused = await self._ask()
                if refused is not None and not await self._wait_for(refused):
                    await _give_back(self._granted)
                    return refused
                await self._align_leases()
                self._drop_lost()
        except BaseException:
            release_unawaited(self._granted)
            raise
        return MultiLease(self._granted)

    async def _align_leases(self) -> None:
        """After the last grant, renew all leases of a given length, so that they begin together."""
        if self._waited and self._lease is not None and len(self._granted) == len(self._members):
            await _renew(self._granted)

    def _drop_lost(self) -> None:
        """Give up the first member that was lost during the wait for others, and all later ones: `_ask` asks again."""
        for place, lease in enumerate(self._granted):
            if lease.given_back or lease._hold.over:
                release_unawaited(self._granted[place:])
                del self._granted[place:]
                self._losses += lease._hold.over
                if self._losses == _MOST_LOSSES:
                    raise lease._hold.error()
                return

    async def _ask(self) -> Member | None:
        """Ask for the missing members together, up to one that is known to be taken; returns the first refused one."""
        missing = self._members[len(self._granted) :]
        asked: list[Begun[Lease | None]] = []
        try:
            for member in missing:
                acquisition = member._acquisition(self._lease)
                if self._wait != 0 and (member in self._taken or not acquisition.is_next()):
                    break
                asked.append(Begun(acquisition.run(0)))
            taken = missing[len(asked)] if len(asked) < len(missing) else None
            return await self._sort(missing, asked) or taken
        finally:
            for each in asked:
                each.close()

    async def _sort(self, members: Sequence[Member], asked: Sequence[Begun[Lease | None]]) -> Member | None:
        """Keep the grants before the first refusal, and give the later ones back; returns the refused member."""
        refused: Member | None = None
        surplus: list[Lease] = []
        try:
            for member, answer in zip(members, asked, strict=False):
                lease = await self._tried(answer)
                if lease is None:
                    self._taken.add(member)
                    refused = refused or member
                else:
                    (self._granted if refused is None else surplus).append(lease)
        except BaseException:
            release_unawaited(surplus)
            raise
        if surplus:
            await _give_back(surplus)
        return refused

    async def _tried(self, answer: Begun[Lease | None]) -> Lease | None:
        """The *answer* to one try; servers of a quorum without a vote count as a refusal, unless there is no wait."""
        try:
            return await answer
        except QuorumError:
            if self._wait == 0:
                raise
            return None

    async def _wait_for(self, member: Member) -> bool:
        """Wait for *member*, and keep the grants before it; ``False`` at the end of the wait."""
        left = None if self._wait is None else self._started + self._wait - monotonic()
        if left is not None and left <= 0:
            return False
        acquisition = member._acquisition(self._lease)
        keeper = None if self._lease is None else asyncio.ensure_future(self._keep(self._lease))
        try:
            lease = await acquisition.run(left)
        finally:
            if keeper is not None:
                keeper.cancel()
        if lease is None:
            return False
        self._taken.discard(member)
        self._granted.append(lease)
        self._waited = True
        return True

    async def _keep(self, lease: float) -> None:
        """Renew the present leases until cancelled; goes on after a failure, as the watchdog does."""
        while True:
            await asyncio.sleep(lease * _RENEWED_EVERY)
            with suppress(AioLockError):
                await _renew(self._granted)


async def _renew(leases: Iterable[Lease]) -> None:
    """Renew *leases* for their lengths; a loss will be noticed later."""
    with suppress(LeaseLostError, NotHeldError):
        await all_of([Begun(lease.renew()) for lease in leases])


async def _give_back(leases: Iterable[Lease]) -> None:
    """Release *leases*, which the user never saw, so that no failure of the release needs to be raised."""
    with suppress(AioLockError):
        await all_of([Begun(lease.release()) for lease in leases])
