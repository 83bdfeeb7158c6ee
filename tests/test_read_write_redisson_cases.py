"""What Redisson's own tests ask of its read-write lock, asked of ours; docs/reference/redisson.md has the list."""

import asyncio
from contextlib import AsyncExitStack
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import AsyncReadLock, AsyncReadWriteLock, AsyncWriteLock, LeaseLostError, LockClient, NotHeldError
from aiolock._embedded_server import Server
from tests.support.holding import lock_client
from tests.support.observe import renewed, until

NAME = "orders"
HALVES = ("read", "write")
SOON = 20  # Seconds: sooner than any lease ends that is not meant to.
LEASE = 600


@pytest.fixture
def mine(locks: LockClient) -> AsyncReadWriteLock:
    """Its holds are of no task, so that any may give them back."""
    return locks.read_write_lock(NAME, owner="me")


@pytest.fixture
def hers(locks: LockClient) -> AsyncReadWriteLock:
    return locks.read_write_lock(NAME, owner="she")


@pytest.fixture
def theirs(other: LockClient) -> AsyncReadWriteLock:
    return other.read_write_lock(NAME, owner="they")


def half_of(lock: AsyncReadWriteLock, half: str) -> AsyncReadLock | AsyncWriteLock:
    return lock.read if half == "read" else lock.write


# One owner.


@pytest.mark.parametrize("half", HALVES)
async def test_hold_count_follows_every_acquire_and_release(mine: AsyncReadWriteLock, half: str) -> None:
    lock = half_of(mine, half)
    counts = [await lock.hold_count()]
    for call in (lock.acquire, lock.release, lock.acquire, lock.acquire, lock.release, lock.release):
        await call()
        counts.append(await lock.hold_count())
    assert counts == [0, 1, 0, 1, 2, 1, 0]


async def test_locked_is_about_anyone_and_held_about_the_owner(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock
) -> None:
    for lock, others in ((mine.read, theirs.read), (mine.write, theirs.write)):
        for holds in (False, True, False):
            if holds:
                await lock.acquire()
            assert (await lock.locked(), await lock.held()) == (holds, holds)
            assert (await others.locked(), await others.held()) == (holds, False)
            if holds:
                await lock.release()


async def test_release_of_what_another_reads(mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock) -> None:
    async with mine.read:
        with pytest.raises(NotHeldError):
            await theirs.read.release()
        assert await mine.read.held()


async def test_a_shorter_nested_lease_shortens_nothing(mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock) -> None:
    await mine.write.acquire(lease=LEASE)
    await mine.write.acquire(lease=1)
    assert (await mine.write.remaining() or 0) > LEASE / 2
    assert await theirs.write.try_lock() is None


async def test_a_longer_nested_lease_lasts_when_it_is_left(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock
) -> None:
    outer = await mine.read.acquire(lease=60)
    inner = await mine.read.acquire(lease=LEASE)
    await inner.release()
    assert (await mine.read.remaining() or 0) > LEASE / 2
    assert await theirs.write.try_lock() is None
    await outer.release()
    assert await theirs.write.try_lock() is not None


# Who writes and reads.


async def test_a_writer_alone_does_not_read(mine: AsyncReadWriteLock) -> None:
    async with mine.write:
        assert not await mine.read.locked()
        async with mine.read:
            assert await mine.read.locked()
            assert await mine.write.locked()
        assert (await mine.read.locked(), await mine.write.locked()) == (False, True)
    assert not await mine.write.locked()


async def test_a_writer_goes_on_to_read_and_cannot_write_again_before_it_has_stopped(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock
) -> None:
    for half in (mine.write, mine.write, mine.read):
        await half.acquire()
    for _ in range(2):
        assert await theirs.read.try_lock() is None
        await mine.write.release()
    async with theirs.read:
        assert not await mine.write.locked()
    with pytest.raises(RuntimeError, match="would wait for itself"):
        await mine.write.try_lock()
    await mine.read.release()
    async with mine.write:
        assert await mine.write.held()


async def test_a_writer_waits_for_all_who_read(
    mine: AsyncReadWriteLock, hers: AsyncReadWriteLock, theirs: AsyncReadWriteLock
) -> None:
    assert not await mine.read.force_release()
    await mine.read.acquire(lease=LEASE)
    await hers.read.acquire(lease=LEASE)
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        writing = group.create_task(theirs.write.acquire())
        await until(lambda: theirs.write.statistics().parked == 1)
        await mine.read.release()
        assert await hers.read.locked()
        assert not writing.done()
        await hers.read.release()
    assert (await theirs.write.held(), await mine.read.locked()) == (True, False)


async def test_each_half_is_freed_by_force_alone(mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock) -> None:
    for half, another in ((mine.read, theirs.write), (mine.write, theirs.read)):
        lease = await half.acquire(lease=LEASE)
        assert not await another.force_release()
        assert await half.locked()
        assert await half_of(theirs, "read" if half is mine.read else "write").force_release()
        assert not await half.locked()
        with pytest.raises(LeaseLostError):
            await lease.release()


async def test_all_who_wait_to_read_are_inside_together(locks: LockClient, mine: AsyncReadWriteLock) -> None:
    lock = locks.read_write_lock(NAME).read
    together = asyncio.Barrier(20)

    async def reads() -> None:
        async with lock:
            await together.wait()

    writing = await mine.write.acquire(lease=LEASE)
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(reads())
        await until(lambda: lock.statistics().parked == 20)
        await writing.release()


# How long it lasts.


async def test_a_writer_waits_for_the_longest_lease_of_those_who_read(
    mine: AsyncReadWriteLock, hers: AsyncReadWriteLock, theirs: AsyncReadWriteLock
) -> None:
    began = monotonic()
    await mine.read.acquire(lease=1.5)
    await hers.read.acquire(lease=0.3)
    async with asyncio.timeout(SOON), theirs.write:
        assert monotonic() - began > 1.45


async def test_a_reader_that_leaves_takes_its_longer_lease_along(
    mine: AsyncReadWriteLock, hers: AsyncReadWriteLock, theirs: AsyncReadWriteLock
) -> None:
    await mine.read.acquire(lease=1)
    async with hers.read.hold(lease=LEASE):
        pass
    async with asyncio.timeout(SOON), theirs.write:
        assert not await mine.read.locked()


async def test_all_who_wait_to_read_come_in_when_the_lease_of_a_writer_ends(
    mine: AsyncReadWriteLock, hers: AsyncReadWriteLock, theirs: AsyncReadWriteLock
) -> None:
    began = monotonic()
    await mine.write.acquire(lease=1)
    async with asyncio.timeout(SOON), asyncio.TaskGroup() as group:
        for each in (hers, theirs):
            group.create_task(each.read.acquire())
    assert monotonic() - began > 0.95
    assert len(await mine.read.holders()) == 2


@pytest.mark.parametrize("half", HALVES)
async def test_a_late_release_is_told(mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, half: str) -> None:
    lease = await half_of(mine, half).acquire(lease=0.5)
    async with asyncio.timeout(SOON), half_of(theirs, half):
        await until(lambda: lease.remaining == 0)
        with pytest.raises(LeaseLostError):
            await lease.release()
        assert await half_of(theirs, half).held()


async def test_a_client_that_is_closed_gives_both_halves_back(redis: Redis, theirs: AsyncReadWriteLock) -> None:
    async with LockClient(redis) as closing:
        mine = closing.read_write_lock(NAME, owner="me")
        for half in (mine.write, mine.read):
            await half.acquire(lease=LEASE)
    assert await theirs.write.try_lock() is not None


@pytest.mark.slow
async def test_fifty_who_read_are_each_renewed(server: Server, redis: Redis) -> None:
    async with lock_client(server.url, lease=3) as locks, AsyncExitStack() as stack:
        readers = [locks.read_write_lock(NAME, owner=f"reader {number}").read for number in range(50)]
        leases = [await stack.enter_async_context(each) for each in readers]
        await renewed(locks, 50 * 4, within=40)  # Four times each: for longer than a lease.
        assert len(await readers[0].holders()) == 50
        for lease in leases:
            lease.check()
    assert not await redis.exists(NAME)


@pytest.mark.slow
async def test_a_writer_that_goes_on_to_read_is_renewed(server: Server, redis: Redis) -> None:
    async with lock_client(server.url, lease=3) as locks:
        lock = locks.read_write_lock(NAME, owner="me")
        writing, reading = await lock.write.acquire(), await lock.read.acquire()
        await renewed(locks, 8, within=40)
        assert 0 < (await lock.write.remaining() or 0) <= 3
        await writing.release()
        await renewed(locks, 4, within=40)
        assert 0 < (await lock.read.remaining() or 0) <= 3
        reading.check()
        await reading.release()
    assert not await redis.exists(NAME)


@pytest.mark.slow
@pytest.mark.parametrize(("owners", "holds"), [(1, 1), (20, 3)])
async def test_who_crashed_reading_is_kept_alive_by_no_other_reader(
    server: Server, mine: AsyncReadWriteLock, locks: LockClient, owners: int, holds: int
) -> None:
    for number in range(owners):
        for _ in range(holds):
            await locks.read_write_lock(NAME, owner=f"dead {number}").read.acquire(lease=3)  # Whom nobody renews.
    async with lock_client(server.url, lease=3) as living:
        async with living.read_write_lock(NAME).read as lease:

            async def alone() -> bool:
                return len(await mine.read.holders()) == 1

            await renewed(living, 1)
            await until(alone, within=SOON)
            lease.check()
            assert await mine.write.remaining() is None
        assert await living.read_write_lock(NAME).write.try_lock() is not None


# Many.


@pytest.mark.parametrize(
    ("clients", "tasks", "turns"), [(1, 15, 1), (8, 1, 20), (50, 1, 1)], ids=["one client", "loops", "many clients"]
)
async def test_who_writes_is_alone_and_all_get_their_turn(redis: Redis, clients: int, tasks: int, turns: int) -> None:
    inside = {"read": 0, "write": 0}
    visits = 0

    async def work(client: LockClient, number: int) -> None:
        nonlocal visits
        for turn in range(turns):
            half = HALVES[(number + turn) % 2]
            async with half_of(client.read_write_lock(NAME), half):
                inside[half] += 1
                assert inside["write"] == 0 or inside == {"read": 0, "write": 1}
                await asyncio.sleep(0.001)
                inside[half] -= 1
                visits += 1

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for number in range(clients):
            client = await stack.enter_async_context(LockClient(redis))
            for task in range(tasks):
                group.create_task(work(client, number + task))
    assert visits == clients * tasks * turns
