"""`redis_fifo_lock.FifoLock`: first come, first served, woken by BLPOP, renewed by a task for each hold, fenced."""

from redis_fifo_lock import FifoLock

from benchmarks.peers.adapter import Lock, RedisPeer


class RedisFifoLock(RedisPeer):
    """A waiter keeps a connection in BLPOP, so the pool has two for each task: otherwise holders cannot release."""

    connections_per_task = 2
    called_by_scripts = frozenset({"set", "lpush"})

    def lock(self, name: str) -> Lock:
        return _Section(FifoLock(self.redis, name, lease_ms=round(self.lease * 1000)))


class _Section(Lock):
    """Its ``async with`` is for a hold that serves once; a task enters this one again and again."""

    def __init__(self, lock: FifoLock) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        self._held = await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self._lock.release(self._held)
