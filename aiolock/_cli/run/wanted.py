"""What a command is run under: a lock of one kind or another."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from aiolock import AsyncFairLock, AsyncPermitExpirableSemaphore, AsyncRLock, Holder, Lease, LockClient


@dataclass(frozen=True, slots=True)
class Wanted:
    """One lock, or one permit."""

    lock: AsyncRLock | AsyncFairLock | AsyncPermitExpirableSemaphore

    async def try_acquire(self, wait: float | None) -> Lease | None:
        """Take it within *wait* seconds, ``None`` for ever, if that is possible; its lease is renewed."""
        if isinstance(self.lock, AsyncPermitExpirableSemaphore):
            return await self.lock.try_acquire(wait=wait)
        return await self.lock.try_lock(wait)

    async def holders(self) -> Sequence[Holder]:
        """Who has it now."""
        if isinstance(self.lock, AsyncPermitExpirableSemaphore):
            return await self.lock.holders()
        holder = await self.lock.holder()
        return [] if holder is None else [holder]


def wanted_of(locks: LockClient, parsed: argparse.Namespace, owner: str) -> Wanted:
    """What was asked for, for the named *owner*; `ValueError` if its name cannot be one."""
    if parsed.kind == "semaphore":
        return Wanted(locks.permit_expirable_semaphore(parsed.name, parsed.permits, owner=owner))
    if parsed.kind == "fair":
        return Wanted(locks.fair_lock(parsed.name, owner=owner))
    return Wanted(locks.lock(parsed.name, owner=owner))
