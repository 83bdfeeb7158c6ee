"""The interface of every peer to the workloads, and the pool that the peers on redis-py share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from redis.asyncio import BlockingConnectionPool, Redis

Lock = AbstractAsyncContextManager[Any]

POOL = 50
"""Connections that tasks share; the default of redis-py's blocking pool."""
SPARE = 16
"""Connections beside one for each task, for peers whose waiters keep one each."""


class Peer(ABC):
    """A lock library, or a baseline, with a client of its own for *tasks* tasks and locks of *lease* seconds."""

    poll: float = 0.0
    """Seconds between two attempts of a waiter that polls; 0 for one that is woken."""
    called_by_scripts: frozenset[str] = frozenset()
    """Commands that its scripts call and its client never sends: the server counts both, and these are not sent."""

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        self.url = url
        self.tasks = tasks
        self.lease = lease

    @abstractmethod
    def lock(self, name: str) -> Lock:
        """A lock for one task, to be entered again and again."""

    def renewed(self, name: str) -> Lock:
        """The same, for a task that holds thousands at a time, not nested, and lets the library renew them."""
        return self.lock(name)

    def several(self, names: Sequence[str]) -> Lock:
        """Several locks as one, for one task: one after the other, if the library has nothing better."""
        return _OneByOne([self.lock(name) for name in names])

    def permit(self, name: str, permits: int) -> Lock:
        """One of that many permits, for one task; a lock, if the library has no semaphore."""
        return self.lock(name)

    def reader(self, name: str) -> Lock:
        """A lock that many tasks may read under, for one task; a plain lock, if the library has none."""
        return self.lock(name)

    def counters(self) -> dict[str, float]:
        """The library's own counters, if it has any."""
        return {}

    def lost(self) -> int:
        """Locks that the library says it lost."""
        return 0

    async def open(self) -> None:
        """Do a user's preparations at start."""
        return

    async def close(self) -> None:
        """Close the connections."""
        return

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _OneByOne(Lock):
    """Blocks in one another."""

    def __init__(self, locks: Sequence[Lock]) -> None:
        self._locks = locks

    async def __aenter__(self) -> object:
        for lock in self._locks:
            await lock.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for lock in reversed(self._locks):
            await lock.__aexit__(None, None, None)


class RedisPeer(Peer):
    """A peer on a `redis.asyncio.Redis` with a pool that waits for a free connection instead of failing."""

    connections_per_task = 0

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        size = max(POOL, self.connections_per_task * tasks + SPARE)
        self.redis = Redis.from_pool(BlockingConnectionPool.from_url(url, max_connections=size, timeout=None))

    async def close(self) -> None:
        """Close the pool, too."""
        await self.redis.aclose()
