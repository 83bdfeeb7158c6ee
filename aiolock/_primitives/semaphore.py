"""AsyncSemaphore: a number of permits, each for a time."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Unpack, final

from aiolock._answers import answering
from aiolock._core.lease import Lease
from aiolock._core.owners import Caller, for_caller, in_own_task
from aiolock._errors import NotHeldError
from aiolock._primitives.base import Single, refuse_release
from aiolock._primitives.held_block import HeldBlock
from aiolock._scripts import INSPECT_PERMITS, RESIZE
from aiolock._scripts.replies import Permits, SeenHold
from aiolock._types import BlockRelease, Duration, Holder, number_of_permits, quoted
from aiolock._words import NoMore, unexpected

# Permits of one acquire, which the server sets one by one.
_MOST_AT_ONCE = 1000
# Permits in one answer; the server looks at each.
_MOST_NAMED = 1000
_OF_OURS = re.compile(rb"(.*#\d+)#\d+", re.DOTALL)


@final
@answering
class AsyncSemaphore(Single):
    """
    A distributed semaphore, whose permits are leases; made by `LockClient.semaphore`.

    Each acquire gets permits of its own, as a lease. The watchdog renews the lease; its loss cancels the block; and the
    permits are available again after the death of the client. The handle has no state of its own. The owner is the
    running task, unless the handle was made for a named owner; when a task ends, its permits are given back. The
    semaphore follows Redisson's ``RPermitExpirableSemaphore``, and has the same layout in Redis.
    """

    __slots__ = ()

    def taking(self, permits: int) -> "AsyncSemaphore":
        """
        The same semaphore with another default: an acquire without a number takes *permits*.

        For ``async with``, `LockClient.multi` and `LockClient.synchronized`, where no number can be given. No I/O.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
        """
        number = number_of_permits(permits, least=1, most=_MOST_AT_ONCE)
        return AsyncSemaphore(self._sessions, want=replace(self._want, amount=(number,)), named=self._named)

    @in_own_task
    async def acquire(self, permits: int | None = None, *, lease: Duration | None = None) -> Lease:
        """
        Wait as long as it takes for *permits*, all at once; they are given back together.

        ``None`` means one, or the number given to `taking`.

        Waits in a FIFO with the other tasks of this client. Waiting clients stand in a line on the server, which
        reserves permits for the first of them. *lease* is in seconds: the permits are held for exactly that time and
        never renewed. ``None`` means the configured lease, which the watchdog renews until the release. Cancelling
        leaves nothing behind: a grant that was on its way is given back.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
            NotALockError: the key is not a semaphore.
            BackendError: Redis failed for longer than `LockConfig.command_timeout`.
            ReplicationError: fewer replicas than `LockConfig.replicas` acknowledged it; the grant was undone.
            ClientClosedError: the client is closed, or belongs to another loop or process.
            RuntimeError: the coroutine runs in another task than its caller's, and that task would own the permits.
        """
        granted = await self._of(permits)._acquire(None, lease)
        # A wait without a limit ends with a grant.
        assert granted is not None
        return granted

    @in_own_task
    async def try_acquire(
        self, wait: Duration | None = 0, lease: Duration | None = None, *, permits: int | None = None
    ) -> Lease | None:
        """
        Take all *permits* within *wait* seconds, or none of them and return ``None``.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. *lease*, cancellation and errors are as in `acquire`.
        When Redis does not answer, the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        return await self._of(permits)._acquire(wait, lease)

    def hold(
        self,
        wait: Duration | None = None,
        lease: Duration | None = None,
        *,
        permits: int | None = None,
        release: BlockRelease | None = None,
        **unknown: Unpack[NoMore],
    ) -> "HeldSemaphore":
        """
        Hold *permits* for an ``async with`` block: ``async with semaphore.hold(wait=2) as permit:``.

        *wait* and *lease* are in seconds, as in `try_acquire`, but a wait that ends raises `LockTimeoutError`. If the
        permits are lost, the block is cancelled, once, and `LeaseLostError` is raised. *release* overrides
        `LockConfig.release`.
        """
        if unknown:
            raise unexpected("hold", unknown)
        return HeldSemaphore(self._of(permits), wait, lease, release)

    @for_caller
    async def release(self, caller: Caller, permit: Lease | None = None) -> None:
        """
        Give *permit* back, from any task; ``None`` means the permits of the current owner's last acquire.

        Waits for the server's answer, up to `LockConfig.release_timeout`. Cancelling only stops the waiting: the
        release is sent all the same. The owner is the task that calls this, as in `AsyncRLock.release`.

        Raises:
            NotHeldError: the owner has no permit, or *permit* was given back before.
            RuntimeError: *permit* is ``None``, and all permits of the owner belong to ``async with`` blocks.
            LeaseLostError: the permit was lost.
            BackendError: no answer in time; the release is tried for as long as there can be something to free.
            TypeError, ValueError: *permit* is not a lease, or not a lease of this semaphore.
        """
        if permit is not None:
            await self._checked(permit).release()
        elif (lease := self._last_lease(caller)) is not None:
            refuse_release(lease)
            await lease._hold.give_back(lease)
        else:
            raise await self._not_held(caller)

    async def renew(self, permit: Lease, lease: Duration | None = None) -> None:
        """
        Let the lease of *permit* last for *lease* seconds from now, from any task; see `Lease.renew`.

        Raises:
            TypeError, ValueError: *permit* is not a lease, or not a lease of this semaphore.
        """
        await self._checked(permit).renew(lease)

    async def locked(self) -> bool:
        """Whether fewer permits are available than an acquire takes, by Redis; waits and raises like `available`."""
        return await self.available() < self._number

    async def available(self) -> int:
        """
        The number of permits that can be acquired, according to Redis.

        It is below zero if `set_permits` set fewer permits than are acquired. Redis has no number before the first
        acquire or change; until then, the result is the number that was given to the factory, or 0.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        `acquired`, `permits` and `holders` do the same.

        Raises:
            NotALockError: the key is not a semaphore.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return (await self._look()).available_of(self._want.initial)

    async def acquired(self) -> int:
        """The number of acquired permits, of all clients, according to Redis; waits and raises like `available`."""
        return (await self._look()).acquired

    async def permits(self) -> int:
        """The number of permits, available or acquired, according to Redis; waits and raises like `available`."""
        seen = await self._look()
        return seen.available_of(self._want.initial) + seen.acquired

    async def holders(self) -> Sequence[Holder]:
        """
        The holders of permits, according to Redis, in the order in which their leases end: those of a thousand permits
        at most.

        Each permit of another library's client (a Java service, say) is a holder of its own, without a client. Waits
        and raises like `available`.
        """
        holds = _by_acquisition((await self._look(_MOST_NAMED)).named)
        return [SeenHold(by.rpartition("#")[0] or by, number, left).holder for by, (number, left) in holds.items()]

    async def set_permits(self, permits: int) -> None:
        """
        Set the number of permits; permits that are acquired stay acquired.

        If more permits are acquired than *permits*, none is granted until enough have come back. Waits for the server's
        answer; a cancelled call may have set the number or not. A command that is sent twice counts once. Raises like
        `available`.
        """
        await self._resize(number_of_permits(permits, least=0), 0)

    async def add_permits(self, permits: int) -> None:
        """Add *permits* to the number of permits; a negative number takes permits away. See `set_permits`."""
        await self._resize(None, number_of_permits(permits, least=None))

    async def force_release(self) -> bool:
        """
        Put the permits of all holders back, and wake the waiters; returns whether there were holders.

        For operators: holders in other clients learn of the loss at their next renewal or release. Waits for the
        server's answer, up to `LockConfig.command_timeout`; a cancelled call may have freed the permits or not. Raises
        `NotALockError` and `BackendError`.
        """
        return await self._sessions.open().force_release(self._want)

    @property
    def _number(self) -> int:
        """The permits of an acquire without a number."""
        return self._want.amount[0]

    async def _look(self, most: int = 0, beginning: str = "") -> Permits:
        """The permits, with *most* of them by name, or with all that have the *beginning*."""
        return await self._sessions.open().commands.ask(INSPECT_PERMITS, self._keys, 2, most, beginning)

    async def _acquires(self) -> int:
        """The number of acquires that the current owner has not given back, according to Redis."""
        owner = self._owner()
        named = (await self._look(0, f"{owner}#")).named
        return sum(by.rpartition("#")[0] == owner for by in _by_acquisition(named))

    async def _left(self) -> float | None:
        """Seconds until enough leases end for an acquire; ``None`` if enough permits are available now."""
        seen = await self._look(_MOST_NAMED)
        named, missing = seen.named, self._number - seen.available_of(self._want.initial)
        return named[min(missing, len(named)) - 1][1] if named and missing > 0 else None

    async def _resize(self, permits: int | None, more: int) -> None:
        how = ("" if permits is None else permits, more, self._want.initial or 0, self._keys.channel)
        await self._sessions.open().change(RESIZE, self._keys, *how)

    def _of(self, number: int | None) -> "AsyncSemaphore":
        """A handle of the same semaphore whose acquires take *number* permits; ``None`` changes nothing."""
        return self if number is None or (number == self._number and type(number) is int) else self.taking(number)

    def _checked(self, permit: Lease) -> Lease:
        if not isinstance(permit, Lease):
            raise TypeError(f"permit must be a Lease that an acquire of {quoted(self.name)} returned, not {permit!r}")
        if permit._hold.keys != self._keys:
            raise ValueError(f"{permit!r} is not a permit of {quoted(self.name)}")
        return permit

    async def _not_held(self, caller: Caller) -> NotHeldError:
        owner = self._owner(caller)
        return NotHeldError(self.name, owner, None, "this owner has no permit", kind=self._want.scripts.kind)


@final
class HeldSemaphore(HeldBlock[Lease]):
    """The result of `AsyncSemaphore.hold`, for one ``async with`` at a time."""

    __slots__ = ()


def _by_acquisition(named: Iterable[tuple[bytes, float]]) -> dict[str, tuple[int, float]]:
    """
    The number of permits and the seconds left, by acquisition: ``OWNER#NUMBER``.

    A permit of another library's client is an acquisition of its own: ``:PERMIT``.
    """
    holds: dict[str, tuple[int, float]] = {}
    for permit, left in named:
        ours = _OF_OURS.fullmatch(permit)
        by = ours[1].decode(errors="replace") if ours else f":{permit.hex()}"
        holds[by] = (holds.get(by, (0, 0))[0] + 1, left)
    return holds
