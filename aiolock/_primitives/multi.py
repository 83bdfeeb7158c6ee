"""AsyncMultiLock: several locks as one, all of them or none."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from types import FrameType
from typing import final

from aiolock._core.lease import Lease
from aiolock._core.together import Begun, all_of, leave_all
from aiolock._errors import AioLockError, LeaseLostError, NotHeldError
from aiolock._primitives.base import Held, Lockable, added_up
from aiolock._primitives.member import Member, hold_count, holders, in_order, remaining
from aiolock._primitives.multi_lease import MultiLease
from aiolock._types import Duration, Holder, LockStatistics, lease_seconds, seconds

_MOST_LOST = 3  # Times that locks were lost while waiting for others: from then on it is too short a lease.
_KEPT = 1 / 3  # Of a lease: the time from one renewal to the next while waiting for other locks.


@final
class AsyncMultiLock(Lockable[MultiLease]):
    """
    Several locks as one, all of them or none; made by `LockClient.multi`.

    While all are free they are acquired in one round trip. Who waits for one has only those before it, in the order of
    their keys, so that no two deadlock, whatever order they were named in. A handle without state of its
    own, reentrant as its members are: of permits each acquire takes others, and a release gives the last ones back.
    Plain locks of the same names exclude it, and are excluded.
    """

    __slots__ = ("__weakref__", "_members")

    def __init__(self, members: Iterable[object]) -> None:
        self._members: Sequence[Member] = in_order(members)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the locks, in the order in which they are waited for."""
        return tuple(member.name for member in self._members)

    @property
    def name(self) -> str:
        """The names, for people."""
        return ", ".join(self.names)

    async def acquire(self, *, lease: Duration | None = None) -> MultiLease:
        """
        Wait as long as it takes until the owner holds all the locks.

        *lease* is in seconds: exactly that long from the last grant on, never renewed; ``None`` means the configured
        lease, renewed by the watchdog until release. A nested acquire never shortens a lease. Cancelling leaves
        nothing behind: what was granted is given back.

        Raises:
            LeaseLostError: the owner held one of them already, and it is lost; or some were lost again and again while
                others were waited for.
            NotALockError, BackendError, ReplicationError, ClientClosedError: as `AsyncRLock.acquire`, for any of them.
            RuntimeError: it is the whole of a task, which would own the locks and be gone.
        """
        granted = await self._acquire(None, lease)
        assert granted is not None  # A wait without end ends with a grant.
        return granted

    async def try_lock(self, wait: Duration | None = 0, lease: Duration | None = None) -> MultiLease | None:
        """
        Take the locks if that is possible within *wait* seconds, else none of them, and return ``None``.

        ``wait=0`` asks Redis once for each: of several who try at the same moment, perhaps none gets all. ``wait=None``
        waits for ever. *lease*, cancelling and errors as in `acquire`.
        When Redis does not answer, the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        return await self._acquire(wait, lease)

    async def release(self) -> None:
        """
        Give one hold of each lock back, from the current owner.

        Waits for the server's answers, up to `LockConfig.release_timeout`. Cancelling stops the waiting only: the
        releases are sent all the same.

        Raises:
            NotHeldError: the owner does not hold one of them; then it keeps the others.
            LeaseLostError: it did, and one of them is lost; the others are given back.
            BackendError: no answer in time; the releases are tried on for as long as there can be something to free.
        """
        for member in self._members:
            if member._last_lease() is None:
                raise await member._not_held()
        await all_of([Begun(member.release()) for member in reversed(self._members)])

    def hold(self, wait: Duration | None = None, lease: Duration | None = None) -> "HeldMultiLock":
        """
        The locks for an ``async with`` block, bounded: ``async with both.hold(wait=2, lease=10) as lease:``.

        *wait* and *lease* are in seconds, as in `try_lock`, but a wait that ends raises `LockTimeoutError`, with the
        name that was waited for. When a lock is lost the block is cancelled, once, the others are given back, and
        `LeaseLostError` is raised.
        """
        return HeldMultiLock(self, wait, lease)

    async def locked(self) -> bool:
        """Whether anyone holds any of the locks, by Redis; waits and raises as `AsyncRLock.locked`."""
        return any(await all_of([Begun(member.locked()) for member in self._members]))

    async def held(self) -> bool:
        """Whether the current owner holds all of the locks, by Redis; waits and raises as `AsyncRLock.locked`."""
        return await self.hold_count() > 0

    async def hold_count(self) -> int:
        """How many holds of all the locks the current owner has, by Redis; waits and raises as `AsyncRLock.locked`."""
        return min(await all_of([Begun(hold_count(member)) for member in self._members]))

    async def remaining(self) -> float | None:
        """
        Seconds until none of the locks is held, unless leases are renewed, by Redis; ``None`` if none is.

        Waits and raises as `AsyncRLock.locked`.
        """
        each = await all_of([Begun(remaining(member)) for member in self._members])
        return max((left for left in each if left is not None), default=None)

    async def holders(self) -> Mapping[str, Sequence[Holder]]:
        """Who holds each lock, by its name, by Redis; waits and raises as `AsyncRLock.locked`."""
        return dict(zip(self.names, await all_of([Begun(holders(member)) for member in self._members]), strict=True))

    async def force_release(self) -> bool:
        """Free every lock whoever holds it; whether anyone held any. As `AsyncRLock.force_release`."""
        return any(await all_of([Begun(member.force_release()) for member in self._members]))

    def statistics(self) -> LockStatistics:
        """What this client does with the names right now, added up; no I/O."""
        return added_up(self._members)

    def __repr__(self) -> str:
        return f"<AsyncMultiLock {', '.join(map(repr, self.names))}>"

    async def _acquire(self, wait: Duration | None, lease: Duration | None) -> MultiLease | None:
        found = await self._gather(wait, lease)
        return found if isinstance(found, MultiLease) else None

    async def _acquire_or_raise(self, wait: Duration | None, lease: Duration | None) -> MultiLease:
        started = monotonic()
        found = await self._gather(wait, lease)
        if isinstance(found, Member):
            raise found._timeout(monotonic() - started)
        return found

    def _gather(self, wait: Duration | None, lease: Duration | None) -> Coroutine[object, object, MultiLease | Member]:
        most = None if wait is None else seconds(wait, "wait", zero=True)
        length = None if lease is None else lease_seconds(lease)
        return _Gathering(self._members, length, most).run()

    def _leave(self, frame: FrameType, error: BaseException | None) -> Coroutine[object, object, None]:
        return leave_all([partial(member._leave, frame) for member in reversed(self._members)], error)


@final
class HeldMultiLock(Held[MultiLease]):
    """What `AsyncMultiLock.hold` returns, for one ``async with`` at a time."""

    __slots__ = ()


class _Gathering:
    """One acquire of all *members*; *lease* and *wait* are in seconds, ``None`` for the watchdog's and for ever."""

    # Invariant: `_granted` has the leases of the first members, in order: who waits for one has nothing behind it.

    def __init__(self, members: Sequence[Member], lease: float | None, wait: float | None) -> None:
        self._members = members
        self._lease = lease
        self._wait = wait
        self._started = monotonic()
        self._granted: list[Lease] = []
        self._taken: set[Member] = set()  # Who refused, and has not been waited for since.
        self._waited = False  # What is granted by now was not granted at once.
        self._lost = 0  # Times that some of it was lost.

    async def run(self) -> MultiLease | Member:
        """All of them; or the one that could not be had in time."""
        try:
            while len(self._granted) < len(self._members):
                refused = await self._ask()
                if refused is not None and not await self._wait_for(refused):
                    await _give_back(self._granted)
                    return refused
                await self._renew_what_waited()
                self._drop_lost()
        except BaseException:
            _let_go(self._granted)
            raise
        return MultiLease(self._granted)

    async def _renew_what_waited(self) -> None:
        """When the last one is granted, a lease of a given length begins for all."""
        if self._waited and self._lease is not None and len(self._granted) == len(self._members):
            await _renew(self._granted)

    def _drop_lost(self) -> None:
        """What was lost while others were waited for is asked for again, with all behind it."""
        for place, lease in enumerate(self._granted):
            if lease.given_back or lease.lost.is_set():
                _let_go(self._granted[place:])
                del self._granted[place:]
                self._lost += lease.lost.is_set()
                if self._lost == _MOST_LOST:
                    raise lease._hold.error()
                return

    # All that are missing are asked for at once.

    async def _ask(self) -> Member | None:
        """Ask for what is missing, up to what is known to be taken; who is the first that cannot be had now."""
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
        """Keep what was granted before the first refusal, and give back what was granted after it; who refused."""
        refused: Member | None = None
        surplus: list[Lease] = []
        try:
            for member, answer in zip(members, asked, strict=False):
                lease = await answer
                if lease is None:
                    self._taken.add(member)
                    refused = refused or member
                else:
                    (self._granted if refused is None else surplus).append(lease)
        except BaseException:
            _let_go(surplus)
            raise
        await _give_back(surplus)
        return refused

    # One is waited for.

    async def _wait_for(self, member: Member) -> bool:
        """Wait for *member*, and keep what was granted before it; ``False`` when the wait is over."""
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
        """Renew what is there until it is cancelled; one that fails is made good by the next, as the watchdog's."""
        while True:
            await asyncio.sleep(lease * _KEPT)
            with suppress(AioLockError):
                await _renew(self._granted)


async def _renew(leases: Iterable[Lease]) -> None:
    """Let them live as long as was asked for; who has been lost meanwhile will be noticed."""
    with suppress(LeaseLostError, NotHeldError):
        await all_of([Begun(lease.renew()) for lease in leases])


async def _give_back(leases: Iterable[Lease]) -> None:
    """Nobody got to see them: what becomes of their release is nobody's concern."""
    with suppress(AioLockError):
        await all_of([Begun(lease.release()) for lease in leases])


def _let_go(leases: Iterable[Lease]) -> None:
    """As `_give_back`, without waiting for the answers, by who is cancelled or has failed."""
    for lease in leases:
        session, hold = lease._session, lease._hold
        if not lease.given_back and session.leases.take_back(lease) is not None:
            session.report.released(hold, len(hold.leases), monotonic(), confirmed=False)
