"""Permits in a cluster and behind Sentinels: in their slot, woken by messages, renewed, and kept in a failover."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import RedisCluster

from aiolock import LockClient, LockConfig
from aiolock._keys import LockKeys
from aiolock.testing import lose
from tests.support.observe import renewed, until
from tests.support.resharding import begin_to_move, end_move, move_keys
from tests.support.topologies import ClusterOf, ask

NAMES = [
    "places",
    "{shop}:places",
    *(f"{{shop}}:{number}" for number in range(3)),
    *(f"places {number}" for number in range(12)),
]


@pytest.fixture
async def quick(cluster: RedisCluster) -> AsyncIterator[LockClient]:
    async with LockClient(cluster, config=LockConfig(lease=3, renew_interval=0.3)) as locks:
        yield locks


@pytest.mark.parametrize("name", NAMES[:2])
async def test_all_of_a_semaphore_is_on_one_server(
    calm: ClusterOf, ours: LockClient, theirs: LockClient, name: str
) -> None:
    mine, its = (locks.semaphore(name, 3) for locks in (ours, theirs))
    async with mine.hold(permits=2):
        assert await its.try_acquire(permits=2) is None
        async with its as one:
            assert (await mine.available(), await its.acquired()) == (0, 3)
            owner = calm.owner_of(name)
            assert [ask(owner, "EXISTS", key) for key in LockKeys.of_permits(name, "").all] == [1, 1, 1]
            one.check()
    assert await its.available() == 3


async def test_permits_and_locks_of_several_servers_are_had_as_one(ours: LockClient, theirs: LockClient) -> None:
    """`lose` loses them as one, too."""
    names = [f"lock {number}" for number in range(6)]
    permits = theirs.semaphore("many", 3)
    many = ours.multi(*names, ours.semaphore("many", 3).taking(2))
    async with permits.hold(permits=2), theirs.lock(names[3]):
        assert await many.try_lock() is None
        assert not await theirs.multi(*(name for name in names if name != names[3])).locked()
    lease = await many.acquire()
    assert (await permits.available(), len(lease.tokens)) == (1, 7)
    await lose(ours, many)
    assert [each.lost.is_set() for each in lease.leases.values()] == [True] * 7
    async with theirs.multi(*names, permits):
        pass


async def test_permits_on_every_server_are_renewed(calm: ClusterOf, quick: LockClient, theirs: LockClient) -> None:
    permits = [await quick.semaphore(name, 1).acquire() for name in NAMES]
    await until(lambda: quick.statistics().renewals >= 2 * len(NAMES), within=20)
    for permit in permits:
        permit.check()
        assert await theirs.semaphore(permit.name).acquired() == 1
    await asyncio.gather(*(permit.release() for permit in permits))
    assert quick.statistics().losses == 0


async def test_a_slot_moves_with_a_permit_and_a_semaphore_in_it(
    calm: ClusterOf, quick: LockClient, theirs: LockClient
) -> None:
    """Each semaphore has its permits, and the lease goes on, before, during and after the move."""
    expiring, counted = "{moving}:places", "{moving}:seats"

    async def check() -> None:
        await renewed(quick, 2)
        permit.check()
        for locks in (quick, theirs):
            one, two = locks.semaphore(expiring), locks.counting_semaphore(counted)
            assert (await one.available(), await one.acquired(), await two.available()) == (1, 1, 1)
            async with one.hold(wait=10), two.hold(wait=10):
                assert await two.available() == 0
                assert not await two.try_acquire()
                assert await one.try_acquire() is None

    permit = await quick.semaphore(expiring, 2).acquire()
    await quick.counting_semaphore(counted, 2).acquire()
    await check()
    source, target = begin_to_move(calm, expiring)
    await check()
    move_keys(calm, expiring, source, target)
    await check()
    end_move(calm, expiring, target)
    await check()
    await permit.release()
    await theirs.counting_semaphore(counted).release()
    assert [ask(target, "GET", name) for name in (expiring, counted)] == ["2", "2"]
    assert quick.statistics().losses == 0
