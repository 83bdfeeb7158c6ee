"""`grelmicro.sync.Lock`: polls every 0.1 s by default, is not renewed, has no fencing token."""

from grelmicro.sync import Lock as GrelmicroLock
from grelmicro.sync.redis import RedisSyncBackend

from benchmarks.peers.adapter import POOL, SPARE, Lock, Peer


class Grelmicro(Peer):
    """On a pool of its own, which fails when it has no connection left: it has one for each task."""

    poll = 0.1
    called_by_scripts = frozenset({"set"})

    def __init__(self, url: str, tasks: int, lease: float) -> None:
        super().__init__(url, tasks, lease)
        self._backend = RedisSyncBackend(f"{url}?max_connections={max(POOL, tasks + SPARE)}")

    async def open(self) -> None:
        await self._backend.__aenter__()

    async def close(self) -> None:
        await self._backend.__aexit__(None, None, None)

    def lock(self, name: str) -> Lock:
        lock: Lock = GrelmicroLock(name, backend=self._backend, lease_duration=self.lease)
        return lock
