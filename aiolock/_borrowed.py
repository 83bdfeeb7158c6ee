"""What a `LockClient` can borrow; of what it cannot, what to give instead."""

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.client import Pipeline
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

_INSTEAD: tuple[tuple[type, str], ...] = (
    (Pipeline, "the Redis that made it"),
    (Sentinel, "sentinel.master_for(name)"),
    (ConnectionPool, "Redis(connection_pool=pool)"),
    (str, "it to LockClient.from_url"),
)


def check_borrowed(redis: object) -> None:
    """Raise `TypeError` unless locks can be kept through *redis*."""
    kind = f"{type(redis).__module__}.{type(redis).__qualname__}"
    instead = next((instead for each, instead in _INSTEAD if isinstance(redis, each)), None)
    if instead is not None:
        kind = f"{kind}: give {instead}"
    elif isinstance(redis, Redis) and _is_of_replicas(redis):
        kind = "Redis for replicas: give sentinel.master_for(name)"
    elif isinstance(redis, (Redis, RedisCluster)):
        return
    elif kind.startswith("redis.") and not kind.startswith("redis.asyncio."):
        kind = f"{kind}, which is synchronous: use that of redis.asyncio"
    raise TypeError(f"LockClient needs a redis.asyncio.Redis or RedisCluster, not a {kind}")


def _is_of_replicas(redis: "Redis") -> bool:
    """Whether `Sentinel.slave_for` made it."""
    pool = redis.connection_pool
    return isinstance(pool, SentinelConnectionPool) and not pool.is_master
