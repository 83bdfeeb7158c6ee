"""Reading and writing: many at a time or one alone, in one client and in several."""

import asyncio

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
    LockTimeoutError,
    NotALockError,
    NotHeldError,
)
from tests.support.observe import renewed, until
from tests.support.waiters import waits_quietly

NAME = "report"
Half = AsyncReadLock | AsyncWriteLock


@pytest.fixture
def mine(locks: LockClient) -> AsyncReadWriteLock:
    return locks.read_write_lock(NAME)


@pytest.fixture
def theirs(other: LockClient) -> AsyncReadWriteLock:
    """The same lock in another process."""
    return other.read_write_lock(NAME)


class People:
    """Tasks that read or write until they are told to stop, and note in which order they began."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._gates: dict[str, asyncio.Event] = {}

    def start(self, lock: Half, name: str) -> None:
        self._gates[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._work(lock, name), name=name)

    async def begun(self, *names: str) -> None:
        """Return when these tasks have begun; none of them has failed."""
        await until(lambda: set(names) <= set(self.order) or any(self.tasks[name].done() for name in names))
        assert set(names) <= set(self.order)

    async def stop(self, *names: str) -> None:
        for name in names:
            self._gates[name].set()
        await asyncio.gather(*(self.tasks[name] for name in names))

    async def _work(self, lock: Half, name: str) -> None:
        async with lock as lease:
            self.order.append(name)
            await self._gates[name].wait()
            lease.check()


@pytest.fixture
def people() -> People:
    return People()


async def parked(lock: Half, count: int) -> None:
    """Return when that many tasks wait for this half in its client, and the server has refused the first of them."""
    await until(lambda: lock.statistics().parked == count and lock.statistics().subscriptions == 1)


async def has_a_turn(redis: Redis) -> None:
    """Return when a waiter keeps others from overtaking."""

    async def kept() -> bool:
        return bool(await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0"))

    await until(kept)


# Many read, or one writes.


async def test_readers_of_all_clients_meet(mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock) -> None:
    """When a writer has left, all readers that waited for it are let in together."""
    everybody = asyncio.Barrier(41)

    async def meet(lock: AsyncReadWriteLock) -> None:
        async with lock.read:
            await everybody.wait()

    async with mine.write:
        tasks = [asyncio.create_task(meet(lock)) for lock in (mine, theirs) for _ in range(20)]
        await parked(mine.read, 20)
        await parked(theirs.read, 20)
    await asyncio.wait_for(everybody.wait(), 20)
    await asyncio.gather(*tasks)
    assert not await mine.read.locked()


async def test_readers_that_are_woken_ask_together(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, people: People, locks: LockClient
) -> None:
    writing = await theirs.write.acquire()
    names = [f"{number}" for number in range(20)]
    for name in names:
        people.start(mine.read, name)
    await parked(mine.read, 20)
    await until(lambda: waits_quietly(locks, mine.read))
    before = locks.statistics()
    await writing.release()
    await people.begun(*names)
    after = locks.statistics()
    assert before.commands + 20 <= after.commands <= before.commands + 23, "each reader asks once"
    assert after.batches <= before.batches + 5
    await people.stop(*names)


# Turns.


async def test_readers_that_come_do_not_starve_a_writer(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, people: People, redis: Redis
) -> None:
    """No reader that comes after the writer is let in before it, however many come."""
    people.start(mine.read, "early")
    await people.begun("early")
    people.start(theirs.write, "writer")
    await has_a_turn(redis)
    late = [f"late {number}" for number in range(10)]
    for number, name in enumerate(late):
        people.start((mine if number % 2 else theirs).read, name)
    await parked(mine.read, 5)
    await parked(theirs.read, 5)
    assert await mine.read.try_lock() is None
    await people.stop("early")
    await people.begun("writer")
    assert people.order == ["early", "writer"]
    await people.stop("writer")
    await people.begun(*late)
    await people.stop(*late)


@pytest.mark.parametrize("local", [True, False])
async def test_writers_that_come_do_not_starve_a_reader(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, people: People, redis: Redis, local: bool
) -> None:
    people.start(mine.write, "early")
    await people.begun("early")
    reads = (mine if local else theirs).read
    people.start(reads, "reader")
    await has_a_turn(redis)
    late = [f"late {number}" for number in range(10)]
    for name in late:
        people.start(mine.write, name)
    await parked(mine.write, 10)
    await people.stop("early")
    await people.begun("reader")
    assert people.order == ["early", "reader"]
    await people.stop("reader")
    for number in range(10):
        await until(lambda number=number: len(people.order) == number + 3)
        await people.stop(people.order[-1])


async def test_a_waiter_with_a_turn_asks_again_in_time_though_others_of_its_client_are_refused(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, people: People, locks: LockClient, redis: Redis
) -> None:
    """The waiters are told how long the lease lasts; if they waited for an hour they would be late."""
    await theirs.write.acquire(lease=3600)
    for name in ("next", "another"):
        people.start(mine.read, name)
    await has_a_turn(redis)
    await parked(mine.read, 2)
    asked = locks.statistics().commands
    await mine.read.try_lock()
    await until(lambda: locks.statistics().commands >= asked + 4, within=20)
    await theirs.write.release()
    await people.begun("next", "another")
    await people.stop("next", "another")


async def test_a_reader_may_nest_while_a_writer_waits(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, people: People, redis: Redis
) -> None:
    async with mine.read:
        people.start(theirs.write, "writer")
        await has_a_turn(redis)
        async with mine.read.hold(wait=10) as lease:
            assert lease.holds == 2
    await people.begun("writer")
    await people.stop("writer")


@pytest.mark.parametrize("leaves", ["cancelled", "wait"])
async def test_a_writer_that_waits_no_longer_lets_readers_in(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, people: People, redis: Redis, leaves: str
) -> None:
    async with mine.read:
        if leaves == "cancelled":
            people.start(theirs.write, "writer")
            writer = people.tasks["writer"]
        else:
            writer = asyncio.create_task(_tries(theirs.write, 1))
        await has_a_turn(redis)
        people.start(mine.read, "reader")
        await parked(mine.read, 1)
        if leaves == "cancelled":
            writer.cancel()
        await asyncio.wait([writer])
        await people.begun("reader")
        await people.stop("reader")


async def _tries(lock: Half, wait: float) -> None:
    assert await lock.try_lock(wait) is None


# One owner.


async def test_a_writer_may_read_and_go_on_reading(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, people: People
) -> None:
    """Readers that waited are let in at once, other writers when the reading has stopped."""
    people.start(mine.write, "early")
    await people.begun("early")
    await people.stop("early")
    writing = await mine.write.acquire()
    people.start(theirs.read, "reader")
    await parked(theirs.read, 1)
    async with mine.read.hold(wait=10) as reading:
        assert reading.token > writing.token
        assert (await mine.write.held(), await mine.read.held()) == (True, True)
        await mine.write.release()
        await people.begun("reader")
        assert await theirs.write.try_lock() is None
        reading.check()
        await people.stop("reader")
    assert not await theirs.read.locked()


async def test_a_writer_reads_at_once_though_others_of_its_client_wait_to_read(
    mine: AsyncReadWriteLock, people: People
) -> None:
    async with mine.write:
        people.start(mine.read, "reader")
        await parked(mine.read, 1)
        async with mine.read.hold(wait=10), mine.write.hold(wait=10):
            assert await mine.write.hold_count() == 2
    await people.begun("reader")
    await people.stop("reader")


@pytest.mark.parametrize("owner", [None, "job"])
async def test_a_reader_is_refused_to_write_at_once(locks: LockClient, owner: str | None) -> None:
    lock = locks.read_write_lock(NAME, owner=owner)
    async with lock.read as lease:
        for call in (lock.write.acquire(), lock.write.try_lock(), lock.write.__aenter__(), _held(lock.write)):
            with pytest.raises(RuntimeError, match="its reader cannot get the write lock"):
                await call
        lease.check()
    async with lock.write, lock.read, lock.write:
        pass


async def test_an_owner_that_waits_to_write_is_refused_to_read_at_once(
    locks: LockClient, mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock
) -> None:
    """Two tasks act as one owner: otherwise the one that writes would wait for the one that reads."""
    named = locks.read_write_lock(NAME, owner="two tasks")
    people = People()
    async with theirs.read:
        people.start(named.write, "writer")
        await until(lambda: waits_quietly(locks, named.write))
        for call in (named.read.acquire(), named.read.try_lock(), _held(named.read)):
            with pytest.raises(RuntimeError, match="'two tasks' waits to write in another task"):
                await call
        assert named.statistics() == named.write.statistics()
    await people.begun("writer")
    async with named.read, named.write:
        pass
    await people.stop("writer")
    assert not await mine.locked()


async def test_an_owner_that_reads_while_it_waits_to_write_is_refused_to_write(
    locks: LockClient, theirs: AsyncReadWriteLock
) -> None:
    """The owner waits to read first, so that nothing can be known when it begins to wait to write."""
    named = locks.read_write_lock(NAME, owner="two tasks")
    writing = await theirs.write.acquire()
    reader, writer = (asyncio.create_task(_kept(half)) for half in (named.read, named.write))
    await until(lambda: waits_quietly(locks, named.read) and waits_quietly(locks, named.write))
    await writing.release()
    with pytest.raises(RuntimeError, match="its reader cannot get the write lock"):
        await asyncio.wait_for(writer, 20)
    await (await reader).release()
    assert await theirs.write.try_lock() is not None


async def _kept(half: Half) -> Lease:
    return await half.acquire(lease=60)


async def test_both_halves_are_asked_and_freed_as_one(mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock) -> None:
    assert (await mine.locked(), await mine.holders(), await mine.force_release()) == (False, [], False)
    async with theirs.read:
        assert await mine.locked()
        assert [holder.holds for holder in await mine.holders()] == [1]
    writing, reading = await mine.write.acquire(), await mine.read.acquire()
    assert (mine.statistics().held, mine.statistics().subscriptions) == (2, 0)
    assert [holder.holds for holder in await theirs.holders()] == [1, 1]
    people = People()
    people.start(theirs.read, "reader")
    people.start(theirs.write, "writer")
    await until(lambda: theirs.statistics().parked == 2)
    assert theirs.statistics().subscriptions == 1
    assert await mine.force_release()
    assert [lease.lost.is_set() for lease in (writing, reading)] == [True, True]
    await until(lambda: len(people.order) == 1)
    await people.stop(people.order[0])
    await until(lambda: len(people.order) == 2)
    await people.stop(people.order[1])
    assert not await mine.locked()


async def _held(lock: Half) -> None:
    async with lock.hold(wait=10):
        pass


async def test_each_of_many_readers_is_found(locks: LockClient) -> None:
    """An answer of the server names a thousand holders at most."""
    many = 1100
    readers = [locks.read_write_lock("many", owner=f"reader {number}").read for number in range(many)]
    leases = [reader.acquire(lease=600 if number == many // 2 else 60) for number, reader in enumerate(readers)]
    await asyncio.gather(*leases)
    assert all(await asyncio.gather(*(reader.held() for reader in readers[::100])))
    assert sum(await asyncio.gather(*(reader.hold_count() for reader in readers[-50:]))) == 50
    assert await readers[0].remaining() > 60  # type: ignore[operator]


async def test_a_release_without_a_hold_names_the_holder(mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock) -> None:
    with pytest.raises(NotHeldError, match="nobody holds it"):
        await mine.read.release()
    async with theirs.read:
        with pytest.raises(NotHeldError, match="owner '1' of client") as refused:
            await mine.read.release()
        assert refused.value.holder is not None
        with pytest.raises(NotHeldError, match="nobody holds it"):
            await mine.write.release()


# Waits that end.


async def test_a_wait_that_ends_names_the_task_of_the_client_that_holds_the_lock(
    mine: AsyncReadWriteLock, people: People
) -> None:
    people.start(mine.read, "the reader")
    await people.begun("the reader")
    with pytest.raises(LockTimeoutError, match="'the reader'"):
        async with mine.write.hold(wait=0.01):
            pass
    await people.stop("the reader")
    people.start(mine.write, "the writer")
    await people.begun("the writer")
    for half in (mine.read, mine.write):
        with pytest.raises(LockTimeoutError, match="'the writer'"):
            async with half.hold(wait=0.01):
                pass
    await people.stop("the writer")


# Lost.


async def test_a_reader_that_died_keeps_writers_out_for_its_own_lease_only(
    mine: AsyncReadWriteLock, theirs: AsyncReadWriteLock, redis: Redis
) -> None:
    """The reader beside it is renewed, and keeps the key."""

    async def is_over() -> bool:
        return len(await redis.keys("*:rwlock_timeout:*")) == 1

    async with mine.read:
        await theirs.read.acquire(lease=0.5)
        await until(is_over)
    assert await mine.write.try_lock() is not None


@pytest.mark.parametrize("gone", ["lock", "record"])
async def test_a_hold_of_which_a_part_is_gone_is_lost(redis: Redis, locks: LockClient, gone: str) -> None:
    """Redisson deletes such a part when it takes the lock away by force, and so may a user who deletes keys."""
    lease = await locks.read_write_lock(NAME).read.acquire(lease=30)
    [record] = [key async for key in redis.scan_iter("*:rwlock_timeout:1")]
    await redis.delete(NAME if gone == "lock" else record)
    with pytest.raises(LeaseLostError):
        await lease.renew()
    with pytest.raises(LeaseLostError):
        await lease.release()


async def test_one_half_is_freed_by_force_and_the_other_left_alone(
    locks: LockClient, theirs: AsyncReadWriteLock
) -> None:
    job = locks.read_write_lock(NAME, owner="job")
    writing, reading = await job.write.acquire(), await job.read.acquire()
    assert await theirs.read.force_release()
    assert (await job.read.held(), await job.write.held()) == (False, True)
    with pytest.raises(LeaseLostError, match="force"):
        await reading.release()
    reading = await job.read.acquire()
    assert await theirs.write.force_release()
    assert (await job.read.held(), await job.write.held()) == (True, False)
    with pytest.raises(LeaseLostError, match="force"):
        await writing.release()
    async with theirs.read:
        reading.check()
    await reading.release()


# Names and texts.


async def test_a_foreign_key_is_left_alone(mine: AsyncReadWriteLock, locks: LockClient, redis: Redis) -> None:
    plain = locks.lock(NAME)
    for half in (mine.read, mine.write):
        async with plain:
            for call in (half.acquire(), half.locked(), half.force_release()):
                with pytest.raises(NotALockError):
                    await call
        async with half:
            for call in (plain.acquire(), plain.locked(), plain.force_release()):
                with pytest.raises(NotALockError):
                    await call
    await redis.set(NAME, "text")
    with pytest.raises(NotALockError):
        await mine.read.acquire()
    assert await redis.get(NAME) == b"text"


def test_owners_that_would_look_like_writers_are_refused(locks: LockClient) -> None:
    for owner in ("x:write", ":write"):
        with pytest.raises(ValueError, match="must not end with ':write'"):
            locks.read_write_lock(NAME, owner=owner)
    with pytest.raises(ValueError, match="owner"):
        locks.read_write_lock(NAME, owner="")
    with pytest.raises(TypeError, match="name"):
        locks.read_write_lock(1)  # type: ignore[arg-type]


async def test_statistics_are_of_the_half(mine: AsyncReadWriteLock, people: People) -> None:
    assert mine.read.statistics().held == 0
    async with mine.write:
        people.start(mine.read, "reader")
        await parked(mine.read, 1)
        assert (mine.write.statistics().held, mine.write.statistics().parked) == (1, 0)
        assert mine.read.statistics().held == 0
    await people.begun("reader")
    assert (mine.write.statistics().held, mine.read.statistics().held) == (0, 1)
    await people.stop("reader")


async def test_readers_that_are_freed_by_force_are_no_loss_for_a_writer_that_reads(mine: AsyncReadWriteLock) -> None:
    writes, reads = await mine.write.acquire(), await mine.read.acquire()
    assert await mine.read.force_release()
    assert (reads.lost.is_set(), writes.lost.is_set()) == (True, False)
    await writes.release()


async def test_a_writer_that_goes_on_to_read_is_renewed(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=1.5, renew_interval=0.1)) as locks:
        lock = locks.read_write_lock(NAME, owner="me")
        writing, reading = await lock.write.acquire(), await lock.read.acquire()
        await renewed(locks, 40, within=40)
        assert 0 < (await lock.write.remaining() or 0) <= 1.5
        await writing.release()
        await renewed(locks, 20, within=40)
        assert 0 < (await lock.read.remaining() or 0) <= 1.5
        reading.check()
        await reading.release()
    assert not await redis.exists(NAME)
