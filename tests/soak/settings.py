"""The settings of a worker."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Literal

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import Sentinel

from aiolock import LockClient, LockConfig

# In a cluster, each of its three primaries has one at least.
NAMES = ("a", "b", "c", "d", "e")
PREFIX = "soak:"
PRIMARY = "primary"

Topology = Literal["one", "sentinel", "cluster"]


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers as workers find them, with the *addresses* of Sentinels, of nodes of a cluster, or of one server."""

    topology: Topology
    addresses: list[tuple[str, int]]
    lease: float
    replicas: int | Literal["all"] | None = None
    command_timeout: float = 5.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that a worker gets when it starts."""

    servers: Servers
    worker: str
    loop: str
    journal: str
    seed: int
    tasks: int = 4
    # In tests of the judge, the worker stays inside although the lock is lost.
    stays: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, line: str) -> "Settings":
        given = json.loads(line)
        return cls(**given | {"servers": Servers(**given["servers"])})


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[LockClient]:
    """A client of the servers."""
    servers = settings.servers
    config = LockConfig(
        prefix=PREFIX,
        lease=servers.lease,
        replicas=servers.replicas,
        command_timeout=servers.command_timeout,
        client_name=settings.worker,
    )
    async with AsyncExitStack() as stack:
        redis = _redis(servers, stack)
        stack.push_async_callback(redis.aclose)
        yield await stack.enter_async_context(LockClient(redis, config=config))


def _redis(servers: Servers, stack: AsyncExitStack) -> Redis | RedisCluster:
    [(host, port), *_] = servers.addresses
    if servers.topology == "one":
        return Redis(host=host, port=port)
    if servers.topology == "cluster":
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in servers.addresses])
    sentinel = Sentinel([(host, port) for host, port in servers.addresses], socket_timeout=1)  # type: ignore[no-untyped-call]
    for each in sentinel.sentinels:
        stack.push_async_callback(each.aclose)
    redis: Redis = sentinel.master_for(PRIMARY)
    return redis
