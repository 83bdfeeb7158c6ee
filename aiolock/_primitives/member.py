"""What a multi lock consists of, and what it asks of each."""

from collections.abc import Iterable, Sequence

from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.permits import AsyncPermitExpirableSemaphore
from aiolock._primitives.read_write import AsyncReadLock, AsyncWriteLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._types import Holder

Member = AsyncRLock | AsyncFairLock | AsyncReadLock | AsyncWriteLock | AsyncPermitExpirableSemaphore


def in_order(members: Iterable[object]) -> tuple[Member, ...]:
    """*members*, each once, in the order in which everybody waits for them: by their keys in Redis."""
    by_key: dict[str, Member] = {}
    names: dict[str, str] = {}
    for member in members:
        if not isinstance(member, Member):
            raise TypeError(
                "a multi lock consists of names, of locks (of a read-write lock one half) and of semaphores that have "
                f"leases, not of {member!r}"
            )
        key = member._keys.lock
        same = by_key.setdefault(key, member)
        if not same._is_same(member) or names.setdefault(member.name, key) != key:
            raise ValueError(f"two locks of a multi lock cannot both be {member.name!r}")
    if not by_key:
        raise ValueError("a multi lock needs a lock at least")
    return tuple(by_key[key] for key in sorted(by_key))


async def hold_count(member: Member) -> int:
    """How many holds the current owner has; of permits each acquire is one."""
    return await (member._acquires() if isinstance(member, AsyncPermitExpirableSemaphore) else member.hold_count())


async def remaining(member: Member) -> float | None:
    """Seconds until it is not locked; ``None`` if it is not now."""
    return await (member._left() if isinstance(member, AsyncPermitExpirableSemaphore) else member.remaining())


async def holders(member: Member) -> Sequence[Holder]:
    """Who holds it."""
    return await (member.holders() if isinstance(member, AsyncPermitExpirableSemaphore) else member._holders())
