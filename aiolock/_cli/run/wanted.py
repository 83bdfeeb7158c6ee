"""The lock or permit under which a command runs."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from aiolock import AsyncRLock, AsyncSemaphore, Holder, Lease, LockClient


@dataclass(frozen=True, slots=True)
class Wanted:
    """One lock, or one permit."""

    lock: AsyncRLock | AsyncSemaphore

    async def try_acquire(self, wait: float | None) -> Lease | None:
        """Take it within *wait* seconds (``None``: wait for ever); ``None`` if that failed. The lease is renewed."""
        return await self.lock.try_acquire(wait)

    async def holders(self) -> Sequence[Holder]:
        """The present holders."""
        if isinstance(self.lock, AsyncSemaphore):
            return await self.lock.holders()
        holder = await self.lock.holder()
        return [] if holder is None else [holder]


def wanted_of(locks: LockClient, parsed: argparse.Namespace, owner: str) -> Wanted:
    """The lock or permit that the arguments ask for; `ValueError` if the name is not valid."""
    if parsed.kind == "semaphore":
        return Wanted(locks.semaphore(parsed.name, parsed.permits, owner=owner))
    if parsed.kind == "fair":
        return Wanted(locks.fair_lock(parsed.name, owner=owner))
    return Wanted(locks.lock(parsed.name, owner=owner))
