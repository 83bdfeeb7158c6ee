"""`redis.asyncio.lock.Lock`: polls every 0.1 s by default, is not renewed."""

from redis.asyncio import Redis

from benchmarks.peers.adapter import Lock, Peer, RedisPeer


class RedisPy(RedisPeer):
    """Given a pool that waits for a connection."""

    poll = 0.1

    def lock(self, name: str) -> Lock:
        return self.redis.lock(name, timeout=self.lease)


class RedisPyDefaultPool(Peer):
    """As it comes: ``Redis.from_url(url).lock(name)``."""

    poll = 0.1

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._redis = Redis.from_url(url)

    def lock(self, name: str) -> Lock:
        return self._redis.lock(name, timeout=self.lease)

    async def close(self) -> None:
        await self._redis.aclose()
