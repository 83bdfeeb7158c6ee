"""A loss cancels the task that entered the block, wherever it is by then, and says why. It cancels no other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LeaseLostError, LockClient
from tests.support.observe import freed

NAME = "orders"


async def numbers(lock: AsyncRLock) -> AsyncIterator[int]:
    async with lock:
        yield 1
        yield 2


async def test_the_consumer_of_a_generator_that_holds_the_lock_is_told_why_it_is_cancelled(lock: AsyncRLock) -> None:
    stream = numbers(lock)

    async def consume() -> None:
        async for _ in stream:
            await lock.force_release()
            await asyncio.sleep(60)

    consumer = asyncio.create_task(consume())
    with pytest.raises(asyncio.CancelledError, match=f"^lock '{NAME}' lost: forced$"):
        await consumer
    with contextlib.suppress(LeaseLostError):
        await stream.aclose()  # type: ignore[attr-defined]


async def test_a_body_sees_why_it_is_cancelled(lock: AsyncRLock) -> None:
    with pytest.raises(LeaseLostError) as lost:
        async with lock:
            await lock.force_release()
            await asyncio.sleep(60)
    assert str(lost.value.__cause__) == f"lock '{NAME}' lost: forced"


async def test_a_block_that_was_not_left_does_not_cancel_the_task_that_closes_the_client(redis: Redis) -> None:
    stack = contextlib.AsyncExitStack()
    with pytest.raises(KeyError, match="its own"):
        async with LockClient(redis) as locks:
            lease = await stack.enter_async_context(locks.lock(NAME))
            raise KeyError("its own")
    await freed(redis, NAME)
    # A cancellation still to come would be raised here.
    await asyncio.sleep(0.01)
    assert lease.lost.is_set()
    with pytest.raises(LeaseLostError, match="client was closed"):
        await stack.aclose()


async def test_an_error_in_such_a_block_is_not_replaced(redis: Redis) -> None:
    locks = LockClient(redis)
    with pytest.raises(KeyError, match="its own") as kept:
        async with locks.lock(NAME):
            await locks.aclose()
            raise KeyError("its own")
    assert any("client was closed" in note for note in kept.value.__notes__)
    assert not await redis.exists(NAME)


async def test_tasks_that_close_at_the_same_time_are_spared_and_other_holders_are_told(redis: Redis) -> None:
    locks = LockClient(redis)
    inside = [asyncio.Event() for _ in range(3)]

    async def close(number: int) -> None:
        async with locks.lock(f"{NAME} {number}"):
            inside[number].set()
            await inside[1 - number].wait()
            await locks.aclose()

    async def work() -> None:
        async with locks.lock(f"{NAME} 2"):
            inside[2].set()
            await asyncio.sleep(60)

    worker = asyncio.create_task(work())
    await inside[2].wait()
    ends = await asyncio.gather(close(0), close(1), worker, return_exceptions=True)
    assert [str(end.__cause__) for end in ends if isinstance(end, LeaseLostError)] == [
        "None",
        "None",
        f"lock '{NAME} 2' lost: closed",
    ]
