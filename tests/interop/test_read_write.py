"""A read-write lock of both sides: readers side by side, waiters for each other, and the life of each hold."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

import pytest
from redis.asyncio import Redis

from aiolock import (
    AsyncReadLock,
    AsyncReadWriteLock,
    AsyncWriteLock,
    Lease,
    LeaseLostError,
    LockClient,
    LockConfig,
    NotHeldError,
)
from aiolock._embedded_server import Server
from tests.interop.service import Answer, Redisson, RedissonError, Service
from tests.interop.test_bytes import NAMES
from tests.interop.test_waking import LEASE, soon
from tests.support.observe import freed, until
from tests.support.waiters import waits_quietly

Half = Literal["read", "write"]

NAME = "orders"
HALVES: tuple[Half, Half] = ("read", "write")
IN_TURN: list[tuple[Half, Half]] = [("read", "write"), ("write", "read"), ("write", "write")]
BY_MESSAGE = 20
SHORT = 0.5
RENEWED = 3
# The watchdog of these versions renews its own readers only, and of other versions it renews all.
TO_EACH_ITS_OWN = ("4.7.0",)
# The watchdog fails if a reader, on either side, has two holds.
FAILS_BESIDE_NESTED = ("3.52.0",)
# While the writer reads, too, these versions say that nobody reads.
WITHOUT_READING_WRITER = ("3.17.7",)


@dataclass(frozen=True)
class Theirs:
    """The read-write lock of that name, in threads of Redisson."""

    redisson: Redisson
    name: str = NAME

    def post(self, half: Half, call: str, **command: Any) -> "asyncio.Future[Answer]":
        return self.redisson.post(call, self.name, half=half, **command)

    async def ask(self, half: Half, call: str, **command: Any) -> Any:
        return (await self.post(half, call, **command)).value

    async def has(self, half: Half, thread: int = 1) -> bool:
        return bool(await self.ask(half, "isHeldByCurrentThread", thread=thread))

    async def gets(self, half: Half, thread: int = 2) -> bool:
        """Whether another thread would get this half now."""
        got = bool(await self.ask(half, "tryLock", thread=thread))
        if got:
            await self.ask(half, "unlock", thread=thread)
        return got


@pytest.fixture
def theirs(redisson: Redisson) -> Theirs:
    return Theirs(redisson)


@pytest.fixture
def ours(locks: LockClient) -> AsyncReadWriteLock:
    """A lock with a named owner, whose holds outlive the task that acquires them."""
    return locks.read_write_lock(NAME, owner="somebody")


@pytest.fixture
def another(locks: LockClient) -> AsyncReadWriteLock:
    return locks.read_write_lock(NAME, owner="another")


def half_of(lock: AsyncReadWriteLock, half: Half) -> AsyncReadLock | AsyncWriteLock:
    return lock.read if half == "read" else lock.write


async def records(redis: Redis) -> list[float]:
    """The seconds that each hold has left, by its own key; the longest first."""
    keys: list[Any] = await redis.keys("*:rwlock_timeout:*")
    return sorted([await redis.pttl(key) / 1000 for key in keys], reverse=True)


async def lasts(redis: Redis) -> float:
    """The seconds that the lock itself has left."""
    return float(await redis.pttl(NAME)) / 1000


async def nothing_left(redis: Redis) -> bool:
    return not await redis.exists(NAME) and not await redis.keys("*:rwlock_timeout:*")


# Readers next to readers.


@pytest.mark.parametrize("asks", HALVES)
@pytest.mark.parametrize("has", HALVES)
async def test_a_task_beside_a_thread(
    ours: AsyncReadWriteLock, theirs: Theirs, redis: Redis, has: Half, asks: Half
) -> None:
    await theirs.ask(has, "lock", lease=LEASE)
    lock = half_of(ours, asks)
    for wait in (0, 0.2):
        began = monotonic()
        lease = await lock.try_lock(wait)
        assert (lease is not None) == (has == asks == "read")
        assert lease is not None or monotonic() - began > wait - 0.01
        assert await theirs.has(has)
        if lease is not None:
            await lease.release()
    await theirs.ask(has, "unlock")
    async with lock:
        assert await lock.held()
    assert await nothing_left(redis)


@pytest.mark.parametrize("asks", HALVES)
@pytest.mark.parametrize("has", HALVES)
async def test_a_thread_beside_a_task(
    ours: AsyncReadWriteLock, theirs: Theirs, redis: Redis, has: Half, asks: Half
) -> None:
    async with half_of(ours, has) as lease:
        assert await theirs.gets(asks) == (has == asks == "read")
        waited = await theirs.post(asks, "tryLock", wait=0.2, lease=LEASE)
        assert waited.value == (has == asks == "read")
        assert waited.value or waited.ended - waited.began > 0.19
        lease.check()
        assert await half_of(ours, has).held()
    assert waited.value or await theirs.ask(asks, "tryLock")
    await theirs.ask(asks, "unlock")
    assert await nothing_left(redis)


async def test_nobody_is_inside_beside_a_writer(
    locks: LockClient, other: LockClient, theirs: Theirs, redis: Redis
) -> None:
    inside: Counter[Half] = Counter()

    async def visit(half: Half) -> None:
        inside[half] += 1
        assert inside["write"] == 0 or inside.total() == 1
        await asyncio.sleep(0.001)
        inside[half] -= 1

    async def thread(number: int) -> None:
        for turn in range(20):
            half = HALVES[(number + turn) % 2]
            await theirs.ask(half, "lock", thread=number, lease=LEASE)
            await visit(half)
            await theirs.ask(half, "unlock", thread=number)

    async def task(client: LockClient, number: int) -> None:
        for turn in range(20):
            half = HALVES[(number + turn) % 2]
            async with half_of(client.read_write_lock(NAME), half):
                await visit(half)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(thread(number))
            group.create_task(task(locks, number))
            group.create_task(task(other, number))
    assert await nothing_left(redis)


async def test_a_thread_that_writes_may_read_as_well_and_goes_on_to_read(
    ours: AsyncReadWriteLock, theirs: Theirs, redis: Redis
) -> None:
    for half in ("write", "write", "read"):
        await theirs.ask(half, "lock", lease=60)
    owner = await theirs.redisson.ask("owner")
    writer, [reader] = await ours.write.holder(), await ours.read.holders()
    assert writer is not None
    assert f"{writer.client}:{writer.owner}" == f"{reader.client}:{reader.owner}" == owner
    assert (writer.holds, writer.host, reader.holds, reader.host) == (2, None, 1, None)
    # Redisson adds up the leases of nested holds.
    assert 50 < (await ours.write.remaining() or 0) <= 120
    assert 50 < (await ours.read.remaining() or 0) <= 60
    for _ in range(2):
        assert await ours.write.locked()
        assert await ours.read.try_lock() is None
        await theirs.ask("write", "unlock")
    assert (await ours.write.locked(), await ours.read.locked()) == (False, True)
    assert await ours.write.try_lock() is None
    async with ours.read:
        await theirs.ask("read", "unlock")
        assert not await theirs.gets("write")
    assert await nothing_left(redis)


async def test_a_task_that_writes_may_read_as_well_and_goes_on_to_read(
    ours: AsyncReadWriteLock, jvm: Service, theirs: Theirs, redis: Redis
) -> None:
    for half in ("write", "write", "read"):
        await half_of(ours, half).acquire(lease=60)
    assert await theirs.ask("write", "isLocked")
    assert await theirs.ask("read", "isLocked") == (jvm.version not in WITHOUT_READING_WRITER)
    for half in HALVES:
        assert not await theirs.has(half)
        assert await theirs.ask(half, "getHoldCount") == 0
        assert 50_000 < await theirs.ask(half, "remainTimeToLive") <= 60_000
        with pytest.raises(RedissonError, match="not locked by current thread"):
            await theirs.ask(half, "unlock")
    for _ in range(2):
        assert not await theirs.gets("read")
        await ours.write.release()
    assert [await theirs.ask(half, "isLocked") for half in HALVES] == [True, False]
    assert await theirs.gets("read")
    assert not await theirs.gets("write")
    await ours.read.release()
    assert [await theirs.ask(half, "isLocked") for half in HALVES] == [False, False]
    assert await theirs.ask("read", "remainTimeToLive") == -2
    assert await nothing_left(redis)


@pytest.mark.parametrize("half", HALVES)
async def test_each_thread_and_each_task_has_its_own_holds(
    ours: AsyncReadWriteLock, theirs: Theirs, redis: Redis, half: Half
) -> None:
    lock = half_of(ours, half)
    for holds in (1, 2):
        await theirs.ask(half, "lock", lease=LEASE)
        assert (await theirs.ask(half, "getHoldCount"), await lock.hold_count()) == (holds, 0)
    with pytest.raises(NotHeldError):
        await lock.release()
    for holds in (1, 0):
        await theirs.ask(half, "unlock")
        assert await theirs.ask(half, "getHoldCount") == holds
    for holds in (1, 2):
        await lock.acquire(lease=LEASE)
        assert (await theirs.ask(half, "getHoldCount"), await lock.hold_count()) == (0, holds)
    for _ in range(2):
        await lock.release()
    assert await nothing_left(redis)


async def test_braces_and_a_prefix_are_parts_of_the_name(redis: Redis, redisson: Redisson) -> None:
    async with LockClient(redis, config=LockConfig(prefix="app:")) as locks:
        for name in NAMES:
            theirs, ours = Theirs(redisson, f"app:{name}"), locks.read_write_lock(name)
            async with ours.write:
                assert not await theirs.gets("read"), name
            await theirs.ask("write", "lock", lease=60)
            assert await ours.read.try_lock() is None, name
            await theirs.ask("write", "unlock")
            await theirs.ask("read", "lock", lease=60)
            async with ours.read.hold(lease=LEASE):
                await theirs.ask("read", "unlock")
                assert await redis.pttl(f"app:{name}") > 500_000, name
            await theirs.ask("read", "lock", lease=LEASE)
            async with ours.read.hold(lease=LEASE + 60):
                # We look for the keys of all other readers, as Redisson does.
                pass
            assert await theirs.has("read"), name
            assert LEASE - 60 < await redis.pttl(f"app:{name}") / 1000 <= LEASE, name
            await theirs.ask("read", "unlock")
            assert not await redis.exists(f"app:{name}"), name


# A release on one side wakes a waiter on the other: by its message, as every lease is far from its end.


@pytest.mark.parametrize("how", ["unlock", "forceUnlock"])
@pytest.mark.parametrize("halves", IN_TURN, ids=" then ".join)
async def test_a_task_is_woken(
    locks: LockClient, ours: AsyncReadWriteLock, theirs: Theirs, halves: tuple[Half, Half], how: str
) -> None:
    has, asks = halves
    lock = half_of(ours, asks)

    async def one() -> float:
        await theirs.ask(has, "lock", lease=LEASE)
        async with asyncio.timeout(BY_MESSAGE), asyncio.TaskGroup() as group:
            waiting = group.create_task(lock.acquire(lease=LEASE))
            await until(lambda: waits_quietly(locks, lock), within=20)
            releasing = await theirs.post(has, how)
            await waiting
            took = monotonic() - releasing.began
        await lock.release()
        return took

    await soon(one)


async def test_all_tasks_that_wait_to_read_are_woken(
    locks: LockClient,
    other: LockClient,
    ours: AsyncReadWriteLock,
    another: AsyncReadWriteLock,
    theirs: Theirs,
) -> None:
    """One process has the waiter that is next and looks every second; the waiter of the other process hears of it."""
    first = other.read_write_lock(NAME, owner="first").read
    await theirs.ask("write", "lock", lease=LEASE)
    async with asyncio.timeout(BY_MESSAGE), asyncio.TaskGroup() as group:
        group.create_task(first.acquire(lease=LEASE))
        await until(lambda: waits_quietly(other, first))
        for each in (ours.read, another.read):
            group.create_task(each.acquire(lease=LEASE))
        await until(lambda: ours.read.statistics().parked == 2 and waits_quietly(locks, ours.read))
        await theirs.ask("write", "unlock")
    assert sum([holder.holds for holder in await ours.read.holders()]) == 3


@pytest.mark.parametrize("how", ["release", "force_release"])
@pytest.mark.parametrize("halves", IN_TURN, ids=" then ".join)
async def test_a_thread_is_woken(
    ours: AsyncReadWriteLock, other: LockClient, theirs: Theirs, halves: tuple[Half, Half], how: str
) -> None:
    has, asks = halves

    async def one() -> float:
        lease = await half_of(ours, has).acquire(lease=LEASE)
        waiting = theirs.post(asks, "lock", lease=LEASE)
        await until(theirs.redisson.parked, within=20)
        began = monotonic()
        if how == "release":
            await lease.release()
        else:
            assert await half_of(other.read_write_lock(NAME), has).force_release()
        got = await waiting
        if how != "release":
            with pytest.raises(LeaseLostError):
                await lease.release()
        await theirs.ask(asks, "unlock")
        return got.ended - began

    await soon(one)


async def test_all_threads_that_wait_to_read_are_woken(ours: AsyncReadWriteLock, theirs: Theirs) -> None:
    async def all_parked() -> bool:
        return all([await theirs.redisson.parked(number) for number in range(3)])

    lease = await ours.write.acquire(lease=LEASE)
    waiting = [theirs.post("read", "lock", thread=number, lease=LEASE) for number in range(3)]
    async with asyncio.timeout(BY_MESSAGE):
        await until(all_parked)
        await lease.release()
        await asyncio.gather(*waiting)
    assert len(await ours.read.holders()) == 3


async def test_a_thread_is_woken_when_the_last_reader_leaves(ours: AsyncReadWriteLock, theirs: Theirs) -> None:
    await theirs.ask("read", "lock", thread=2, lease=LEASE)
    lease = await ours.read.acquire(lease=LEASE)
    waiting = theirs.post("write", "lock")
    async with asyncio.timeout(BY_MESSAGE):
        await until(theirs.redisson.parked)
        await theirs.ask("read", "unlock", thread=2)
        assert await ours.read.held()
        assert not waiting.done()
        await lease.release()
        await waiting


async def test_a_thread_is_woken_by_a_task_that_goes_on_to_read(ours: AsyncReadWriteLock, theirs: Theirs) -> None:
    async def one() -> float:
        writing = await ours.write.acquire(lease=LEASE)
        reading = await ours.read.acquire(lease=LEASE)
        waiting = theirs.post("read", "lock", lease=LEASE)
        await until(theirs.redisson.parked, within=20)
        began = monotonic()
        await writing.release()
        got = await waiting
        reading.check()
        assert not await theirs.gets("write")
        await theirs.ask("read", "unlock")
        await reading.release()
        return got.ended - began

    await soon(one)


async def test_a_thread_is_woken_when_the_write_lease_of_a_task_that_reads_on_has_ended(
    ours: AsyncReadWriteLock, theirs: Theirs, redis: Redis
) -> None:
    """The next renewal of the reading hold wakes the thread."""

    async def over() -> bool:
        return len(await records(redis)) == 1

    writing = await ours.write.acquire(lease=SHORT)
    reading = await ours.read.acquire(lease=LEASE)
    waiting = theirs.post("read", "lock", lease=LEASE)
    await until(theirs.redisson.parked, within=20)
    await until(over)
    async with asyncio.timeout(BY_MESSAGE):
        await reading.renew()
        await waiting
    assert writing.lost.is_set()
    reading.check()
    assert not await theirs.gets("write")


async def test_a_thread_that_goes_on_to_read_tells_nobody_and_lets_tasks_read_all_the_same(
    locks: LockClient, other: LockClient, ours: AsyncReadWriteLock, theirs: Theirs
) -> None:
    """The next waiter looks every second, and tells the waiters of other clients."""
    for half in ("write", "read"):
        await theirs.ask(half, "lock", lease=LEASE)
    beside = other.read_write_lock(NAME, owner="beside")
    async with asyncio.timeout(BY_MESSAGE), asyncio.TaskGroup() as group:
        group.create_task(ours.read.acquire())
        await until(lambda: waits_quietly(locks, ours.read))
        group.create_task(beside.read.acquire())
        await until(lambda: waits_quietly(other, beside.read))
        await theirs.ask("write", "unlock")
    assert await theirs.has("read")


# Each hold lives for its own time.


@pytest.mark.parametrize(("has", "asks"), IN_TURN)
async def test_a_lease_of_a_thread_that_ends_lets_a_task_in(
    ours: AsyncReadWriteLock, theirs: Theirs, has: Half, asks: Half
) -> None:
    held = await theirs.post(has, "lock", lease=SHORT)
    async with asyncio.timeout(BY_MESSAGE), half_of(ours, asks) as lease:
        assert monotonic() - held.began > SHORT - 0.05
        with pytest.raises(RedissonError, match="IllegalMonitorState"):
            await theirs.ask(has, "unlock")
        lease.check()
        assert await half_of(ours, asks).held()


@pytest.mark.parametrize(("has", "asks"), IN_TURN)
async def test_a_lease_of_a_task_that_ends_lets_a_thread_in(
    ours: AsyncReadWriteLock, theirs: Theirs, has: Half, asks: Half
) -> None:
    asked = monotonic()
    lease = await half_of(ours, has).acquire(lease=SHORT)
    async with asyncio.timeout(BY_MESSAGE):
        got = await theirs.post(asks, "lock")
    assert got.ended - asked > SHORT - 0.05
    with pytest.raises(LeaseLostError):
        await lease.release()
    assert await theirs.has(asks)


@pytest.mark.parametrize("holds", [(1, 1), (1, 3), (2, 1), (2, 3)])
@pytest.mark.parametrize("task_first", [True, False], ids=["task first", "thread first"])
async def test_a_thread_that_stops_to_read_leaves_the_hold_of_a_task(
    ours: AsyncReadWriteLock, theirs: Theirs, redis: Redis, task_first: bool, holds: tuple[int, int]
) -> None:
    tasks_holds, threads_holds = holds

    async def reads() -> list[Lease]:
        return [await ours.read.acquire(lease=LEASE) for _ in range(tasks_holds)]

    leases = await reads() if task_first else []
    for _ in range(threads_holds):
        await theirs.ask("read", "lock", lease=60)
    leases = leases or await reads()
    for _ in range(threads_holds):
        await theirs.ask("read", "unlock")
        assert await lasts(redis) > 500
        assert await ours.read.hold_count() == tasks_holds
        assert not await theirs.gets("write")
    [left] = await records(redis)
    assert left > 500
    for lease in leases:
        assert not await theirs.gets("write")
        await lease.release()
    assert await nothing_left(redis)


@pytest.mark.parametrize("task_first", [True, False], ids=["task first", "thread first"])
async def test_a_task_that_stops_to_read_leaves_the_holds_of_a_thread(
    ours: AsyncReadWriteLock, another: AsyncReadWriteLock, theirs: Theirs, redis: Redis, task_first: bool
) -> None:
    lease = await ours.read.acquire(lease=2 * LEASE) if task_first else None
    for seconds in (60, LEASE, 120):
        await theirs.ask("read", "lock", lease=seconds)
    lease = lease or await ours.read.acquire(lease=2 * LEASE)
    await lease.release()
    assert await theirs.ask("read", "getHoldCount") == 3
    assert len(await records(redis)) == 3
    for most in (LEASE, LEASE, 60):
        assert most / 2 < await lasts(redis) <= most
        assert await another.write.try_lock() is None
        await theirs.ask("read", "unlock")
    assert await nothing_left(redis)


async def test_a_thread_whose_lease_ends_leaves_the_hold_of_a_task(
    ours: AsyncReadWriteLock, theirs: Theirs, redis: Redis
) -> None:
    """The ended hold keeps nobody out when the task leaves, so that another thread writes at once."""
    lease = await ours.read.acquire(lease=LEASE)
    await theirs.ask("read", "lock", lease=SHORT)
    waiting = theirs.post("write", "lock", thread=2, lease=60)
    await until(lambda: theirs.redisson.parked(2))

    async def over() -> bool:
        return len(await records(redis)) == 1

    await until(over)
    lease.check()
    assert len(await ours.read.holders()) == 1
    assert await lasts(redis) > 500
    async with asyncio.timeout(BY_MESSAGE):
        await lease.release()
        await waiting


async def test_a_task_whose_lease_ends_leaves_the_hold_of_a_thread(
    ours: AsyncReadWriteLock, another: AsyncReadWriteLock, theirs: Theirs, redis: Redis
) -> None:
    await theirs.ask("read", "lock", lease=LEASE)
    lease = await ours.read.acquire(lease=SHORT)
    await until(lambda: lease.remaining == 0)
    with pytest.raises(LeaseLostError):
        await lease.release()
    assert await theirs.has("read")
    assert await lasts(redis) > 500
    assert await another.write.try_lock() is None
    await another.read.acquire(lease=SHORT)

    async def over() -> bool:
        return len(await records(redis)) == 1

    await until(over)
    await theirs.ask("read", "unlock")
    assert await theirs.gets("write")


async def test_both_watchdogs_keep_readers(jvm: Service, server: Server, redis: Redis) -> None:
    theirs = Theirs(await jvm.connect(server.url, watchdog=RENEWED))
    async with LockClient.from_url(server.url, config=LockConfig(lease=RENEWED)) as locks:
        lock = locks.read_write_lock(NAME).read
        await theirs.ask("read", "lock")
        nested = 1 if jvm.version in FAILS_BESIDE_NESTED else 2
        leases = [await lock.acquire() for _ in range(nested)]
        refused = await theirs.ask("write", "tryLock", thread=2, wait=2.5 * RENEWED)
        assert not refused
        assert await theirs.has("read")
        assert len(await records(redis)) == 2
        await theirs.ask("read", "unlock")
        assert not await theirs.gets("write")
        await theirs.ask("read", "lock")
        for lease in leases:
            await lease.release()
        assert not await locks.read_write_lock(NAME).write.try_lock(1.5 * RENEWED)
        assert await theirs.has("read")
        await theirs.ask("read", "unlock")
        assert await nothing_left(redis)
    await theirs.redisson.shutdown()


async def test_the_watchdog_of_a_thread_beside_a_task_that_reads_twice(
    jvm: Service, server: Server, redis: Redis
) -> None:
    theirs = Theirs(await jvm.connect(server.url, watchdog=RENEWED))
    async with LockClient.from_url(server.url, config=LockConfig(lease=RENEWED)) as locks:
        lock = locks.read_write_lock(NAME).read
        async with lock, lock:
            await theirs.ask("read", "lock")
            assert not await theirs.ask("write", "tryLock", thread=2, wait=1.5 * RENEWED)
            assert len(await records(redis)) == (1 if jvm.version in FAILS_BESIDE_NESTED else 2)
    await theirs.redisson.shutdown()


async def test_both_watchdogs_keep_writers(jvm: Service, server: Server, redis: Redis) -> None:
    theirs = Theirs(await jvm.connect(server.url, watchdog=RENEWED))
    async with LockClient.from_url(server.url, config=LockConfig(lease=RENEWED)) as locks:
        lock = locks.read_write_lock(NAME)
        async with lock.write:
            assert not await theirs.ask("read", "tryLock", wait=1.5 * RENEWED)
            async with lock.read:
                pass
            assert not await theirs.ask("read", "tryLock", wait=1.5 * RENEWED)
        await theirs.ask("write", "lock")
        assert await lock.read.try_lock(1.5 * RENEWED) is None
        assert await theirs.has("write")
        await theirs.ask("write", "unlock")
        assert await nothing_left(redis)
    await theirs.redisson.shutdown()


async def test_a_jvm_that_died_reading_leaves_the_hold_of_a_task(jvm: Service, server: Server, redis: Redis) -> None:
    theirs = Theirs(await jvm.connect(server.url, watchdog=RENEWED))
    async with LockClient.from_url(server.url, config=LockConfig(lease=RENEWED)) as locks:
        await theirs.ask("read", "lock")
        async with locks.read_write_lock(NAME).read as lease:
            await theirs.redisson.shutdown()
            renewals = locks.statistics().renewals

            async def over() -> bool:
                return len(await records(redis)) == 1 and locks.statistics().renewals > renewals + 3

            await until(over, within=30)
            lease.check()
            assert await locks.read_write_lock(NAME, owner="another").write.try_lock() is None
        assert await nothing_left(redis)


async def test_the_watchdog_of_a_thread_beside_a_longer_lease_of_a_task(
    jvm: Service, server: Server, ours: AsyncReadWriteLock, redis: Redis
) -> None:
    theirs = Theirs(await jvm.connect(server.url, watchdog=RENEWED))
    lease = await ours.read.acquire(lease=LEASE)
    await theirs.ask("read", "lock")

    async def renewed() -> bool:
        return await lasts(redis) <= RENEWED

    await until(renewed)
    longest, *_ = await records(redis)
    await theirs.ask("read", "unlock")
    if jvm.version in TO_EACH_ITS_OWN:
        assert longest > 500
        assert await lasts(redis) > 500
        await lease.release()
    else:
        assert longest <= RENEWED
        await freed(redis, NAME)
        with pytest.raises(LeaseLostError):
            await lease.release()
    await theirs.redisson.shutdown()


async def test_a_jvm_that_dies_beside_a_longer_lease_of_a_task(
    jvm: Service, server: Server, ours: AsyncReadWriteLock, another: AsyncReadWriteLock, redis: Redis
) -> None:
    """The JVM's watchdog has shortened the lock, and nobody gives the hold of the JVM back."""
    theirs = Theirs(await jvm.connect(server.url, watchdog=RENEWED))
    lease = await ours.read.acquire(lease=LEASE)
    await theirs.ask("read", "lock")

    async def renewed() -> bool:
        return await lasts(redis) <= RENEWED

    await until(renewed)
    await theirs.redisson.shutdown()
    await freed(redis, NAME)
    async with asyncio.timeout(BY_MESSAGE), another.write:
        with pytest.raises(LeaseLostError):
            await lease.release()
        assert await another.write.held()


# Releases by force.


@pytest.mark.parametrize("half", HALVES)
async def test_force_unlock_of_redisson_frees_one_half_from_tasks(
    ours: AsyncReadWriteLock, theirs: Theirs, half: Half
) -> None:
    leases = [await half_of(ours, half).acquire(lease=LEASE) for _ in range(2)]
    assert not await theirs.ask("write" if half == "read" else "read", "forceUnlock")
    assert await half_of(ours, half).hold_count() == 2
    assert await theirs.ask(half, "forceUnlock")
    assert not await theirs.ask(half, "forceUnlock")
    assert not await half_of(ours, half).locked()
    await theirs.ask("write", "lock", lease=LEASE)
    for lease in leases:
        with pytest.raises(LeaseLostError):
            await lease.release()
    assert await theirs.has("write")


async def test_force_unlock_of_redisson_frees_readers_on_both_sides(
    ours: AsyncReadWriteLock, another: AsyncReadWriteLock, theirs: Theirs
) -> None:
    lease = await ours.read.acquire(lease=LEASE)
    await theirs.ask("read", "lock", lease=LEASE)
    assert await theirs.ask("read", "forceUnlock", thread=2)
    assert not await theirs.has("read")
    async with another.write:
        with pytest.raises(LeaseLostError):
            await lease.release()
        assert await another.write.held()


@pytest.mark.parametrize("half", HALVES)
async def test_force_release_of_a_task_frees_one_half_from_threads(
    ours: AsyncReadWriteLock, theirs: Theirs, redis: Redis, half: Half
) -> None:
    for _ in range(3):
        await theirs.ask(half, "lock", lease=LEASE)
    assert not await half_of(ours, "write" if half == "read" else "read").force_release()
    assert await theirs.ask(half, "getHoldCount") == 3
    assert await half_of(ours, half).force_release()
    assert not await half_of(ours, half).force_release()
    assert not await theirs.has(half)
    assert await nothing_left(redis)
    async with ours.write:
        with pytest.raises(RedissonError, match="IllegalMonitorState"):
            await theirs.ask(half, "unlock")


async def test_force_release_of_a_task_leaves_the_other_half_of_a_thread(
    ours: AsyncReadWriteLock, theirs: Theirs
) -> None:
    for half in HALVES[::-1]:
        await theirs.ask(half, "lock", lease=LEASE)
    assert await ours.read.force_release()
    assert (await theirs.has("write"), await theirs.has("read")) == (True, False)
    await theirs.ask("read", "lock", lease=LEASE)
    assert await ours.write.force_release()
    assert (await theirs.has("write"), await theirs.has("read")) == (False, True)
    async with ours.read:
        pass
    await theirs.ask("read", "unlock")
    assert await theirs.gets("write")
