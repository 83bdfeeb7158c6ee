"""Blocks that leave their release behind, in a cluster whose slots move, and behind Sentinels."""

import asyncio

import pytest
from redis.asyncio import RedisCluster

from aiolock import LockClient, LockConfig
from aiolock._scripts import RELEASE, RELEASE_CLEAN
from tests.contract.acts import is_untouched, nothing_under_way
from tests.contract.kinds import LEASED
from tests.support.observe import answered, until
from tests.support.proxy import Rule, refuse, script, withhold_reply
from tests.support.resharding import begin_to_move, end_move, move, move_keys
from tests.support.topologies import ClusterOf
from tests.topologies.test_cluster_lost_replies import proxied

BEHIND = LockConfig(release="behind", command_timeout=15)
NAME = "orders"


async def test_every_primitive_in_a_cluster(cluster: RedisCluster, theirs: LockClient) -> None:
    async with LockClient(cluster, config=BEHIND) as behind:
        for kind in LEASED:
            for _ in range(20):
                await kind.visit(behind)
                taken = await kind.take(behind)
                assert taken
                await kind.give(behind, taken)
            await until(lambda: nothing_under_way(behind))
            await is_untouched(kind, theirs)
            await cluster.flushall(target_nodes=RedisCluster.PRIMARIES)
        assert behind.statistics().losses == 0


async def test_the_slot_moves_all_the_time(calm: ClusterOf, cluster: RedisCluster) -> None:
    """A try without a wait is not refused because the release before it is still on its way."""

    async def work() -> int:
        number = 0
        while not over.is_set():
            async with lock.hold(wait=0):
                number += 1
        return number

    over = asyncio.Event()
    async with LockClient(cluster, config=BEHIND) as behind:
        lock = behind.lock(NAME)
        working = asyncio.create_task(work())
        for _ in range(6):
            await asyncio.to_thread(move, calm, NAME)
            await asyncio.sleep(0.05)
        over.set()
        assert await working > 20
        await until(lambda: nothing_under_way(behind))
        assert behind.statistics().losses == 0


@pytest.mark.parametrize("error", [b"TRYAGAIN Multiple keys request during rehashing of slot", b"CLUSTERDOWN"])
async def test_a_release_rests_while_the_acquire_behind_it_goes_on(
    calm: ClusterOf, cluster: RedisCluster, error: bytes
) -> None:
    async with proxied(calm) as (user, proxies), LockClient(user, config=BEHIND) as behind:
        lock = behind.lock(NAME)
        async with lock:
            pass
        await answered(behind)
        refused = proxies[calm.owner_of(NAME).port].install(Rule(script(RELEASE, RELEASE_CLEAN), refuse(error)))
        async with lock:
            pass
        assert await lock.try_lock()
        await refused.caught()


@pytest.mark.parametrize("asking", [False, True])
async def test_a_release_is_redirected_while_the_acquire_goes_where_the_slot_is_by_now(
    calm: ClusterOf, cluster: RedisCluster, asking: bool
) -> None:
    """The old server is slow to redirect the release; the client sends later calls to the new server."""
    async with proxied(calm) as (user, proxies), LockClient(user, config=BEHIND) as behind:
        lock, source = behind.lock(NAME), calm.owner_of(NAME)
        async with lock:
            pass
        await answered(behind)
        async with lock:
            source, target = begin_to_move(calm, NAME)
            move_keys(calm, NAME, source, target)
            if not asking:
                end_move(calm, NAME, target)
            redirected = proxies[source.port].install(Rule(script(RELEASE, RELEASE_CLEAN), withhold_reply()))
        await redirected.caught()
        trying = asyncio.create_task(try_once(behind))
        redirected.let_go()
        # With no key left, the new server serves nobody until the slot is its own.
        if asking:
            end_move(calm, NAME, target)
        assert await trying


async def try_once(locks: LockClient) -> bool:
    async with locks.lock(NAME).hold(wait=0):
        return True
