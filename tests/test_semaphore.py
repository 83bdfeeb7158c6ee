"""A semaphore that counts: so many at once, and nobody knows who."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import (
    Acquired,
    AsyncSemaphore,
    ClientClosedError,
    HeldSemaphore,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    LockTimeoutError,
    NotALockError,
    Orphaned,
    Released,
)
from tests.support.inside import session_of
from tests.support.observe import until
from tests.support.waiters import waits_quietly

NAME = "places"


@pytest.fixture
def two(locks: LockClient) -> AsyncSemaphore:
    """Two permits."""
    return locks.semaphore(NAME, 2)


@pytest.fixture
def theirs(other: LockClient) -> AsyncSemaphore:
    """The same, for another process."""
    return other.semaphore(NAME, 2)


async def parked(locks: LockClient, count: int) -> None:
    await until(lambda: locks.statistics().parked == count and locks.statistics().pending == 0)


# So many, and no more.


async def test_as_many_as_there_are_permits(two: AsyncSemaphore, theirs: AsyncSemaphore) -> None:
    assert await two.available() == 2
    await two.acquire()
    await theirs.acquire()
    assert not await two.try_acquire()
    assert not await theirs.try_acquire(wait=0.01)
    assert await two.available() == 0
    await theirs.release()
    assert await two.try_acquire()
    await theirs.release(2)
    assert await two.available() == 2


async def test_a_block_has_a_permit_and_puts_it_back(two: AsyncSemaphore, locks: LockClient) -> None:
    async with two as nothing:
        assert nothing is None
        async with two.hold(wait=10) as nothing_either:
            assert nothing_either is None
            assert (await two.available(), two.statistics().held, locks.statistics().held) == (0, 2, 2)
            with pytest.raises(LockTimeoutError, match=r"'places' was not granted within"):
                async with two.hold(wait=0.01):
                    pass
    assert await two.available() == 2


async def test_a_block_puts_back_what_it_took_though_its_body_fails(two: AsyncSemaphore) -> None:
    with pytest.raises(ZeroDivisionError):
        async with two.hold(permits=2):
            _ = 1 / 0
    assert await two.available() == 2


async def test_all_that_are_wanted_or_none(two: AsyncSemaphore) -> None:
    assert not await two.try_acquire(3)
    assert await two.available() == 2
    async with two.hold(permits=2):
        assert await two.available() == 0


async def test_acquired_in_one_task_and_released_in_another(two: AsyncSemaphore) -> None:
    """Also where a task consists of the acquire, which may not own a lock."""
    await asyncio.create_task(two.acquire())
    await asyncio.wait_for(asyncio.gather(two.acquire()), 10)
    assert await two.available() == 0
    await asyncio.create_task(two.release(2))
    assert await two.available() == 2


async def test_a_permit_outlives_its_task_and_its_client(redis: Redis, theirs: AsyncSemaphore) -> None:
    async with LockClient(redis) as gone:
        await gone.semaphore(NAME, 2).acquire()
    assert await theirs.available() == 1


async def test_who_waits_gets_what_comes_back_in_turn(two: AsyncSemaphore, locks: LockClient) -> None:
    await two.acquire(2)
    order: list[int] = []

    async def take(number: int) -> None:
        async with two:
            order.append(number)

    tasks = []
    for number in range(20):
        tasks.append(asyncio.create_task(take(number)))
        await parked(locks, number + 1)
    await two.release()
    await asyncio.wait(tasks)
    assert order == list(range(20))


async def test_who_wants_several_gets_them_when_there_are_enough(
    two: AsyncSemaphore, theirs: AsyncSemaphore, locks: LockClient
) -> None:
    await theirs.acquire(2)
    waiter = asyncio.create_task(two.acquire(4))
    await until(lambda: waits_quietly(locks, two._block))
    await theirs.release()
    await parked(locks, 1)
    await theirs.add_permits(2)
    await parked(locks, 1)
    assert not waiter.done()
    await theirs.release()
    await asyncio.wait_for(waiter, 4)
    assert await two.available() == 0


async def test_permits_that_come_back_together_wake_as_many(
    two: AsyncSemaphore, theirs: AsyncSemaphore, locks: LockClient
) -> None:
    await two.try_set_permits(5)
    await theirs.acquire(5)
    everybody = asyncio.Barrier(6)

    async def meet() -> None:
        async with two:
            await everybody.wait()

    tasks = [asyncio.create_task(meet()) for _ in range(5)]
    await parked(locks, 5)
    await theirs.release(5)
    async with asyncio.timeout(15):
        await everybody.wait()
    await asyncio.gather(*tasks)
    assert await two.available() == 5


async def test_a_bare_release_hands_off_to_who_waits(two: AsyncSemaphore, locks: LockClient) -> None:
    await two.acquire(2)
    waiter = asyncio.create_task(two.acquire())
    await parked(locks, 1)
    await until(lambda: waits_quietly(locks, two._block))
    before = locks.statistics()
    await two.release()
    await asyncio.wait_for(waiter, 10)
    after = locks.statistics()
    assert (after.hand_offs - before.hand_offs, after.batches - before.batches) == (1, 1)


async def test_never_more_inside_than_permits(locks: LockClient, other: LockClient) -> None:
    inside = most = 0

    async def work(client: LockClient, *, bare: bool) -> None:
        nonlocal inside, most
        semaphore = client.semaphore(NAME, 3)
        for _ in range(5):
            if bare:
                await semaphore.acquire()
            else:
                await semaphore.__aenter__()
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1
            await (semaphore.release() if bare else semaphore.__aexit__(None, None, None))

    clients = [locks, other] * 10
    await asyncio.gather(*(work(client, bare=number % 4 < 2) for number, client in enumerate(clients)))
    assert most == 3
    assert await locks.semaphore(NAME).available() == 3


# How many there are.


async def test_the_first_acquire_says_how_many_and_no_later_one(two: AsyncSemaphore, locks: LockClient) -> None:
    assert await two.available() == 2
    assert await locks.semaphore(NAME).available() == 0
    assert not await locks.semaphore(NAME).try_acquire()
    await two.acquire()
    assert await locks.semaphore(NAME, 7).available() == 1


async def test_set_once(two: AsyncSemaphore, theirs: AsyncSemaphore) -> None:
    assert await two.try_set_permits(4)
    assert not await theirs.try_set_permits(9)
    assert await two.available() == 4


async def test_more_and_fewer(two: AsyncSemaphore) -> None:
    await two.add_permits(3)
    assert await two.available() == 5
    await two.add_permits(-6)
    assert await two.available() == -1
    assert not await two.try_acquire()
    await two.release(2)
    assert await two.try_acquire()
    assert await two.available() == 0


async def test_drained(two: AsyncSemaphore, locks: LockClient) -> None:
    assert await two.drain() == 2
    assert await two.drain() == 0
    await two.add_permits(-1)
    assert (await two.drain(), await two.available()) == (0, -1)
    assert await locks.semaphore("nobody said").drain() == 0


@pytest.mark.parametrize("verb", ["add_permits", "try_set_permits", "release", "acquire"])
async def test_who_waits_learns_of_permits_that_somebody_else_makes(
    verb: str, locks: LockClient, other: LockClient
) -> None:
    """Of the first acquire with a number, too."""
    waiter = asyncio.create_task(locks.semaphore(NAME).acquire())
    await until(lambda: session_of(locks).entries.notifier.confirmed(f"redisson_sc:{{{NAME}}}"))
    await parked(locks, 1)
    if verb == "acquire":
        await other.semaphore(NAME, 2).acquire()
    else:
        await getattr(other.semaphore(NAME), verb)(1)
    await asyncio.wait_for(waiter, 4)  # Sooner than it would ask by itself.


async def test_a_release_where_nothing_is_acquired(two: AsyncSemaphore, locks: LockClient) -> None:
    """With a number of permits they are all there; without one it makes them, as Redisson's does."""
    await two.release()
    assert await two.available() == 2
    await two.release()
    assert await two.available() == 3
    await locks.semaphore("unsaid").release(2)
    assert await locks.semaphore("unsaid").available() == 2


async def test_a_block_whose_server_forgot_everything_makes_no_permits(two: AsyncSemaphore, redis: Redis) -> None:
    async with two:
        await redis.flushall()
    assert not await redis.exists(NAME)
    assert await two.available() == 2


async def test_what_was_acquired_before_the_server_forgot_everything_comes_on_top(
    locks: LockClient, two: AsyncSemaphore, redis: Redis
) -> None:
    async with two:
        await redis.flushall()
        await locks.semaphore(NAME, 2).acquire()
    assert await two.available() == 2, "of which one is held"
    await two.add_permits(-1)
    assert await two.available() == 1


# In Redis, and as a part of its client.


async def test_a_string_in_redis_and_ends_that_are_forgotten(two: AsyncSemaphore, redis: Redis) -> None:
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
    semaphore = locks.semaphore(NAME, 50)

    async def work() -> None:
        for _ in range(20):
            async with semaphore:
                pass
            await semaphore.acquire()
            await semaphore.release()

    await asyncio.gather(*(work() for _ in range(50)))
    assert await redis.zcard(f"aiolock_token:{{{NAME}}}") <= 300  # Of 3,000 ends.


async def test_closing_cancels_blocks_and_puts_their_permits_back(redis: Redis, theirs: AsyncSemaphore) -> None:
    locks = LockClient(redis)
    inside = asyncio.Event()

    async def work() -> None:
        async with locks.semaphore(NAME, 2):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    await locks.aclose()
    with pytest.raises(LeaseLostError, match="closed"):
        await task
    assert await theirs.available() == 2
    with pytest.raises(ClientClosedError):
        await locks.semaphore(NAME).release()


async def test_a_wait_ends_when_the_client_is_closed(redis: Redis, theirs: AsyncSemaphore) -> None:
    await theirs.acquire(2)
    locks = LockClient(redis)
    waiter = asyncio.create_task(locks.semaphore(NAME).acquire())
    await parked(locks, 1)
    await locks.aclose()
    with pytest.raises(ClientClosedError):
        await waiter
    await theirs.release(2)
    assert await theirs.available() == 2


async def test_a_task_that_ends_in_a_block_that_it_never_leaves(redis: Redis, theirs: AsyncSemaphore) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        semaphore = locks.semaphore(NAME, 2)
        await asyncio.create_task(enter(semaphore))
        await until(lambda: locks.statistics().held == locks.statistics().pending == 0)
    assert [type(each) for each in events] == [Acquired, Orphaned]
    assert await theirs.available() == 2


async def enter(semaphore: AsyncSemaphore) -> None:
    await semaphore.__aenter__()


async def test_events_are_of_blocks(redis: Redis) -> None:
    """What is acquired bare is given back by nobody in particular: there is nothing that it could be held against."""
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        await locks.semaphore(NAME, 2).acquire()
        async with locks.semaphore(NAME):
            pass
    assert [type(each) for each in events] == [Acquired, Released]


async def test_a_block_is_not_renewed_and_has_no_end(redis: Redis) -> None:
    """A lock beside it, for as long as several leases, ends meanwhile."""
    async with LockClient(redis, config=LockConfig(lease=0.06, renew_interval=0.02)) as locks:
        async with locks.semaphore(NAME, 2):
            beside = await locks.lock("beside", owner="me").acquire(lease=0.3)
            await asyncio.wait_for(beside.lost, 15)
            assert not any("places" in task.get_name() for task in asyncio.all_tasks())
        assert (locks.statistics().renewals, locks.statistics().losses) == (0, 1)


async def test_blocks_of_one_task_and_of_an_exit_in_another_order(two: AsyncSemaphore) -> None:
    first, second = two.hold(), two.hold()
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert await two.available() == 1
    await second.__aexit__(None, None, None)
    assert await two.available() == 2
    with pytest.raises(RuntimeError, match="was not entered, or was left before"):
        await second.__aexit__(None, None, None)


async def test_a_hold_that_is_never_entered_is_noticed(two: AsyncSemaphore) -> None:
    with pytest.warns(RuntimeWarning, match="never entered"):
        two.hold()


# What is refused.


@pytest.mark.parametrize("verb", ["acquire", "try_acquire", "release", "hold"])
async def test_numbers_that_are_none(two: AsyncSemaphore, verb: str) -> None:
    for number in (True, 1.0):
        with pytest.raises(TypeError, match=f"number of permits must be an int, not {number}"):
            await done(getattr(two, verb)(permits=number))
    for permits in (0, -1, 2**31):
        with pytest.raises(ValueError, match=f"number of permits must be 1 to .*, not {permits}"):
            await done(getattr(two, verb)(permits=permits))


async def done(what: Coroutine[Any, Any, object] | HeldSemaphore) -> None:
    assert not isinstance(what, HeldSemaphore)
    await what


async def test_other_numbers_that_are_none(two: AsyncSemaphore, locks: LockClient) -> None:
    with pytest.raises(ValueError, match="0 to"):
        locks.semaphore(NAME, -1)
    with pytest.raises(ValueError, match="0 to"):
        await two.try_set_permits(-1)
    with pytest.raises(TypeError, match="must be an int"):
        await two.add_permits(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wait must be zero or more"):
        await two.try_acquire(wait=-1)


@pytest.mark.parametrize("other_kind", ["hash", "text"])
async def test_a_key_that_is_something_else(two: AsyncSemaphore, redis: Redis, other_kind: str) -> None:
    if other_kind == "hash":
        await redis.hset(NAME, "field", "1")
    else:
        await redis.set(NAME, "three")
    before = await redis.dump(NAME)
    for verb in (
        two.acquire,
        two.try_acquire,
        two.release,
        two.available,
        two.drain,
        lambda: two.add_permits(1),
        lambda: two.try_set_permits(1),
    ):
        with pytest.raises(NotALockError):
            await verb()
    assert await redis.dump(NAME) == before


def test_says_what_it_is(redis_free: LockClient) -> None:
    semaphore = redis_free.semaphore(NAME)
    assert re.fullmatch(r"<AsyncSemaphore 'places'>", repr(semaphore))
    assert semaphore.name == NAME
    assert semaphore.statistics().parked == 0


@pytest.fixture
def redis_free() -> LockClient:
    """A client that never speaks to a server."""
    return LockClient.from_url("redis://127.0.0.1:1")


async def test_a_handle_that_takes_and_puts_back_several(locks: LockClient) -> None:
    three = locks.semaphore("several", 3)
    two = three.taking(2)
    async with two:
        assert (await three.available(), await three.locked(), await two.locked()) == (1, False, True)
        assert not await two.try_acquire()
    async with two.hold(wait=1):
        assert await three.available() == 1
    await two.acquire()
    await two.acquire(1)
    assert await three.available() == 0
    await two.release()
    await two.release(1)
    assert await three.available() == 3
    with pytest.raises((TypeError, ValueError), match="number of permits must be"):
        three.taking(0)
