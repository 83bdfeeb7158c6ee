"""Both sides take permits from one semaphore: they count together, wake each other by messages, and permits expire."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncSemaphore, LeaseLostError, LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.interop.service import Redisson, RedissonError, Service
from tests.interop.test_waking import LEASE, soon
from tests.support.observe import until
from tests.support.waiters import waits_quietly

NAME = "places"
# These versions tell only how many permits are available, and cannot set another number.
WITHOUT_COUNTS = ("3.17.7",)
# A waiter asks again by itself only after more seconds.
BY_MESSAGE = 20
SHORT = 0.5
RENEWED = 1.5
PLACES = 3
EACH = 4
# The least permits of each side: no side starves.
LEAST = 50

Counts = Callable[[], Awaitable[tuple[int, int, int]]]


@pytest.fixture
def semaphore(locks: LockClient) -> AsyncSemaphore:
    """A semaphore with a named owner, whose permits outlive the task that acquires them."""
    return locks.semaphore(NAME, owner="somebody")


@pytest.fixture
def counts(semaphore: AsyncSemaphore, jvm: Service, redisson: Redisson) -> Counts:
    """The available, the acquired and all permits, on which both sides agree."""

    async def agreed() -> tuple[int, int, int]:
        seen = (await semaphore.available(), await semaphore.acquired(), await semaphore.permits())
        assert await redisson.ask("availablePermits", NAME) == seen[0]
        if jvm.version not in WITHOUT_COUNTS:
            assert await redisson.ask("acquiredPermits", NAME) == seen[1]
            assert await redisson.ask("getPermits", NAME) == seen[2]
        return seen

    return agreed


async def given_back_in_vain(redisson: Redisson, permit: str) -> None:
    """Redisson cannot release the permit, which it has lost."""
    # Old versions do not say why.
    with pytest.raises(RedissonError, match=r"IllegalArgumentException|RedisException"):
        await redisson.ask("release", NAME, permit=permit)


# The limit of holders.


@pytest.mark.parametrize("lease", [{"lease": 60}, {}], ids=["for a time", "for ever"])
async def test_a_task_gets_the_permits_that_redisson_leaves(
    semaphore: AsyncSemaphore, redisson: Redisson, counts: Counts, lease: dict[str, Any]
) -> None:
    assert await redisson.ask("trySetPermits", NAME, permits=3)
    permits = [await redisson.ask("tryAcquire", NAME, **lease) for _ in range(2)]
    assert await counts() == (1, 2, 3)
    assert sorted(holder.owner for holder in await semaphore.holders()) == sorted(permits)
    assert await semaphore.try_acquire(permits=2) is None
    last = await semaphore.acquire()
    assert await counts() == (0, 3, 3)
    assert await semaphore.try_acquire() is None
    assert await semaphore.try_acquire(wait=0.1) is None
    await redisson.ask("release", NAME, permit=permits[0])
    await given_back_in_vain(redisson, permits[0])
    async with semaphore:
        assert await counts() == (0, 3, 3)
    await last.release()
    await redisson.ask("release", NAME, permit=permits[1])
    assert await counts() == (3, 0, 3)


async def test_redisson_gets_the_permits_that_a_task_leaves(
    semaphore: AsyncSemaphore, redisson: Redisson, counts: Counts
) -> None:
    await semaphore.set_permits(3)
    both = await semaphore.acquire(2, lease=60)
    assert await counts() == (1, 2, 3)
    permit = await redisson.ask("tryAcquire", NAME, lease=60)
    assert await redisson.ask("tryAcquire", NAME) is None
    refused = await redisson.post("tryAcquire", NAME, wait=0.2)
    assert refused.value is None
    assert refused.ended - refused.began > 0.19
    assert await counts() == (0, 3, 3)
    await both.release()
    assert await counts() == (2, 1, 3)
    await redisson.ask("release", NAME, permit=permit)
    assert await counts() == (3, 0, 3)


async def test_no_more_have_a_permit_than_there_are(
    locks: LockClient, redisson: Redisson, counts: Counts, redis: Redis
) -> None:
    had = {"java": 0, "python": 0}
    inside = 0

    async def visit(who: str) -> None:
        nonlocal inside
        inside += 1
        assert inside <= PLACES
        await asyncio.sleep(0.001)
        inside -= 1
        had[who] += 1

    async def thread(number: int) -> None:
        while min(had.values()) < LEAST:
            permit = await redisson.ask("tryAcquire", NAME, thread=number, wait=60, lease=LEASE)
            await visit("java")
            await redisson.ask("release", NAME, thread=number, permit=permit)

    async def task() -> None:
        while min(had.values()) < LEAST:
            async with locks.semaphore(NAME):
                await visit("python")

    assert await redisson.ask("trySetPermits", NAME, permits=PLACES)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(EACH):
            group.create_task(thread(number))
            group.create_task(task())
    assert await counts() == (PLACES, 0, PLACES)
    assert not await redis.exists(f"{{{NAME}}}:timeout")


async def test_a_prefix_is_a_part_of_the_name(redis: Redis, redisson: Redisson) -> None:
    async with LockClient(redis, config=LockConfig(prefix="app:")) as locks:
        assert await redisson.ask("trySetPermits", f"app:{NAME}", permits=2)
        async with locks.semaphore(NAME):
            assert await redisson.ask("availablePermits", f"app:{NAME}") == 1


# The number of permits.


async def test_the_number_that_redisson_set_stays(locks: LockClient, redisson: Redisson, counts: Counts) -> None:
    assert await redisson.ask("trySetPermits", NAME, permits=3)
    async with locks.semaphore(NAME, 5):
        assert await counts() == (2, 1, 3)


async def test_the_number_that_a_task_set_stays(locks: LockClient, redisson: Redisson, counts: Counts) -> None:
    async with locks.semaphore(NAME, 3):
        assert not await redisson.ask("trySetPermits", NAME, permits=5)
        assert await counts() == (2, 1, 3)


async def test_each_side_sees_the_number_that_the_other_changes(
    semaphore: AsyncSemaphore, jvm: Service, redisson: Redisson, counts: Counts
) -> None:
    await semaphore.set_permits(4)
    both = await semaphore.acquire(2, lease=60)
    await semaphore.add_permits(2)
    assert await counts() == (4, 2, 6)
    await redisson.ask("addPermits", NAME, permits=-3)
    assert await counts() == (1, 2, 3)
    await semaphore.set_permits(1)
    assert await counts() == (-1, 2, 1)
    if jvm.version not in WITHOUT_COUNTS:
        await redisson.ask("setPermits", NAME, permits=0)
        assert await counts() == (-2, 2, 0)
        await redisson.ask("setPermits", NAME, permits=1)
    await both.release()
    assert await counts() == (1, 0, 1)


# A release on one side wakes a waiter on the other: by its message, as every lease is far from its end.


async def parked(locks: LockClient, semaphore: AsyncSemaphore) -> None:
    await until(lambda: waits_quietly(locks, semaphore), within=20)


@pytest.mark.parametrize("lease", [{"lease": LEASE}, {}], ids=["for a time", "for ever"])
async def test_a_task_is_woken(
    locks: LockClient, semaphore: AsyncSemaphore, redisson: Redisson, lease: dict[str, Any]
) -> None:
    async def one() -> float:
        permit = await redisson.ask("tryAcquire", NAME, **lease)
        async with asyncio.timeout(BY_MESSAGE), asyncio.TaskGroup() as group:
            waiting = group.create_task(semaphore.acquire(lease=LEASE))
            await parked(locks, semaphore)
            releasing = await redisson.post("release", NAME, permit=permit)
            await waiting
            took = monotonic() - releasing.began
        await semaphore.release()
        return took

    await redisson.ask("trySetPermits", NAME, permits=1)
    await soon(one)


@pytest.mark.parametrize("how", ["release", "force_release"])
async def test_a_thread_is_woken(semaphore: AsyncSemaphore, other: LockClient, redisson: Redisson, how: str) -> None:
    async def one() -> float:
        lease = await semaphore.acquire(lease=LEASE)
        waiting = redisson.post("tryAcquire", NAME, wait=60, lease=LEASE)
        await until(redisson.parked, within=20)
        began = monotonic()
        if how == "release":
            await lease.release()
        else:
            assert await other.semaphore(NAME).force_release()
        got = await waiting
        if how != "release":
            with pytest.raises(LeaseLostError):
                await lease.release()
        await redisson.ask("release", NAME, permit=got.value)
        return got.ended - began

    await semaphore.set_permits(1)
    await soon(one)


async def test_permits_that_come_back_together_wake_as_many_threads(
    semaphore: AsyncSemaphore, redisson: Redisson, counts: Counts
) -> None:
    async def all_parked() -> bool:
        return all([await redisson.parked(number) for number in range(3)])

    await semaphore.set_permits(3)
    three = await semaphore.acquire(3, lease=LEASE)
    async with asyncio.timeout(BY_MESSAGE):
        waiting = [redisson.post("tryAcquire", NAME, thread=number, wait=60, lease=LEASE) for number in range(3)]
        await until(all_parked)
        await three.release()
        assert None not in [(await each).value for each in waiting]
    assert await counts() == (0, 3, 3)


@pytest.mark.parametrize("how", ["trySetPermits", "addPermits"])
async def test_a_task_is_woken_by_more_permits(
    locks: LockClient, semaphore: AsyncSemaphore, redisson: Redisson, how: str
) -> None:
    async with asyncio.timeout(BY_MESSAGE), asyncio.TaskGroup() as group:
        waiting = group.create_task(semaphore.acquire())
        await parked(locks, semaphore)
        await redisson.ask(how, NAME, permits=1)
        await waiting
    assert await semaphore.permits() == 1


@pytest.mark.parametrize("how", ["set_permits", "add_permits"])
async def test_a_thread_is_woken_by_more_permits(semaphore: AsyncSemaphore, redisson: Redisson, how: str) -> None:
    await semaphore.set_permits(1)
    await semaphore.acquire(lease=LEASE)
    waiting = redisson.post("tryAcquire", NAME, wait=60)
    async with asyncio.timeout(BY_MESSAGE):
        await until(redisson.parked)
        await (semaphore.set_permits(2) if how == "set_permits" else semaphore.add_permits(1))
        assert (await waiting).value is not None


async def test_a_thread_is_woken_when_enough_have_come_back(semaphore: AsyncSemaphore, redisson: Redisson) -> None:
    """The messages before the last one say that the number of available permits is below zero, and zero."""
    await semaphore.set_permits(3)
    three = [await semaphore.acquire(lease=LEASE) for _ in range(3)]
    waiting = redisson.post("tryAcquire", NAME, wait=60)
    async with asyncio.timeout(BY_MESSAGE):
        await until(redisson.parked)
        await semaphore.set_permits(1)
        for lease in three:
            assert not waiting.done()
            await lease.release()
        assert (await waiting).value is not None


# The lives of permits.


async def test_a_permit_that_redisson_does_not_give_back_comes_to_a_task(
    semaphore: AsyncSemaphore, redisson: Redisson, counts: Counts
) -> None:
    await redisson.ask("trySetPermits", NAME, permits=1)
    held = await redisson.post("tryAcquire", NAME, lease=SHORT)
    async with asyncio.timeout(BY_MESSAGE):
        lease = await semaphore.acquire()
    assert monotonic() - held.began > SHORT - 0.05
    await given_back_in_vain(redisson, held.value)
    lease.check()
    assert await counts() == (0, 1, 1)
    await lease.release()
    assert await counts() == (1, 0, 1)


async def test_permits_that_a_task_does_not_give_back_come_to_redisson(
    semaphore: AsyncSemaphore, redisson: Redisson, counts: Counts
) -> None:
    await semaphore.set_permits(2)
    asked = monotonic()
    both = await semaphore.acquire(2, lease=SHORT)
    async with asyncio.timeout(BY_MESSAGE):
        got = await redisson.post("tryAcquire", NAME, wait=60, lease=60)
    assert got.value is not None
    assert got.ended - asked > SHORT - 0.05
    with pytest.raises(LeaseLostError):
        await both.release()
    assert await counts() == (1, 1, 2)
    await redisson.ask("release", NAME, permit=got.value)
    assert await counts() == (2, 0, 2)


async def test_the_watchdog_keeps_a_permit_from_redisson(
    server: Server, redis: Redis, redisson: Redisson, counts: Counts
) -> None:
    async with LockClient.from_url(server.url, config=LockConfig(lease=RENEWED)) as locks:
        async with locks.semaphore(NAME, 1) as permit:
            ends = monotonic() + 2.5 * RENEWED
            trying = redisson.post("tryAcquire", NAME, thread=2, wait=2.5 * RENEWED)
            while monotonic() < ends:
                assert await counts() == (0, 1, 1)
                assert 0 < permit.remaining <= RENEWED
            assert (await trying).value is None
            permit.check()
        assert await redisson.ask("tryAcquire", NAME) is not None
