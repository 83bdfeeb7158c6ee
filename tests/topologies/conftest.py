"""Groups of servers, whose program is that of the shared server."""

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import RedisCluster

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.support.half_open import half_open_connections
from tests.support.topologies import ClusterOf

__all__ = ["half_open_connections"]

PATIENT = LockConfig(command_timeout=15)


@pytest.fixture(scope="module")
def calm(server: Server) -> Iterator[ClusterOf]:
    """A cluster that no test harms."""
    with ClusterOf(server._executable) as running:
        yield running


@pytest.fixture
def fragile(server: Server) -> Iterator[ClusterOf]:
    """A cluster of one test alone, with a replica for each primary."""
    with ClusterOf(server._executable, replicas=1) as running:
        yield running


@pytest.fixture
async def cluster(calm: ClusterOf) -> AsyncIterator[RedisCluster]:
    """A user's client of the calm cluster, which is empty.

    The client only corrects the slot that MOVED names: to read all slots again would close connections in use.
    """
    client = RedisCluster(host=calm.primaries[0].host, port=calm.primaries[0].port, reinitialize_steps=0)
    await client.flushall(target_nodes=RedisCluster.PRIMARIES)
    yield client
    await client.aclose()


@pytest.fixture
async def ours(cluster: RedisCluster) -> AsyncIterator[LockClient]:
    async with LockClient(cluster, config=PATIENT) as client:
        yield client


@pytest.fixture
async def theirs(cluster: RedisCluster) -> AsyncIterator[LockClient]:
    """Another client, which stands for another process."""
    async with LockClient(cluster, config=PATIENT) as client:
        yield client
