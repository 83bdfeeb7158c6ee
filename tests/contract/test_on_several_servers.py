"""The contract in a cluster and behind Sentinels, before and after a failover."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import Sentinel

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.contract.acts import check_that_messages_wake, is_untouched, nothing_under_way, section
from tests.contract.kinds import KINDS
from tests.support.half_open import half_open_connections
from tests.support.observe import until
from tests.support.topologies import NAME as PRIMARY
from tests.support.topologies import ClusterOf, Replicated, ask

__all__ = ["half_open_connections"]
pytestmark = pytest.mark.slow
PATIENT = LockConfig(command_timeout=15)


@pytest.fixture
async def cluster(server: Server) -> AsyncIterator[RedisCluster]:
    with ClusterOf(server._executable) as running:
        client = RedisCluster(host=running.primaries[0].host, port=running.primaries[0].port, reinitialize_steps=0)
        yield client
        await client.aclose()


@pytest.fixture
def replicated(server: Server) -> Iterator[Replicated]:
    with Replicated(server._executable, replicas=1, sentinels=3) as running:
        yield running


@pytest.fixture
async def primary(replicated: Replicated) -> AsyncIterator[Redis]:
    sentinel = Sentinel(replicated.addresses, socket_timeout=1)  # type: ignore[no-untyped-call]
    redis = sentinel.master_for(PRIMARY)
    yield redis
    await redis.aclose()
    for each in sentinel.sentinels:
        await each.aclose()


async def test_in_a_cluster(cluster: RedisCluster) -> None:
    """The kinds come in turn, as they share a name; the servers are emptied after each."""
    async with LockClient(cluster, config=PATIENT) as ours, LockClient(cluster, config=PATIENT) as theirs:
        for kind in KINDS:
            await check_that_messages_wake(kind, ours, theirs)
            await is_untouched(kind, theirs)
            await until(lambda: nothing_under_way(ours))
            await cluster.flushall(target_nodes=RedisCluster.PRIMARIES)


async def test_behind_sentinels_and_on_the_next_primary(replicated: Replicated, primary: Redis) -> None:
    """The keys that remained on the old primary are on the new one, where each kind is taken as before."""
    async with LockClient(primary, config=PATIENT) as ours, LockClient(primary, config=PATIENT) as theirs:
        for kind in KINDS:
            await check_that_messages_wake(kind, ours, theirs)
            await primary.flushall()
        for kind in KINDS[:2]:
            await section(kind, ours)
        assert ask(replicated.primary, "WAIT", 1, 5000) == 1
        old = replicated.primary
        old.kill()
        await asyncio.to_thread(replicated.promoted, old)
        for kind in KINDS:
            await section(kind, ours)
            await check_that_messages_wake(kind, ours, theirs)
            await is_untouched(kind, theirs)
            await primary.flushall()
