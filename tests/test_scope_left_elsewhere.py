"""An `async with` in an async generator that its consumer abandons: another task leaves it, the lock is released."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, HeldLock, LeaseLostError, LockClient
from tests.support.inside import session_of
from tests.support.observe import freed, until

Enter = Callable[[AsyncRLock], AsyncRLock | HeldLock]
Stream = AsyncGenerator[int, None]
Leave = Callable[[Stream], Awaitable[None]]

NAME = "orders"


async def numbers(scope: AsyncRLock | HeldLock) -> Stream:
    async with scope:
        yield 1
        yield 2


async def break_off(stream: Stream) -> None:
    """The loop finalizes the generator in a task of its own, once nothing refers to it."""


async def close_elsewhere(stream: Stream) -> None:
    async def close() -> None:
        await stream.aclose()

    await asyncio.create_task(close())


async def abandon(stream: Stream, leave: Leave) -> None:
    async for number in stream:
        assert number == 1
        break
    await leave(stream)


async def lose(lock: AsyncRLock) -> None:
    async with lock:
        assert await lock.force_release()
        await asyncio.sleep(60)


each_enter = pytest.mark.parametrize(
    "enter",
    [lambda lock: lock, lambda lock: lock.hold(), lambda lock: lock.hold(lease=60)],
    ids=["async with", "hold", "hold with a lease"],
)
each_leave = pytest.mark.parametrize("leave", [break_off, close_elsewhere])


async def is_released(lock: AsyncRLock, redis: Redis) -> None:
    await freed(redis, NAME)
    assert lock.statistics().held == 0


@each_enter
@each_leave
async def test_the_lock_is_released_and_a_warning_names_it(
    lock: AsyncRLock, redis: Redis, caplog: pytest.LogCaptureFixture, enter: Enter, leave: Leave
) -> None:
    await abandon(numbers(enter(lock)), leave)
    await is_released(lock, redis)
    [warning] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.getMessage().startswith(f"lock {NAME!r}: its `async with` was left by a task")
    assert warning.__dict__["lock_name"] == NAME


@each_leave
async def test_later_scopes_of_the_task_that_entered_work(
    locks: LockClient, lock: AsyncRLock, redis: Redis, leave: Leave
) -> None:
    await abandon(numbers(lock), leave)
    await is_released(lock, redis)
    assert not any(task.scopes for task in session_of(locks).owners.values())
    async with lock as outer, lock.hold():
        assert outer.holds == 2
    with pytest.raises(LeaseLostError, match="by force"):
        await lose(lock)
    # A cancellation that was left over would be raised here.
    await asyncio.sleep(0)
    async with lock:
        assert await lock.held()
    assert not await lock.locked()


@each_leave
async def test_a_scope_that_is_still_open_keeps_its_hold(lock: AsyncRLock, redis: Redis, leave: Leave) -> None:
    async with lock as outer:
        await abandon(numbers(lock), leave)
        await until(lambda: outer.holds == 1)
        outer.check()
        assert await lock.held()
    await is_released(lock, redis)
