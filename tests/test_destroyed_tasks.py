"""A task that waits for something that nobody refers to is destroyed by Python, and its lock is given back."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, Lease, LockClient, Orphaned
from aiolock._events import LockEvent
from tests.support.holding import lock_client
from tests.support.observe import answered, freed, until

NAME = "orders"
Hold = Callable[[AsyncRLock, Callable[[], Awaitable[object]]], Coroutine[Any, Any, None]]


async def acquired(lock: AsyncRLock, wait: Callable[[], Awaitable[object]]) -> None:
    await lock.acquire()
    await lock.acquire(lease=60)
    await wait()


async def scoped(lock: AsyncRLock, wait: Callable[[], Awaitable[object]]) -> None:
    async with lock, lock.hold(lease=60):
        await wait()


class Forgotten:
    """Runs a task that waits for ever, and forgets it; the message of asyncio does not reach the test's log."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def run(self, hold: Hold, lock: AsyncRLock) -> None:
        asyncio.get_running_loop().set_exception_handler(self._hear)
        holding = asyncio.Event()

        async def wait() -> None:
            holding.set()
            await asyncio.get_running_loop().create_future()

        _ = asyncio.create_task(hold(lock, wait), name="careless")
        del _
        await holding.wait()

    def _hear(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.said.append(context["message"])


@pytest.mark.parametrize("hold", [acquired, scoped])
async def test_its_lock_is_given_back_with_a_warning(
    redis: Redis, server: Any, caplog: pytest.LogCaptureFixture, hold: Hold
) -> None:
    events: list[LockEvent] = []
    forgotten = Forgotten()
    async with lock_client(server.url, on_event=events.append) as client:
        lock = client.lock(NAME)
        await forgotten.run(hold, lock)
        await answered(client)
        assert lock.statistics().held == 1
        gc.collect()
        await freed(redis, NAME)
        assert lock.statistics().held == 0
        async with lock as lease:
            assert lease.holds == 1
    assert forgotten.said == ["Task was destroyed but it is pending!"]
    assert [(event.task, event.holds) for event in events if isinstance(event, Orphaned)] == [("careless", 2)]
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "careless" in warning.getMessage()


async def test_the_block_of_a_named_owner_is_given_back_and_no_other_of_that_owner(
    redis: Redis, locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    lock = locks.lock(NAME, owner="job-17")
    async with lock as mine:
        await Forgotten().run(scoped, lock)
        assert mine.holds == 3
        gc.collect()
        await until(lambda: mine.holds == 1)
        mine.check()
        await answered(locks)
        assert await lock.hold_count() == 1
    assert not await redis.exists(NAME)
    assert len([record for record in caplog.records if "careless" in record.getMessage()]) == 2


async def test_a_task_that_waits_for_a_lock_is_not_destroyed(locks: LockClient) -> None:
    lock = locks.lock(NAME)
    waiting = asyncio.Event()
    granted: list[Lease] = []

    async def wait() -> None:
        waiting.set()
        async with lock as lease:
            granted.append(lease)

    async with lock:
        _ = asyncio.create_task(wait())
        del _
        await until(lambda: lock.statistics().parked == 1)
        gc.collect()
    await until(lambda: len(granted) == 1)


def test_a_loop_that_was_closed_before_is_not_an_error(server: Any) -> None:
    loop = asyncio.new_event_loop()
    forgotten = Forgotten()

    async def main() -> LockClient:
        locks = LockClient.from_url(server.url)
        await forgotten.run(acquired, locks.lock(f"{NAME} of a closed loop"))
        return locks

    locks = loop.run_until_complete(main())
    loop.run_until_complete(locks.aclose())
    loop.close()
    gc.collect()
    assert forgotten.said == ["Task was destroyed but it is pending!"]
