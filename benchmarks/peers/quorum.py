"""Redlock on three servers: aiolock's, and that of pottery; the URL names all of them, with commas between."""

from contextlib import AsyncExitStack

from redis.asyncio import BlockingConnectionPool, Redis

from aiolock import LockClient, LockConfig
from benchmarks.peers.adapter import POOL, Lock, Peer


class Quorum(Peer):
    """Clients of all servers."""

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        pools = [BlockingConnectionPool.from_url(each, max_connections=POOL) for each in url.split(",")]
        self.servers = [Redis(connection_pool=pool) for pool in pools]

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for redis in self.servers:
                stack.push_async_callback(redis.connection_pool.disconnect)


class Ours(Quorum):
    """One `LockClient` of all servers."""

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._client = LockClient.redlock(self.servers, config=LockConfig(lease=lease))

    def lock(self, name: str) -> Lock:
        return self._client.lock(name)

    def lost(self) -> int:
        return self._client.statistics().losses

    async def open(self) -> None:
        await self._client.__aenter__()

    async def close(self) -> None:
        await self._client.aclose()
        await super().close()


class Pottery(Quorum):
    """`pottery.AIORedlock`, as in `pottery_lock`."""

    poll = 0.2

    def lock(self, name: str) -> Lock:
        from pottery import AIORedlock

        lock: Lock = AIORedlock(key=name, masters=set(self.servers), auto_release_time=self.lease)
        return lock
