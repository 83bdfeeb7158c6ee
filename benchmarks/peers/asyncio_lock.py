"""`asyncio.Lock`: no Redis, no other process; the cost of any waiting task."""

import asyncio

from benchmarks.peers.adapter import Lock, Peer


class AsyncioLock(Peer):
    """One lock for each name."""

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._locks: dict[str, asyncio.Lock] = {}

    def lock(self, name: str) -> Lock:
        return self._locks.setdefault(name, asyncio.Lock())
