"""The members of a multi lock, and what a multi lock asks each of them."""

from collections.abc import Iterable, Sequence

from aiolock._primitives.read_write import AsyncReadLock, AsyncWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.semaphore import AsyncSemaphore
from aiolock._types import Holder

Member = AsyncRLock | AsyncReadLock | AsyncWriteLock | AsyncSemaphore


def in_order(members: Iterable[object]) -> tuple[Member, ...]:
    """*members* without duplicates, ordered by their keys in Redis: in this order every client waits for them."""
    by_key: dict[str, Member] = {}
    names: dict[str, str] = {}
    for member in members:
        if not isinstance(member, Member):
            raise TypeError(
                "a multi lock consists of names, locks, halves of read-write locks and semaphores with leases: give it "
                f"each as an argument, not {member!r}"
            )
        key = member._keys.lock
        same = by_key.setdefault(key, member)
        if not same._is_same(member) or names.setdefault(member.name, key) != key:
            raise ValueError(f"{member!r} has the name or the key of another lock of the multi lock: leave one out")
    if not by_key:
        raise ValueError("a multi lock needs at least one lock")
    return tuple(by_key[key] for key in sorted(by_key))


async def hold_count(member: Member) -> int:
    """The number of the current owner's holds of *member*; each acquire of a semaphore is one hold."""
    return await (member._acquires() if isinstance(member, AsyncSemaphore) else member.hold_count())


async def remaining(member: Member) -> float | None:
    """Seconds until *member* is free, without further renewals; ``None`` if it is free now."""
    return await (member._left() if isinstance(member, AsyncSemaphore) else member.remaining())


async def holders(member: Member) -> Sequence[Holder]:
    """The holders of *member*."""
    return await (member.holders() if isinstance(member, AsyncSemaphore) else member._holders())
