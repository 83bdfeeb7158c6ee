"""Checks the user's client, and makes connections with its settings."""

from collections.abc import Callable, Mapping
from typing import Any

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.client import Pipeline
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from aiolock._redis.sentinel.ask import Guide, Sentinels

_INSTEAD: tuple[tuple[type, str], ...] = (
    (Pipeline, "the Redis that made it"),
    (Sentinel, "sentinel.master_for(name)"),
    (ConnectionPool, "Redis(connection_pool=pool)"),
    (str, "it to LockClient.from_url"),
)


class Connector:
    """
    Makes connections of one kind.

    Locks need connections of their own: a renewal must not queue behind the application's commands, nor fail because
    the application's pool is exhausted. aiolock re-sends calls itself, without redis-py's retries: the meaning of a
    reply depends on whether the command was sent before. RESP2 is enough for all scripts.
    """

    def __init__(
        self,
        make: Callable[..., AbstractConnection],
        settings: Mapping[str, Any],
        client_name: str | None,
        sentinels: Sentinels | None = None,
    ) -> None:
        self.sentinels: Sentinels | None = sentinels
        self._make = make
        self._settings = {name: value for name, value in settings.items() if not _is_of_the_pool(name)} | {
            "decode_responses": False,
            "health_check_interval": 0,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
        }
        if client_name is not None:
            self._settings["client_name"] = client_name
        # While its server is being moved, the pool has the host of another one for some seconds.
        if (host := settings.get("orig_host_address")) is not None:
            self._settings["host"] = host
        self._refuse_what_cannot_work()

    @classmethod
    def of(cls, redis: Redis, client_name: str | None, patience: float) -> "Connector":
        """
        The connector to the server of *redis*, or, if *redis* is from a Sentinel, to the primary that the Sentinels
        name.

        *patience* is the time limit of a connection, in seconds.
        """
        pool = redis.connection_pool
        sentinels = Sentinels(pool, patience / 2) if isinstance(pool, SentinelConnectionPool) else None
        return cls(pool.connection_class, pool.connection_kwargs, client_name, sentinels)

    @classmethod
    def of_node(cls, cluster: RedisCluster, host: str, port: int, client_name: str | None) -> "Connector":
        """The connector to one server of *cluster*."""
        # It sorts the settings, and does no I/O.
        node = ClusterNode(host, port, **cluster.connection_kwargs)
        # On connecting, a cluster's client lets replicas answer (READONLY), and so a demoted primary.
        settings = {name: value for name, value in node.connection_kwargs.items() if name != "redis_connect_func"}
        return cls(node.connection_class, settings, client_name)

    def __call__(self) -> AbstractConnection:
        guide = {} if self.sentinels is None else {"connection_pool": Guide(self.sentinels)}
        return self._make(**(self._settings | guide))

    def _refuse_what_cannot_work(self) -> None:
        """Make a connection object now, without I/O: redis-py checks the settings only then."""
        try:
            connection = self()
        except TypeError as error:
            raise TypeError(f"{error}; settings of aiolock go into config=LockConfig(...)") from error
        if not isinstance(connection, AbstractConnection):
            raise TypeError(f"aiolock needs a connection class of redis.asyncio, not {self._make!r}")


def _is_of_the_pool(setting: str) -> bool:
    """Whether *setting* serves the retries or the maintenance of the pool that has it."""
    return "maint" in setting or setting.startswith(("orig_", "retry"))


def check_borrowed(redis: object) -> None:
    """Raise `TypeError` if *redis* is no client that locks can use."""
    kind = f"{type(redis).__module__}.{type(redis).__qualname__}"
    instead = next((instead for each, instead in _INSTEAD if isinstance(redis, each)), None)
    if isinstance(redis, type):
        kind = "class: give an object of it, as in LockClient(Redis(host=...))"
    elif instead is not None:
        kind = f"{kind}: give {instead}"
    elif isinstance(redis, Redis) and _is_of_replicas(redis):
        kind = "Redis for replicas: give sentinel.master_for(name)"
    elif isinstance(redis, (Redis, RedisCluster)):
        return
    elif kind.startswith("redis.") and not kind.startswith("redis.asyncio."):
        kind = f"{kind}, which is synchronous: use that of redis.asyncio"
    raise TypeError(f"LockClient needs a redis.asyncio.Redis or RedisCluster, not a {kind}")


def _is_of_replicas(redis: Redis) -> bool:
    """Whether `Sentinel.slave_for` made it."""
    pool = redis.connection_pool
    return isinstance(pool, SentinelConnectionPool) and not pool.is_master
