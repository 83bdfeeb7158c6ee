"""The union of all handles that `async with` takes, for `synchronized` and the web integrations."""

from typing import Any

from aiolock._primitives.counting_semaphore import AsyncCountingSemaphore
from aiolock._primitives.held_block import Acquirable, Terms
from aiolock._primitives.multi.lock import AsyncMultiLock
from aiolock._primitives.multi.member import Member
from aiolock._primitives.rlock import AsyncRLock

Handle = Member | AsyncMultiLock | AsyncCountingSemaphore


def acquirable_of(handle: Handle, terms: Terms) -> Acquirable[Any]:
    """
    What a block under *handle* acquires; for a counting semaphore it gives a lease that users do not see.

    `TypeError` if *handle* is no `Handle`; or if it is a counting semaphore, and *terms* have more than a wait.
    """
    if isinstance(handle, AsyncCountingSemaphore):
        if terms.lease is not None:
            raise TypeError(f"{handle!r} only counts permits, and has no lease: leave out `lease`")
        if terms.release is not None:
            raise TypeError(f"{handle!r} only counts permits, and waits for the answer: leave out `release`")
        return handle._block
    if not isinstance(handle, Handle):
        raise TypeError(f"of must return a lock, one half of a read-write lock, or a semaphore, not {handle!r}")
    return handle


def kept(handle: object, at_least: float) -> AsyncRLock:
    """The lock *handle*, whose holds last *at_least* seconds; `TypeError` if it is not a plain or a fair lock."""
    if not isinstance(handle, AsyncRLock):
        raise TypeError(f"at_least is for a lock or a fair lock, not for {handle!r}")
    return handle._kept(at_least)
