"""AsyncPermitExpirableSemaphore: so many permits, each for a time."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

from aiolock._core.inspect import Seen
from aiolock._core.lease import Lease
from aiolock._core.session import Sessions
from aiolock._errors import NotHeldError
from aiolock._keys import LockKeys
from aiolock._primitives.base import Held, Single
from aiolock._scripts import GRANTED, INSPECT_PERMITS, PERMIT, RESIZE, Want
from aiolock._types import Duration, Holder, number_of_permits

_MOST_AT_ONCE = 1000  # Permits of one acquire, which the server sets one by one.
_MOST_NAMED = 1000  # Permits, of which the server looks at each.
_OF_OURS = re.compile(rb"(.*#\d+)#\d+", re.DOTALL)


class _Counted(NamedTuple):
    """What the server saw; of those that are *named* with the seconds left, those come first that end first."""

    available: int
    acquired: int
    named: Sequence[tuple[bytes, float]]


@final
class AsyncPermitExpirableSemaphore(Single):
    """
    A distributed semaphore whose permits expire; made by `LockClient.permit_expirable_semaphore`.

    Each acquire gets permits of its own, as a lease: renewed by the watchdog, told when it is lost, and available again
    when its client dies. A handle without state of its own. The owner is the running task, unless it was made for a
    named owner; a task's permits are given back when it ends. Follows Redisson's ``RPermitExpirableSemaphore``, with
    which it shares its layout in Redis.
    """

    __slots__ = ("_initial", "_number")

    def __init__(
        self, sessions: Sessions, keys: LockKeys, initial: int | None, named: str | None, *, number: int = 1
    ) -> None:
        terms = ("" if initial is None else initial,)
        super().__init__(sessions, Want(keys, PERMIT, (number,), terms), named)
        self._initial = initial
        self._number = number  # Of permits that an acquire takes which does not say how many.

    def taking(self, permits: int) -> "AsyncPermitExpirableSemaphore":
        """
        The same semaphore, of which each acquire takes so many *permits*, unless it says another number.

        For ``async with``, `LockClient.multi` and `LockClient.synchronized`, where no number can be said. No I/O.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
        """
        number = number_of_permits(permits, least=1, most=_MOST_AT_ONCE)
        return AsyncPermitExpirableSemaphore(self._sessions, self._keys, self._initial, self._named, number=number)

    async def acquire(self, permits: int | None = None, *, lease: Duration | None = None) -> Lease:
        """
        Wait as long as it takes for so many *permits*, all at once; they are given back together.

        ``None`` is one, or what `taking` said.

        Waits in a FIFO with the other tasks of this client. Who waits for several is not overtaken by others who want
        fewer. *lease* is in seconds: exactly that long, never renewed; ``None`` means the configured lease, renewed by
        the watchdog until release. Cancelling leaves nothing behind: a grant that was on its way is given back.

        Raises:
            TypeError, ValueError: *permits* is not a whole number above zero.
            NotALockError: the key is something else.
            BackendError: Redis failed for longer than `LockConfig.command_timeout`.
            ReplicationError: fewer replicas than `LockConfig.replicas` have it; the grant was undone.
            ClientClosedError: the client is closed, or belongs to another loop or process.
            RuntimeError: it is the whole of a task, which would own the permits and be gone.
        """
        granted = await self._of(permits)._acquire(None, lease)
        assert granted is not None  # A wait without end ends with a grant.
        return granted

    async def try_acquire(
        self, permits: int | None = None, wait: Duration | None = 0, lease: Duration | None = None
    ) -> Lease | None:
        """
        Take so many *permits* if that is possible within *wait* seconds, else none of them, and return ``None``.

        ``wait=0`` asks Redis once; ``wait=None`` waits for ever. *lease*, cancelling and errors as in `acquire`.
        When Redis does not answer, the error may come up to `LockConfig.command_timeout` after the wait has ended.
        """
        return await self._of(permits)._acquire(wait, lease)

    def hold(
        self, wait: Duration | None = None, lease: Duration | None = None, *, permits: int | None = None
    ) -> "HeldPermits":
        """
        So many *permits* for an ``async with`` block, bounded: ``async with semaphore.hold(wait=2) as permit:``.

        *wait* and *lease* are in seconds, as in `try_acquire`, but a wait that ends raises `LockTimeoutError`. When the
        permits are lost the block is cancelled, once, and `LeaseLostError` raised.
        """
        return HeldPermits(self._of(permits), wait, lease)

    async def release(self, permit: Lease | None = None) -> None:
        """
        Give back what *permit* stands for, from any task; ``None`` means what the current owner acquired last.

        Waits for the server's answer, up to `LockConfig.release_timeout`. Cancelling stops the waiting only: the
        release is sent all the same.

        Raises:
            NotHeldError: the owner has no permit, or this one was given back before.
            LeaseLostError: it was lost.
            BackendError: no answer in time; the release is tried on for as long as there can be something to free.
            ValueError: *permit* is not one of this semaphore.
        """
        if permit is not None:
            await self._checked(permit).release()
        elif (lease := self._last_lease()) is not None:
            await self._sessions.here().leases.give_back(lease)
        else:
            raise await self._not_held()

    async def renew(self, permit: Lease, lease: Duration | None = None) -> None:
        """
        Let what *permit* stands for live *lease* seconds from now, from any task; as `Lease.renew`.

        Raises:
            ValueError: *permit* is not one of this semaphore.
        """
        await self._checked(permit).renew(lease)

    async def locked(self) -> bool:
        """Whether there are fewer permits than an acquire takes, by Redis; waits and raises as `available`."""
        return await self.available() < self._number

    async def available(self) -> int:
        """
        How many permits are there to be acquired, by Redis; fewer than none after `set_permits` below those acquired.

        Waits for the server's answer, up to `LockConfig.command_timeout`, and changes nothing; cancelling is harmless.
        `acquired`, `permits` and `holders` do the same.

        Raises:
            NotALockError: the key is something else.
            BackendError: Redis failed.
            ClientClosedError: the client is closed, or belongs to another loop or process.
        """
        return (await self._look()).available

    async def acquired(self) -> int:
        """How many permits are acquired, by anybody, by Redis; waits and raises as `available`."""
        return (await self._look()).acquired

    async def permits(self) -> int:
        """How many permits there are, available or acquired, by Redis; waits and raises as `available`."""
        seen = await self._look()
        return seen.available + seen.acquired

    async def holders(self) -> Sequence[Holder]:
        """
        Who has permits, by Redis, whose leases end first; waits and raises as `available`.

        Those of clients that are none of aiolock's (a Java service, say) come one by one, without a client.
        """
        described = self._sessions.open().inspector.described
        holds = _by_acquisition((await self._look(_MOST_NAMED)).named)
        seen = [Seen(by.rpartition("#")[0] or by, number, left, by[:1] != ":") for by, (number, left) in holds.items()]
        return await described(seen)

    async def set_permits(self, permits: int) -> None:
        """
        Let there be so many *permits* from now on; those that are acquired stay so.

        Below the number of those, nobody is granted any until enough have come back. Waits for the server's answer;
        cancelling leaves it done or not done. Sent twice, it counts once. Raises as `available`.
        """
        await self._resize(number_of_permits(permits, least=0), 0)

    async def add_permits(self, permits: int) -> None:
        """Let there be so many *permits* more, or fewer if that is below zero; as `set_permits`."""
        await self._resize(None, number_of_permits(permits, least=None))

    async def force_release(self) -> bool:
        """
        Put all permits back, whoever has them, and wake those who wait; whether anybody had any.

        For operators: holders learn of it with their next renewal or release, and not before, unless they are of this
        client. Cancelling leaves it done or not done. Raises `NotALockError` and `BackendError`.
        """
        return await self._sessions.open().force_release(self._want)

    async def _look(self, most: int = 0) -> _Counted:
        """How many permits are available, and how many acquired, of which *most* are named."""
        inspector = self._sessions.open().inspector
        status, available, acquired, *named = await inspector.ask(INSPECT_PERMITS, self._keys, 2, most)
        available = available if status == GRANTED else (self._initial or 0) - acquired
        pairs = zip(named[::2], named[1::2], strict=True)
        return _Counted(available, acquired, [(permit, left / 1000) for permit, left in pairs])

    async def _acquires(self) -> int:
        """How many acquires the current owner has not given back, by Redis."""
        owner, _ = self._sessions.open().owners.acting(self._named)
        return sum(by.rpartition("#")[0] == owner for by in _by_acquisition((await self._look(_MOST_NAMED)).named))

    async def _left(self) -> float | None:
        """Seconds until leases have ended of as many permits as an acquire takes; ``None`` if there are as many now."""
        available, _, named = await self._look(_MOST_NAMED)
        missing = self._number - available
        return named[min(missing, len(named)) - 1][1] if named and missing > 0 else None

    async def _resize(self, permits: int | None, more: int) -> None:
        how = ("" if permits is None else permits, more, self._initial or 0, self._keys.channel)
        await self._sessions.open().change(RESIZE, self._keys, *how)

    def _of(self, number: int | None) -> "AsyncPermitExpirableSemaphore":
        """The same semaphore, for who wants so many permits at once."""
        return self if number is None or (number == self._number and type(number) is int) else self.taking(number)

    def _checked(self, permit: Lease) -> Lease:
        if permit._hold.keys != self._keys:
            raise ValueError(f"{permit!r} is not a permit of {self.name!r}")
        return permit

    async def _not_held(self) -> NotHeldError:
        owner, _ = self._sessions.open().owners.acting(self._named)
        return NotHeldError(self.name, owner, None, "it has no permit")


@final
class HeldPermits(Held[Lease]):
    """What `AsyncPermitExpirableSemaphore.hold` returns, for one ``async with`` at a time."""

    __slots__ = ()


def _by_acquisition(named: Iterable[tuple[bytes, float]]) -> dict[str, tuple[int, float]]:
    """How many permits, and for how many seconds, by ``OWNER#NUMBER``; or by ``:PERMIT`` if that is none of ours."""
    holds: dict[str, tuple[int, float]] = {}
    for permit, left in named:
        ours = _OF_OURS.fullmatch(permit)
        by = ours[1].decode(errors="replace") if ours else f":{permit.hex()}"
        holds[by] = (holds.get(by, (0, 0))[0] + 1, left)
    return holds
