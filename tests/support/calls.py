"""Calls of a lock, for tasks and parametrized tests."""

from collections.abc import Awaitable, Callable

from aiolock import AsyncRLock, HeldLock, Lease, LockClient


async def acquire(lock: AsyncRLock) -> Lease:
    """An acquire as a part of a task; the whole of one it must not be."""
    return await lock.acquire()


async def acquire_and_release(lock: AsyncRLock | HeldLock) -> None:
    async with lock:
        pass


# Every call that asks the server something, but `release`.
CALLS: dict[str, Callable[[AsyncRLock], Awaitable[object]]] = {
    "acquire": AsyncRLock.acquire,
    "try_lock": AsyncRLock.try_lock,
    "try_lock waiting": lambda lock: lock.try_lock(60),
    "async with": acquire_and_release,
    "hold": lambda lock: acquire_and_release(lock.hold()),
    "locked": AsyncRLock.locked,
    "held": AsyncRLock.held,
    "hold_count": AsyncRLock.hold_count,
    "remaining": AsyncRLock.remaining,
    "holder": AsyncRLock.holder,
    "force_release": AsyncRLock.force_release,
}


async def in_turn(locks: LockClient, number: int) -> None:
    """Hold locks of many names, one after the other, and wait for one of them."""
    for turn in range(50):
        async with locks.lock(f"{number}:{turn}"), locks.read_write_lock(f"{number}").read:
            pass
    async with locks.lock("for all"):
        pass
