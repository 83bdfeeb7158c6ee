"""`coredis.patterns.lock.Lock`: on a client of its own, polls every 0.1 s by default, is not renewed."""

from coredis import Redis
from coredis.patterns.lock import Lock as CoredisLock

from benchmarks.peers.adapter import Lock, Peer


class Coredis(Peer):
    """One client with its default pool."""

    poll = 0.1

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._redis = Redis.from_url(url)

    async def open(self) -> None:
        await self._redis.__aenter__()

    async def close(self) -> None:
        await self._redis.__aexit__(None, None, None)

    def lock(self, name: str) -> Lock:
        return _Section(CoredisLock(self._redis, name, timeout=self.lease))


class _Section(Lock):
    """Its ``async with`` makes a context manager that serves once; a task enters this one again and again."""

    def __init__(self, lock: "CoredisLock[bytes]") -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        if not await self._lock.acquire():
            raise RuntimeError("acquire returned False")

    async def __aexit__(self, *_: object) -> None:
        await self._lock.release()
