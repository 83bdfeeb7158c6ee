"""What Redisson's own tests ask of its lock, asked of ours; docs/reference/redisson.md has the whole list."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LeaseLostError, LockClient
from aiolock._embedded_server import Server
from tests.support.holding import lock_client
from tests.support.observe import answered, freed, pubsub_channels, until


class Thread:
    """A task that makes calls for us, one after another: another owner."""

    def __init__(self) -> None:
        self._calls: asyncio.Queue[tuple[Callable[[], Awaitable[object]], asyncio.Future[object]]] = asyncio.Queue()
        self._task = asyncio.create_task(self._run())

    async def call(self, method: Callable[[], Awaitable[object]]) -> object:
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait((method, done))
        return await done

    async def _run(self) -> None:
        while True:
            method, done = await self._calls.get()
            done.set_result(await method())

    async def __aenter__(self) -> "Thread":
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_lock_and_unlock_twice_in_a_row(lock: AsyncRLock) -> None:
    for _ in range(2):
        await lock.acquire()
        await lock.release()
    assert not await lock.locked()


async def test_hold_count_follows_every_acquire_and_release(lock: AsyncRLock) -> None:
    counts = [await lock.hold_count()]
    for call in (lock.acquire, lock.release, lock.acquire, lock.acquire, lock.release, lock.release):
        await call()
        counts.append(await lock.hold_count())
    assert counts == [0, 1, 0, 1, 2, 1, 0]


async def test_held_is_about_the_current_owner(lock: AsyncRLock) -> None:
    assert not await lock.held()
    async with Thread() as thread:
        await thread.call(lock.acquire)
        assert await thread.call(lock.held)
        assert not await lock.held()
        await thread.call(lock.release)
        assert not await thread.call(lock.held)
    async with lock:
        assert await lock.held()
    assert not await lock.held()


async def test_locked_is_about_anyone(lock: AsyncRLock) -> None:
    assert not await lock.locked()
    async with Thread() as thread:
        await thread.call(lock.acquire)
        assert await lock.locked()
        await thread.call(lock.release)
    assert not await lock.locked()
    async with lock:
        assert await lock.locked()
    assert not await lock.locked()


async def test_remaining_of_a_lease_of_a_free_lock_and_of_a_watched_one(lock: AsyncRLock) -> None:
    await lock.acquire(lease=3600)
    assert 3500 < (await lock.remaining() or 0) <= 3600
    await lock.release()
    assert await lock.remaining() is None
    async with lock:
        assert 20 < (await lock.remaining() or 0) <= 30


async def test_a_partial_release_leaves_the_lease_as_it_was(lock: AsyncRLock) -> None:
    for _ in range(3):
        await lock.acquire(lease=60)
    for _ in range(2):
        await lock.release()
        assert 50 < (await lock.remaining() or 0) <= 60
    await lock.release()


async def test_a_wait_is_as_long_as_was_asked_for(lock: AsyncRLock, other: LockClient) -> None:
    async with other.lock(lock.name):
        began = monotonic()
        assert await lock.try_lock(0.5) is None
        assert 0.49 < monotonic() - began < 5


async def test_a_lease_that_ends_lets_the_waiter_in_and_a_late_release_is_told(
    lock: AsyncRLock, other: LockClient
) -> None:
    began = monotonic()
    await lock.acquire(lease=0.5)
    async with other.lock(lock.name):
        assert 0.45 < monotonic() - began < 5
        with pytest.raises(LeaseLostError):
            await lock.release()
        assert await other.lock(lock.name).held()


@pytest.mark.parametrize("after", [0, 0.0005, 0.001, 0.002, 0.005])
async def test_a_try_that_is_cancelled_is_not_renewed(server: Server, redis: Redis, after: float) -> None:
    async with lock_client(server.url, lease=1) as locks:

        async def take() -> None:
            await locks.lock("orders").try_lock(60)
            await asyncio.sleep(60)

        taking = asyncio.create_task(take())
        await asyncio.sleep(after)
        taking.cancel()
        await asyncio.wait([taking])
        await answered(locks)
        await freed(redis, "orders")
        assert locks.statistics().held == 0


async def test_many_tasks_on_few_names_fail_nowhere_and_leave_no_subscription(
    locks: LockClient, other: LockClient, redis: Redis
) -> None:
    async def work(client: LockClient, number: int) -> None:
        for turn in range(10):
            async with client.lock(f"name {(number + turn) % 5}"):
                pass

    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(work((locks, other)[number % 2], number))

    async def left() -> bool:
        return not await pubsub_channels(redis)

    await until(left, within=20)


async def test_every_try_that_is_granted_is_renewed_until_its_release(locks: LockClient) -> None:
    granted = 0

    async def work() -> None:
        nonlocal granted
        lock = locks.lock("orders")
        for _ in range(50):
            while (lease := await lock.try_lock()) is None:
                await asyncio.sleep(0)
            assert lease.watched
            assert locks.statistics().held == 1
            granted += 1
            await lock.release()

    async with asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(work())
    assert granted == 16 * 50
    assert locks.statistics().held == 0


@pytest.mark.parametrize(
    ("clients", "tasks", "turns"), [(1, 15, 1), (16, 1, 20), (100, 1, 1)], ids=["one client", "loops", "many clients"]
)
async def test_an_unprotected_counter_counts_right(
    server: Server, redis: Redis, clients: int, tasks: int, turns: int
) -> None:
    count = 0

    async def work(client: LockClient) -> None:
        nonlocal count
        for _ in range(turns):
            async with client.lock("counter"):
                seen = count
                await asyncio.sleep(0.001)
                count = seen + 1

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for _ in range(clients):
            client = await stack.enter_async_context(LockClient(redis))
            for _ in range(tasks):
                group.create_task(work(client))
    assert count == clients * tasks * turns
