"""Functions for `of=`, each with a way to block its lock, by their names for people."""

from typing import Any

from aiolock import LockClient
from aiolock._client import Maker

MAKERS: dict[str, tuple[Maker, Maker]] = {
    "fair": (LockClient.fair_lock, LockClient.fair_lock),
    "read": (
        lambda locks, name: locks.read_write_lock(name).read,
        lambda locks, name: locks.read_write_lock(name).write,
    ),
    "write": (
        lambda locks, name: locks.read_write_lock(name).write,
        lambda locks, name: locks.read_write_lock(name).read,
    ),
    "multi": (lambda locks, name: locks.multi(name, "other"), LockClient.lock),
    "permits": (
        lambda locks, name: locks.semaphore(name, 3).taking(2),
        lambda locks, name: locks.semaphore(name, 3).taking(2),
    ),
    "counted": (
        lambda locks, name: locks.counting_semaphore(name, 3).taking(2),
        lambda locks, name: locks.counting_semaphore(name, 3).taking(2),
    ),
}


def seen_as(kind: str, granted: Any, name: str) -> bool:
    """Whether *granted* fits the `hold` of that *kind*: a lease of *name*, or ``None``."""
    return granted is None if kind == "counted" else name in str(granted)


async def is_taken(locks: LockClient, kind: str, name: str) -> bool:
    """Whether the lock or permit that the maker of that *kind* makes of *name* is held, according to Redis."""
    return await MAKERS[kind][0](locks, name).locked()
