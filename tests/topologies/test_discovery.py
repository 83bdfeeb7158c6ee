"""A client asks for the slots of a cluster when none of the servers that it uses is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial

import pytest
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode

import aiolock._redis.cluster.topology
from aiolock import Lease, LockClient, LockConfig
from aiolock._redis.cluster.discovery import Address, Discovery
from aiolock._redis.connector import Connector
from tests.support.calls import acquire_and_release
from tests.support.inside import cluster_of
from tests.support.observe import renewed, until
from tests.support.topologies import ClusterOf, ask, mute, replicated, role, wait_until

NAME = "orders"


@asynccontextmanager
async def holding(cluster: ClusterOf) -> AsyncIterator[tuple[LockClient, Lease]]:
    """A client that was given one server, knows the slots, and holds a lock that the replicas have."""
    seed = cluster.primaries[0]
    redis = RedisCluster(host=seed.host, port=seed.port)
    async with LockClient(redis, config=LockConfig(lease=60, renew_interval=1, command_timeout=20)) as locks:
        for number in range(20):
            await acquire_and_release(locks.lock(f"name {number}"))
        topology = cluster_of(locks)
        await until(lambda: topology._asking is None)
        lease = await locks.lock(NAME).acquire()
        for primary in cluster.primaries:
            await replicated(primary, 1)
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


async def test_a_client_finds_the_new_primaries_after_all_old_ones_died(fragile: ClusterOf) -> None:
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
        # The loop stands still.
        promote_all(fragile)
        kill_all(fragile)
        await renewed(locks, 1, within=20)
        for number in range(20):
            await acquire_and_release(locks.lock(f"name {number}"))
        await lease.release()


async def test_a_client_that_lost_its_only_seed_asks_the_servers_that_the_users_client_found(
    fragile: ClusterOf,
) -> None:
    seed = fragile.primaries[0]
    redis = RedisCluster(host=seed.host, port=seed.port)
    locks = LockClient(redis, config=LockConfig(command_timeout=15))
    assert await redis.initialize() is redis
    seed.kill()
    await asyncio.to_thread(promote_all, fragile)
    async with locks:
        await acquire_and_release(locks.lock(NAME))
    await redis.aclose()


async def test_servers_that_hang_do_not_keep_it_from_the_one_that_answers(calm: ClusterOf) -> None:
    """If the client asked one server after the other, it would need eighty seconds."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(mute()).getsockname() for _ in range(15)]
        addresses.append((calm.primaries[0].host, calm.primaries[0].port))
        redis = RedisCluster(startup_nodes=[ClusterNode(*address) for address in addresses])
        async with LockClient(redis, config=LockConfig(command_timeout=16)) as locks:
            await acquire_and_release(locks.lock(NAME))
        await redis.aclose()


async def test_an_address_that_another_cluster_took_over_is_not_believed(
    calm: ClusterOf, cluster: RedisCluster, fragile: ClusterOf
) -> None:
    mine, others = ((each.primaries[0].host, each.primaries[0].port) for each in (calm, fragile))

    def discovery(*seeds: Address) -> Discovery:
        connect_to = partial(Connector.of_node, cluster, client_name=None)
        return Discovery(lambda: list(seeds), lambda address: connect_to(*address), lambda *address: address, 5)

    wary, told = discovery(mine), discovery(mine, others)
    for each in (wary, told):
        assert await each.ask([mine]) is not None
    assert await wary.ask([others]) is None
    assert others not in wary.addresses()
    assert await told.ask([others]) is not None


async def test_the_slots_are_asked_for_now_and_then_while_the_client_is_used(
    calm: ClusterOf, ours: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client knows the addresses of the last answer, and asks again after a time."""

    def asked() -> int:
        stats = [ask(server, "INFO", "commandstats") for server in calm.servers]
        return sum(each["cmdstat_cluster|slots"]["calls"] for each in stats if "cmdstat_cluster|slots" in each)

    monkeypatch.setattr(aiolock._redis.cluster.topology, "_REFRESH", 0.3)
    await acquire_and_release(ours.lock(NAME))
    before = asked()

    async def used() -> bool:
        await acquire_and_release(ours.lock(NAME))
        return asked() > before + 2

    await until(used)
    topology = cluster_of(ours)
    await until(lambda: topology._asking is None)
    before = asked()
    await asyncio.sleep(0.6)
    assert asked() == before
