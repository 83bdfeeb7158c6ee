"""Calls of a lock, for tasks and parametrized tests."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable

from aiolock import AsyncRLock, HeldLock, Lease, LockClient
from aiolock._backend import Backend, Call
from aiolock.testing import Fault

# Before 3.12 only asyncio knows the mark of a function that returns a coroutine.
is_coroutine_function = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction


class Seen(Fault):
    """Notes the calls that are sent."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.calls: list[Call] = []

    def submit(self, call: Call) -> None:
        self.calls.append(call)
        super().submit(call)


async def acquire(lock: AsyncRLock) -> Lease:
    """An acquire as a part of a task; it must not be the whole of one."""
    return await lock.acquire()


async def acquire_and_release(lock: AsyncRLock | HeldLock) -> None:
    async with lock:
        pass


# Every call that asks the server something, except `release`.
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
    """Hold locks of many names, one after the other; each name has one waiter."""
    for turn in range(50):
        async with locks.lock(f"{number}:{turn}"), locks.read_write_lock(f"{number}").read:
            pass
    async with locks.lock("for all"):
        pass
