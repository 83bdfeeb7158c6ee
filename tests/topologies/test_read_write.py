"""Read-write locks in a cluster: in their slot, woken by messages, renewed, and taken along when the slot moves."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import RedisCluster

from aiolock import LockClient, LockConfig
from aiolock._keys import LockKeys
from tests.support.observe import until
from tests.support.topologies import ClusterOf, ask

NAMES = ["report", "{shop}:report", *(f"report {number}" for number in range(12))]


@pytest.fixture
async def quick(cluster: RedisCluster) -> AsyncIterator[LockClient]:
    async with LockClient(cluster, config=LockConfig(lease=3, renew_interval=0.3)) as locks:
        yield locks


@pytest.mark.parametrize("name", NAMES[:2])
async def test_all_of_a_lock_is_on_one_server(calm: ClusterOf, ours: LockClient, theirs: LockClient, name: str) -> None:
    mine, its = ours.read_write_lock(name, owner="job"), theirs.read_write_lock(name)
    writing, reading = await mine.write.acquire(), await mine.read.acquire()
    assert await its.read.try_lock() is None
    await writing.release()
    async with its.read.hold(wait=10):
        assert len(await mine.read.holders()) == 2
        owner = calm.owner_of(name)
        reads, _ = LockKeys.of_read_write(name, "")
        tag = name if "{" in name else f"{{{name}}}"
        assert [ask(owner, "EXISTS", key) for key in reads.all] == [1, 1]
        found = ask(owner, "KEYS", "*:rwlock_timeout:1")
        assert len([key for key in found if key.startswith(f"{tag}:")]) == 2
        reading.check()
    await reading.release()
    assert not await its.read.locked()


async def test_both_halves_may_wait_in_one_client(ours: LockClient, theirs: LockClient) -> None:
    """Both halves listen to one channel, and each hears its messages."""
    held = await theirs.read_write_lock("both").write.acquire(lease=60)
    mine = ours.read_write_lock("both")

    async def wait(kind: str) -> None:
        async with getattr(mine, kind):
            pass

    tasks = [asyncio.create_task(wait(kind)) for kind in ("read", "write", "read", "write")]
    await until(lambda: (mine.read.statistics().parked, mine.write.statistics().parked) == (2, 2))
    await held.release()
    await asyncio.wait_for(asyncio.gather(*tasks), 20)


async def test_holds_on_every_server_are_renewed(calm: ClusterOf, quick: LockClient, theirs: LockClient) -> None:
    leases = [
        await (whole.read if number % 2 else whole.write).acquire()
        for number, name in enumerate(NAMES)
        for whole in [quick.read_write_lock(name)]
    ]
    await until(lambda: quick.statistics().renewals >= 2 * len(NAMES), within=20)
    for lease in leases:
        lease.check()
        assert await theirs.read_write_lock(lease.name).write.try_lock() is None
    await asyncio.gather(*(lease.release() for lease in leases))
    assert quick.statistics().losses == 0
