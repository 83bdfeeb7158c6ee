"""The promises of both semaphores: the number at once, one waiter for each permit that returns, and valid numbers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncCountingSemaphore, AsyncSemaphore, LockClient, LockTimeoutError
from tests.contract.acts import SOON, wait_quietly
from tests.contract.kinds import NAME, Counted, Kind, Permit
from tests.support.inside import block_of, queue_of
from tests.support.observe import all_parked, until

pytestmark = pytest.mark.parametrize("kind", [Permit(), Counted()], ids=repr)
wrong_number = pytest.raises((TypeError, ValueError), match="number of permits must be")


def semaphore(kind: Kind, client: LockClient, number: int | None = 2) -> Any:
    make = client.semaphore if isinstance(kind, Permit) else client.counting_semaphore
    return make(NAME, number)


async def give(all_of: AsyncSemaphore | AsyncCountingSemaphore, permits: int) -> None:
    """Put back permits that were acquired at once."""
    await (all_of.release(permits) if isinstance(all_of, AsyncCountingSemaphore) else all_of.release())


async def test_as_many_holders_as_permits(kind: Kind, locks: LockClient, other: LockClient) -> None:
    mine, theirs = semaphore(kind, locks), semaphore(kind, other)
    assert (await mine.available(), await mine.locked()) == (2, False)
    await mine.acquire()
    await theirs.acquire()
    assert not await mine.try_acquire()
    assert not await theirs.try_acquire(wait=0.01)
    assert (await theirs.available(), await theirs.locked()) == (0, True)
    await give(mine, 1)
    assert await theirs.try_acquire()
    await give(theirs, 1)
    await give(theirs, 1)
    assert await mine.available() == 2


async def test_all_that_are_wanted_or_none(kind: Kind, locks: LockClient, redis: Redis) -> None:
    two = semaphore(kind, locks)
    assert not await two.try_acquire(permits=3)
    assert await two.available() == 2
    async with two.hold(permits=2):
        assert (await two.available(), locks.statistics().held, two.statistics().held) == (0, 1, 1)
        with pytest.raises(LockTimeoutError, match=f"'{NAME}' was not granted within"):
            async with two.hold(wait=0.01):
                pass
    async with two, two.hold(wait=10):
        assert (await two.available(), locks.statistics().held, two.statistics().held) == (0, 2, 2)
    assert await two.available() == 2


async def test_a_handle_that_takes_several(kind: Kind, locks: LockClient) -> None:
    three = semaphore(kind, locks, 3)
    two = three.taking(2)
    async with two:
        assert (await three.available(), await three.locked(), await two.locked()) == (1, False, True)
        assert not await two.try_acquire()
    async with two.hold(wait=1):
        assert await three.available() == 1
    await two.acquire()
    assert await two.acquire(1) or isinstance(kind, Counted)
    assert await three.available() == 0
    await give(two, 1)
    await give(two, 2)
    assert await three.available() == 3


async def test_permits_that_come_back_together_wake_as_many_in_a_few_round_trips(
    kind: Kind, locks: LockClient, other: LockClient
) -> None:
    mine, theirs = semaphore(kind, locks, 20), semaphore(kind, other, 20)
    await theirs.acquire(20)
    everybody = asyncio.Barrier(21)

    async def meet() -> None:
        async with mine:
            await everybody.wait()

    tasks = [asyncio.create_task(meet()) for _ in range(25)]
    await until(lambda: wait_quietly(kind, locks, 25))
    before = locks.statistics()
    await give(theirs, 20)
    async with asyncio.timeout(15):
        await everybody.wait()
    after = locks.statistics()
    # The first waiter asks, then nineteen others together, and then one finds no permit left. There may be one more
    # batch, when the first in line tells of the others.
    assert after.batches - before.batches <= 4
    assert after.commands - before.commands <= 23
    for task in tasks[20:]:
        task.cancel()
    await asyncio.wait(tasks)
    assert await theirs.available() == 20


async def test_permits_that_are_given_back_in_one_turn_of_the_loop_wake_as_many(kind: Kind, locks: LockClient) -> None:
    four = semaphore(kind, locks, 4)
    out, inside = asyncio.Event(), asyncio.Barrier(5)

    async def meet(until_told: bool) -> None:
        async with four:
            await inside.wait()
            await (out.wait() if until_told else asyncio.sleep(0))

    holding = [asyncio.create_task(meet(True)) for _ in range(4)]
    await asyncio.wait_for(inside.wait(), 10)
    meeting = [asyncio.create_task(meet(False)) for _ in range(4)]
    # The messages of the releases tell them nothing new.
    await until(lambda: wait_quietly(kind, locks, 4))
    out.set()
    # All four come at once: no other client sends a message.
    await asyncio.wait_for(inside.wait(), 10)
    await asyncio.gather(*holding, *meeting)


async def test_an_acquire_of_several_gets_them_when_there_are_enough(
    kind: Kind, locks: LockClient, other: LockClient
) -> None:
    mine, theirs = semaphore(kind, locks), semaphore(kind, other)
    held = [await theirs.acquire() for _ in range(2)]

    async def take() -> None:
        async with mine.hold(permits=4):
            assert await theirs.available() == 0

    task = asyncio.create_task(take())
    await until(lambda: wait_quietly(kind, locks, 1))
    for more in (lambda: give(theirs, 1), lambda: theirs.add_permits(2)):
        await more()
        await all_parked(locks, 1)
        assert not await mine.try_acquire(0.01), "in one client it stands behind the one that wants four"
    assert not task.done()
    await give(theirs, 1)
    await asyncio.wait_for(task, SOON)
    assert len(held) == 2


async def test_the_first_client_with_a_number_of_permits_sets_it(
    kind: Kind, locks: LockClient, other: LockClient
) -> None:
    unknown = semaphore(kind, locks, None)
    assert not await unknown.try_acquire()
    assert (await unknown.available(), await unknown.locked()) == (0, True)

    async def take() -> None:
        async with unknown:
            pass

    task = asyncio.create_task(take())
    await until(lambda: wait_quietly(kind, locks, 1))
    async with semaphore(kind, other, 3):
        await asyncio.wait_for(task, SOON)
        assert await semaphore(kind, other, 7).available() == 2
    assert await unknown.available() == 3


async def test_an_acquire_with_the_number_overtakes_waiters_of_its_client_without_one(
    kind: Kind, locks: LockClient
) -> None:
    unknown = semaphore(kind, locks, None)

    async def take() -> None:
        async with unknown:
            pass

    tasks = [asyncio.create_task(take()) for _ in range(2)]
    await until(lambda: wait_quietly(kind, locks, 2))
    async with asyncio.timeout(SOON), semaphore(kind, locks, 2):
        await asyncio.gather(*tasks)


async def test_a_second_acquire_with_the_number_overtakes_no_waiter(
    kind: Kind, locks: LockClient, other: LockClient
) -> None:
    """The first waiter, which wants more permits than are available, has told the number already."""

    async def take() -> None:
        async with semaphore(kind, locks, 2).hold(permits=2):
            pass

    async with semaphore(kind, other, 2):
        task = asyncio.create_task(take())
        await until(lambda: wait_quietly(kind, locks, 1))
        assert not await semaphore(kind, locks, 2).try_acquire(0.1)
    await asyncio.wait_for(task, SOON)


async def test_more_and_fewer_than_are_acquired(kind: Kind, locks: LockClient, other: LockClient) -> None:
    two, theirs = semaphore(kind, locks), semaphore(kind, other)
    await theirs.add_permits(3)
    assert await two.available() == 5
    await two.acquire(2)
    await theirs.add_permits(-4)
    assert await two.available() == -1
    assert not await two.try_acquire()
    await give(two, 2)
    assert await two.available() == 1
    [first, second] = await waiting_for_two(kind, locks)
    await theirs.add_permits(1)
    await asyncio.wait_for(asyncio.gather(first, second), SOON)


async def waiting_for_two(kind: Kind, client: LockClient) -> list[asyncio.Task[None]]:
    """Two tasks, each of which waits for two permits while one permit is available."""

    async def take() -> None:
        async with semaphore(kind, client).hold(permits=2):
            pass

    tasks = [asyncio.create_task(take()) for _ in range(2)]
    await until(lambda: wait_quietly(kind, client, 2))
    return tasks


@pytest.mark.parametrize("permits", [0, -1, 2**31, 1.0, "1", True])
async def test_a_number_that_cannot_be(kind: Kind, permits: Any, locks: LockClient) -> None:
    two = semaphore(kind, locks)
    calls: list[Callable[[], Any]] = [
        lambda: two.acquire(permits),
        lambda: two.try_acquire(permits=permits),
    ]
    for call in calls:
        with wrong_number:
            await call()
    for make in (two.taking, lambda permits: two.hold(permits=permits)):
        with wrong_number:
            make(permits)
    if permits != 0:
        with wrong_number:
            semaphore(kind, locks, permits)
        with wrong_number:
            await (two.set_permits if isinstance(kind, Permit) else two.try_set_permits)(permits)
    assert queue_of(two if isinstance(kind, Permit) else block_of(two)) is None
