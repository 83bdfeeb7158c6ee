"""`redis_lock.asyncio.RedisLock`: woken by a subscription of each waiter's own, not renewed."""

from redis_lock.asyncio import RedisLock

from benchmarks.peers.adapter import Lock, RedisPeer

_LONG = 3600.0


class RedisLockPy(RedisPeer):
    """A waiter keeps a connection for its subscription, so the pool has two for each task."""

    connections_per_task = 2

    def lock(self, name: str) -> Lock:
        lock: Lock = RedisLock(self.redis, name, blocking_timeout=_LONG, expire_timeout=max(1, round(self.lease)))
        return lock
