"""A semaphore that counts: a limit of holders at once, without their names."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import (
    Acquired,
    AsyncCountingSemaphore,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    Lost,
    Orphaned,
    Released,
)
from tests.support.inside import block_of, session_of
from tests.support.observe import all_parked, until
from tests.support.waiters import waits_quietly

NAME = "places"


@pytest.fixture
def two(locks: LockClient) -> AsyncCountingSemaphore:
    """Two permits."""
    return locks.counting_semaphore(NAME, 2)


@pytest.fixture
def theirs(other: LockClient) -> AsyncCountingSemaphore:
    """The same semaphore in another process."""
    return other.counting_semaphore(NAME, 2)


# The limit of holders.


async def test_acquired_in_one_task_and_released_in_another(two: AsyncCountingSemaphore) -> None:
    """A task that consists of the acquire may acquire permits, though it may not own a lock."""
    await asyncio.create_task(two.acquire())
    await asyncio.wait_for(asyncio.gather(two.acquire()), 10)
    assert await two.available() == 0
    await asyncio.create_task(two.release(2))
    assert await two.available() == 2


async def test_a_permit_outlives_its_task_and_its_client(redis: Redis, theirs: AsyncCountingSemaphore) -> None:
    async with LockClient(redis) as gone:
        await gone.counting_semaphore(NAME, 2).acquire()
    assert await theirs.available() == 1


async def test_a_bare_release_hands_off_to_a_waiter(two: AsyncCountingSemaphore, locks: LockClient) -> None:
    await two.acquire(2)
    waiter = asyncio.create_task(two.acquire())
    await all_parked(locks, 1)
    await until(lambda: waits_quietly(locks, block_of(two)))
    before = locks.statistics()
    await two.release()
    await asyncio.wait_for(waiter, 10)
    after = locks.statistics()
    assert (after.hand_offs - before.hand_offs, after.batches - before.batches) == (1, 1)


# The number of permits.


async def test_a_waiter_for_several_is_not_overtaken_by_one_behind_it(
    two: AsyncCountingSemaphore, theirs: AsyncCountingSemaphore, locks: LockClient
) -> None:
    """A grant that leaves too few for the next waiter lets nobody behind it try."""
    await theirs.acquire(2)
    tasks = []
    for permits in (1, 3, 1):
        tasks.append(asyncio.create_task(two.acquire(permits)))
        await all_parked(locks, len(tasks))
    first, several, behind = tasks
    await until(lambda: waits_quietly(locks, block_of(two)))
    await theirs.release(3)
    await first
    await until(lambda: waits_quietly(locks, block_of(two)))
    await theirs.release()
    await asyncio.wait_for(several, 10)
    assert not behind.done()
    await two.release()
    await behind


async def test_waiters_do_not_ask_for_permits_that_others_get(
    two: AsyncCountingSemaphore, theirs: AsyncCountingSemaphore, locks: LockClient
) -> None:
    """Each of several grants leaves permits, but the last one leaves none."""
    await theirs.acquire(2)
    waiters = [asyncio.create_task(two.acquire()) for _ in range(17)]
    await all_parked(locks, len(waiters))
    await until(lambda: waits_quietly(locks, block_of(two)))
    before = locks.statistics().commands
    await theirs.release(8)
    await until(lambda: sum(waiter.done() for waiter in waiters) == 8)
    await until(lambda: waits_quietly(locks, block_of(two)))
    # If the answers come one by one, the next waiter tries once.
    assert locks.statistics().commands - before <= 8 + 1
    await theirs.release(9)
    await asyncio.wait_for(asyncio.gather(*waiters), 10)


async def test_set_once(two: AsyncCountingSemaphore, theirs: AsyncCountingSemaphore) -> None:
    assert await two.try_set_permits(4)
    assert not await theirs.try_set_permits(9)
    assert await two.available() == 4


async def test_drained(two: AsyncCountingSemaphore, locks: LockClient) -> None:
    assert await two.drain() == 2
    assert await two.drain() == 0
    await two.add_permits(-1)
    assert (await two.drain(), await two.available()) == (0, -1)
    assert await locks.counting_semaphore("nobody said").drain() == 0


@pytest.mark.parametrize("verb", ["add_permits", "try_set_permits", "release", "acquire"])
async def test_a_waiter_learns_of_permits_that_another_client_makes(
    verb: str, locks: LockClient, other: LockClient
) -> None:
    """The first acquire with a number makes permits, too."""
    waiter = asyncio.create_task(locks.counting_semaphore(NAME).acquire())
    await until(lambda: session_of(locks).entries.notifier.confirmed(f"redisson_sc:{{{NAME}}}"))
    await all_parked(locks, 1)
    if verb == "acquire":
        await other.counting_semaphore(NAME, 2).acquire()
    else:
        await getattr(other.counting_semaphore(NAME), verb)(1)
    # The waiter would ask by itself later than that.
    await asyncio.wait_for(waiter, 4)


@pytest.mark.parametrize("initial", [None, 0, 2])
async def test_a_release_where_nothing_is_acquired(locks: LockClient, other: LockClient, initial: int | None) -> None:
    """The release counts as with asyncio, so that it can be a signal for a later acquire."""
    model = asyncio.Semaphore(initial or 0)
    for permits in (1, 2):
        await locks.counting_semaphore(NAME, initial).release(permits)
        for _ in range(permits):
            model.release()
        assert await other.counting_semaphore(NAME, initial).available() == model._value
    assert await other.counting_semaphore(NAME, initial).try_acquire(permits=model._value)


async def test_a_release_after_the_server_forgot_everything_comes_on_top(
    two: AsyncCountingSemaphore, redis: Redis
) -> None:
    await two.acquire()
    await redis.flushall()
    await two.release()
    assert await two.available() == 3


async def test_a_block_adds_no_permits_after_the_server_forgot_everything(
    two: AsyncCountingSemaphore, redis: Redis
) -> None:
    async with two:
        await redis.flushall()
    assert not await redis.exists(NAME)
    assert await two.available() == 2


async def test_permits_from_before_the_server_forgot_everything_come_on_top(
    locks: LockClient, two: AsyncCountingSemaphore, redis: Redis
) -> None:
    async with two:
        await redis.flushall()
        await locks.counting_semaphore(NAME, 2).acquire()
    assert await two.available() == 2, "the permit of the block comes on top of the one that is left"
    await two.add_permits(-1)
    assert await two.available() == 1


# In Redis, and as a part of its client.


async def test_a_string_in_redis_and_ends_that_are_forgotten(two: AsyncCountingSemaphore, redis: Redis) -> None:
    for _ in range(100):
        await two.acquire()
        await two.release()
        async with two:
            pass
    assert await redis.get(NAME) == b"2"
    assert await redis.ttl(NAME) == -1
    assert await redis.zcard(f"aiolock_token:{{{NAME}}}") <= 3
    assert await redis.ttl(f"aiolock_token:{{{NAME}}}") > 0


async def test_many_at_once_are_forgotten_as_well(locks: LockClient, redis: Redis) -> None:
    semaphore = locks.counting_semaphore(NAME, 50)

    async def work() -> None:
        for _ in range(20):
            async with semaphore:
                pass
            await semaphore.acquire()
            await semaphore.release()

    await asyncio.gather(*(work() for _ in range(50)))
    # There were 3,000 ends.
    assert await redis.zcard(f"aiolock_token:{{{NAME}}}") <= 300


async def test_a_task_that_ends_in_a_block_that_it_never_leaves(redis: Redis, theirs: AsyncCountingSemaphore) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        semaphore = locks.counting_semaphore(NAME, 2)
        await asyncio.create_task(enter(semaphore))
        await until(lambda: locks.statistics().held == locks.statistics().pending == 0)
    assert [type(each) for each in events] == [Acquired, Orphaned, Lost]
    assert await theirs.available() == 2


async def enter(semaphore: AsyncCountingSemaphore) -> None:
    await semaphore.__aenter__()


async def test_a_fixture_is_told_to_use_no_block(two: AsyncCountingSemaphore, caplog: pytest.LogCaptureFixture) -> None:
    async def set_up() -> None:
        await two.__aenter__()

    await asyncio.create_task(set_up())
    await until(lambda: len(caplog.messages) == 1)
    assert caplog.messages[0].endswith("of its fixture: call acquire() and release(), without a block")
    with pytest.raises(LeaseLostError, match="has ended"):
        await two.__aexit__(None, None, None)
    assert await two.available() == 2


async def test_events_are_of_blocks(redis: Redis) -> None:
    """A permit that was acquired without a block has no holder who would be told of its loss."""
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        await locks.counting_semaphore(NAME, 3).acquire()
        async with locks.counting_semaphore(NAME) as nothing, locks.counting_semaphore(NAME).hold() as nothing_either:
            assert nothing is nothing_either is None
    assert [type(each) for each in events] == [Acquired, Acquired, Released, Released]


async def test_a_block_is_not_renewed_and_has_no_end(redis: Redis) -> None:
    """A lock beside it, which lasts as long as several leases, ends meanwhile."""
    async with LockClient(redis, config=LockConfig(lease=0.06, renew_interval=0.02)) as locks:
        async with locks.counting_semaphore(NAME, 2):
            beside = await locks.lock("beside", owner="me").acquire(lease=0.3)
            await asyncio.wait_for(beside.lost, 15)
            assert not any("places" in task.get_name() for task in asyncio.all_tasks())
        assert (locks.statistics().renewals, locks.statistics().losses) == (0, 1)


async def test_blocks_of_one_task_and_of_an_exit_in_another_order(two: AsyncCountingSemaphore) -> None:
    first, second = two.hold(), two.hold()
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert await two.available() == 1
    await second.__aexit__(None, None, None)
    assert await two.available() == 2
    with pytest.raises(RuntimeError, match="was not entered, or was left before"):
        await second.__aexit__(None, None, None)


# Refusals.


async def test_a_bad_number_of_permits_or_a_bad_wait_is_refused(two: AsyncCountingSemaphore, locks: LockClient) -> None:
    with pytest.raises(TypeError, match="must be an int"):
        await two.add_permits(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wait must be zero or more"):
        await two.try_acquire(wait=-1)
