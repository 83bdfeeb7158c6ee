"""Where a client asks for the slots of a cluster when none of the servers that it uses is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redis.asyncio import RedisCluster

from aiolock import Lease, LockClient, LockConfig
from tests.support.calls import acquire_and_release
from tests.support.observe import renewed, until
from tests.support.topologies import ClusterOf, ask, role, wait_until

NAME = "orders"


@asynccontextmanager
async def holding(cluster: ClusterOf) -> AsyncIterator[tuple[LockClient, Lease]]:
    """A client that was told of one server, knows the slots, and holds a lock that the replicas have."""
    seed = cluster.primaries[0]
    redis = RedisCluster(host=seed.host, port=seed.port)
    async with LockClient(redis, config=LockConfig(lease=60, renew_interval=1, command_timeout=20)) as locks:
        for number in range(20):
            await acquire_and_release(locks.lock(f"name {number}"))
        topology = locks._runtime.core()._backend._topology
        await until(lambda: topology._asking is None)  # type: ignore[attr-defined]
        lease = await locks.lock(NAME).acquire()
        assert all(ask(primary, "WAIT", 1, 5000) == 1 for primary in cluster.primaries)
        yield locks, lease
    await redis.aclose()


def promote_all(cluster: ClusterOf) -> None:
    """Every replica takes the place of its primary."""
    for replica in cluster.replicas:
        ask(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
    wait_until(lambda: all(role(replica) == "master" for replica in cluster.replicas), "the replicas are promoted")


def kill_all(cluster: ClusterOf) -> None:
    for primary in cluster.primaries:
        primary.kill()


async def test_a_client_whose_servers_all_die_finds_the_replicas_that_take_their_places(fragile: ClusterOf) -> None:
    async with holding(fragile) as (locks, lease):
        kill_all(fragile)
        await asyncio.to_thread(promote_all, fragile)
        await renewed(locks, 1, within=20)
        for number in range(20):
            await acquire_and_release(locks.lock(f"name {number}"))
        await lease.release()


async def test_a_client_that_stood_still_while_every_primary_was_replaced_finds_the_new_ones(
    fragile: ClusterOf,
) -> None:
    async with holding(fragile) as (locks, lease):
        promote_all(fragile)  # The loop stands still.
        kill_all(fragile)
        await renewed(locks, 1, within=20)
        for number in range(20):
            await acquire_and_release(locks.lock(f"name {number}"))
        await lease.release()
