"""What has blocks, as decorators and web dependencies take it: whatever it is, they hold it for a call."""

from typing import Any

from aiolock._primitives.base import Held
from aiolock._primitives.fair_lock import AsyncFairLock
from aiolock._primitives.member import Member
from aiolock._primitives.multi import AsyncMultiLock
from aiolock._primitives.rlock import AsyncRLock
from aiolock._primitives.semaphore import AsyncSemaphore
from aiolock._types import Duration

Handle = Member | AsyncMultiLock | AsyncSemaphore


def block_of(handle: Handle, wait: Duration | None, lease: Duration | None) -> Held[Any]:
    """
    A block under *handle*, for an ``async with``; a semaphore that only counts has a lease there, which is not `shown`.

    `TypeError` if it is no such handle, or has no lease where one is given.
    """
    if isinstance(handle, AsyncSemaphore):
        if lease is not None:
            raise TypeError(f"{handle!r} only counts, and has no lease: give none")
        return handle._block.hold(wait)
    if not isinstance(handle, Handle):
        raise TypeError(f"of must return a lock (of a read-write lock one half) or a semaphore, not {handle!r}")
    return handle.hold(wait, lease)


def kept(handle: object, at_least: float) -> AsyncRLock | AsyncFairLock:
    """*handle*, whose holds keep it for so many seconds at least; `TypeError` if it is no lock that one owner holds."""
    if not isinstance(handle, AsyncRLock | AsyncFairLock):
        raise TypeError(f"at_least is for a lock or a fair lock, not for {handle!r}")
    return handle._kept(at_least)


def shown(handle: Handle, granted: Any) -> Any:
    """What whoever runs under *handle* gets to see of what was *granted*: what its `hold` gives."""
    return None if isinstance(handle, AsyncSemaphore) else granted
