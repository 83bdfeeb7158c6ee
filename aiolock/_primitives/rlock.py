"""AsyncRLock: a reentrant lock, owned by one asyncio task or by a named owner."""

from copy import copy
from typing import Self, final

from aiolock._primitives.base import HeldLock
from aiolock._primitives.reentrant import Reentrant
from aiolock._types import Duration, Holder, lease_seconds


class OneHolder(Reentrant):
    """A lock that one owner holds at a time."""

    __slots__ = ()

    def hold(
        self, wait: Duration | None = None, lease: Duration | None = None, *, at_least: Duration | None = None
    ) -> HeldLock:
        """
        The lock for an ``async with`` block, bounded: ``async with lock.hold(wait=2, lease=10) as lease:``.

        *wait* and *lease* are in seconds, as in `try_lock`, but a wait that ends raises `LockTimeoutError`. When the
        lock is lost the block is cancelled, once, and `LeaseLostError` raised.

        For *at_least* seconds from its grant nobody else gets the lock, nor does its owner anew: also when the block
        ends sooner, however it ends, and when the process dies. Leaving the block does not wait for that. Of nested
        holds the longest counts. As ShedLock's ``lockAtLeastFor``; an *at_least* above *lease* raises `ValueError`.
        """
        return HeldLock(self if at_least is None else self._kept(at_least_seconds(at_least, lease)), wait, lease)

    def _kept(self, at_least: float) -> Self:
        """The same lock, whose holds keep it for so many seconds at least."""
        kept = copy(self)
        kept._want = self._want._replace(at_least=at_least)
        return kept

    async def holder(self) -> Holder | None:
        """Who holds the lock, by Redis; ``None`` if nobody does. Waits and raises as `locked`."""
        return await self._holder()


@final
class AsyncRLock(OneHolder):
    """
    A reentrant distributed lock; made by `LockClient.lock`.

    A handle without state of its own: cheap, may be shared by tasks, and equal in effect to any other of the same
    name. The owner is the running task, unless the lock was made for a named owner. The owner may acquire again, and
    the lock is free after as many releases. Follows Redisson's ``RLock``, with which it shares its layout in Redis.
    """

    __slots__ = ()


def at_least_seconds(at_least: Duration, lease: Duration | None) -> float:
    """The shortest time for which a lock is kept that is held for *lease*, checked."""
    least = lease_seconds(at_least, "at_least")
    if lease is not None and lease_seconds(lease) < least:
        raise ValueError(f"at_least must be no longer than the lease, {lease!r}, not {at_least!r}")
    return least
