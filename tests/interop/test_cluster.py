"""A cluster: both sides take locks and permits where the slot is, and hear each other's messages if both can."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from time import monotonic

import pytest
from redis.asyncio import RedisCluster

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.interop.service import Redisson, Service
from tests.interop.test_waking import soon
from tests.support.inside import block_of
from tests.support.observe import all_parked, until
from tests.support.topologies import ClusterOf
from tests.support.waiters import Waiters, waits_quietly

NAMES = [f"name {number}" for number in range(12)]
NAME = "orders"
LEASE = 600
SHORT = 2.0
WITHOUT_SHARDED_MESSAGES = ("3.17.7",)


@pytest.fixture(scope="module")
def cluster(server: Server) -> Iterator[ClusterOf]:
    with ClusterOf(server._executable) as running:
        yield running


@pytest.fixture
async def ours(cluster: ClusterOf) -> AsyncIterator[LockClient]:
    redis = RedisCluster(host=cluster.primaries[0].host, port=cluster.primaries[0].port)
    await redis.flushall(target_nodes=RedisCluster.PRIMARIES)
    async with LockClient(redis) as client:
        yield client
    await redis.aclose()


@pytest.fixture
async def theirs(jvm: Service, cluster: ClusterOf, ours: LockClient) -> AsyncIterator[Redisson]:
    client = await jvm.connect(cluster.primaries[0].url, cluster=True)
    yield client
    await client.shutdown()


async def test_each_side_keeps_the_other_out_of_every_slot(ours: LockClient, theirs: Redisson) -> None:
    for name in NAMES:
        lock = ours.lock(name)
        async with lock:
            assert not await theirs.ask("tryLock", name, wait=0, lease=LEASE)
        assert await theirs.ask("tryLock", name, wait=0, lease=LEASE)
        assert await lock.try_lock() is None
        await theirs.ask("unlock", name)
        assert not await lock.locked()


async def test_each_side_keeps_the_other_from_several_slots_at_once(ours: LockClient, theirs: Redisson) -> None:
    several, other_order = ours.multi(*NAMES), NAMES[::-1]
    async with several:
        assert not await theirs.ask("tryLock", names=other_order)
        assert not await theirs.ask("tryLock", NAMES[3])
    assert await theirs.ask("tryLock", names=other_order, lease=LEASE)
    assert await several.try_lock() is None
    assert await ours.lock(NAMES[3]).try_lock() is None
    await theirs.ask("unlock", names=other_order)
    await theirs.ask("lock", NAMES[3], lease=LEASE)
    assert await several.try_lock(wait=0.05) is None
    assert not any([await ours.lock(name).locked() for name in NAMES if name != NAMES[3]])
    await theirs.ask("unlock", NAMES[3])


async def test_either_watchdog_keeps_its_locks_until_its_side_is_gone(
    jvm: Service, cluster: ClusterOf, ours: LockClient, theirs: Redisson
) -> None:
    url = cluster.primaries[0].url
    mortal = await jvm.connect(url, watchdog=SHORT, cluster=True)
    redis = RedisCluster(host=cluster.primaries[0].host, port=cluster.primaries[0].port)
    async with LockClient(redis, config=LockConfig(lease=SHORT)) as keeper:
        for number, name in enumerate(NAMES):
            await (keeper.lock(name).acquire() if number % 2 else mortal.ask("lock", name))
        ends = monotonic() + 2.5 * SHORT
        while monotonic() < ends:
            for number, name in enumerate(NAMES):
                if number % 2:
                    assert not await theirs.ask("tryLock", name)
                else:
                    assert await ours.lock(name).try_lock() is None
        assert keeper.statistics().losses == 0
        await mortal.shutdown()
        for name in NAMES[::2]:
            assert await ours.lock(name).try_lock(30) is not None
    for name in NAMES[1::2]:
        assert await theirs.ask("tryLock", name, lease=LEASE)
    await redis.aclose()


async def test_each_side_is_woken_by_the_other(jvm: Service, ours: LockClient, theirs: Redisson) -> None:
    if jvm.version in WITHOUT_SHARDED_MESSAGES:
        return await each_side_goes_on_when_the_lease_of_the_other_ends(ours, theirs)

    async def task_by_thread() -> float:
        await theirs.ask("lock", NAME, lease=LEASE)
        async with Waiters(ours, NAME, go=True) as waiters:
            await waiters.park(1)
            unlocking = await theirs.post("unlock", NAME)
            await waiters.granted(1, within=30)
            return asyncio.get_running_loop().time() - unlocking.began

    async def thread_by_task() -> float:
        lease = await ours.lock(NAME, owner="holder").acquire(lease=LEASE)
        waiting = theirs.post("lock", NAME, lease=LEASE)
        await until(theirs.parked, within=20)
        began = asyncio.get_running_loop().time()
        await lease.release()
        got = await waiting
        await theirs.ask("unlock", NAME)
        return got.ended - began

    await soon(task_by_thread)
    await soon(thread_by_task)
    return None


async def test_permits_are_shared_in_every_slot(ours: LockClient, theirs: Redisson) -> None:
    for name in NAMES:
        two = ours.semaphore(name, 2)
        async with two:
            permit = await theirs.ask("tryAcquire", name, lease=LEASE)
            assert await theirs.ask("tryAcquire", name) is None
            assert (await two.available(), await two.acquired()) == (0, 2)
            await theirs.ask("release", name, permit=permit)
        assert await theirs.ask("availablePermits", name) == 2


async def test_each_side_is_woken_by_a_permit_of_the_other(jvm: Service, ours: LockClient, theirs: Redisson) -> None:
    # They go on when the short lease ends, and the others by a message.
    lease = 3 if jvm.version in WITHOUT_SHARDED_MESSAGES else LEASE
    semaphore = ours.semaphore(NAME, owner="somebody")
    await semaphore.set_permits(1)
    permit = await theirs.ask("tryAcquire", NAME, lease=lease)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(semaphore.acquire(lease=lease))
        await until(lambda: waits_quietly(ours, semaphore))
        await theirs.ask("release", NAME, permit=permit)
        held = await task
        thread = theirs.post("tryAcquire", NAME, wait=60, lease=lease)
        await until(theirs.parked)
        await held.release()
        assert (await thread).value is not None


async def test_readers_and_writers_keep_each_other_out_of_every_slot(ours: LockClient, theirs: Redisson) -> None:
    for name in NAMES:
        lock = ours.read_write_lock(name)
        async with lock.read:
            assert await theirs.ask("tryLock", name, half="read", lease=LEASE)
            assert not await theirs.ask("tryLock", name, half="write", thread=2)
        assert await lock.write.try_lock() is None
        await theirs.ask("unlock", name, half="read")
        async with lock.write, lock.read:
            assert not await theirs.ask("tryLock", name, half="read")
        for half in ("write", "read"):
            assert await theirs.ask("tryLock", name, half=half, lease=LEASE)
        assert await lock.read.try_lock() is None
        for half in ("read", "write"):
            await theirs.ask("unlock", name, half=half)
        assert not await lock.write.locked()


async def test_each_side_is_woken_by_the_writer_on_the_other(jvm: Service, ours: LockClient, theirs: Redisson) -> None:
    # They go on when the short lease ends, and the others by a message.
    lease = 3 if jvm.version in WITHOUT_SHARDED_MESSAGES else LEASE
    lock = ours.read_write_lock(NAME, owner="somebody")
    await theirs.ask("lock", NAME, half="write", lease=lease)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        reading = group.create_task(lock.read.acquire(lease=lease))
        await until(lambda: waits_quietly(ours, lock.read))
        await theirs.ask("unlock", NAME, half="write")
        await (await reading).release()
        writing = await lock.write.acquire(lease=lease)
        thread = theirs.post("lock", NAME, half="read", lease=LEASE)
        await until(theirs.parked)
        await writing.release()
        await thread


async def test_each_side_is_woken_by_counted_permits_and_latches_of_the_other(
    jvm: Service, ours: LockClient, theirs: Redisson
) -> None:
    """Without messages from the other side, tasks ask by themselves, but threads would wait for ever."""
    semaphore, latch = ours.counting_semaphore("seats"), ours.count_down_latch("jobs")
    async with asyncio.timeout(20):
        taking = asyncio.create_task(semaphore.acquire())
        await until(lambda: waits_quietly(ours, block_of(semaphore)))
        assert await theirs.ask("trySetPermits", "seats", kind="counted", permits=1)
        await taking
        assert await theirs.ask("trySetCount", "jobs", kind="latch", count=1)
        waiting = asyncio.create_task(latch.wait())
        await all_parked(ours, 1)
        await theirs.ask("countDown", "jobs", kind="latch")
        assert await waiting
        if jvm.version in WITHOUT_SHARDED_MESSAGES:
            return
        thread = theirs.post("acquire", "seats", kind="counted")
        await until(theirs.parked)
        await semaphore.release()
        await thread
        assert await latch.try_set_count(1)
        thread = theirs.post("await", "jobs", kind="latch")
        await until(theirs.parked)
        await latch.count_down()
        await thread


async def each_side_goes_on_when_the_lease_of_the_other_ends(ours: LockClient, theirs: Redisson) -> None:
    await theirs.ask("lock", NAME, lease=2)
    async with asyncio.timeout(30), ours.lock(NAME, owner="patient"):
        pass
    await ours.lock(NAME, owner="holder").acquire(lease=2)
    assert await theirs.ask("tryLock", NAME, wait=30, lease=LEASE)
    await theirs.ask("unlock", NAME)
