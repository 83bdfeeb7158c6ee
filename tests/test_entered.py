"""Blocks of a leader and of `once`, whose handle many tasks share: each is left by itself, in any task."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncLeader, AsyncOnce, LockClient, LockConfig, MultiLease, Term
from tests.support.observe import freed

Make = Callable[[LockClient], AsyncLeader | AsyncOnce]
HANDLES: dict[str, Make] = {
    "orders": lambda locks: locks.leader("orders"),
    "aiolock_once:{orders}": lambda locks: locks.once("orders", keep=60, wait=0),
}
each_handle = pytest.mark.parametrize(("key", "make"), HANDLES.items(), ids=["leader", "once"])


async def test_stacks_of_one_task_may_be_closed_out_of_order(locks: LockClient, redis: Redis) -> None:
    leader, stacks = locks.leader("orders"), [AsyncExitStack(), AsyncExitStack()]
    for stack in stacks:
        await stack.enter_async_context(leader)
    for stack in stacks:
        assert await redis.exists("orders")
        await stack.aclose()
    assert not await redis.exists("orders")
    with pytest.raises(RuntimeError, match="was not entered, or was left before"):
        await leader.__aexit__(None, None, None)


async def forgotten_in(handle: AsyncLeader | AsyncOnce, *work: Coroutine[Any, Any, object]) -> None:
    """Let a task that nobody refers to wait, in a block, for something that nobody refers to."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    inside = asyncio.Event()

    async def wait() -> None:
        async with handle as entered:
            for each in work:
                assert isinstance(entered, Term)
                _ = entered.start(each)
            inside.set()
            await asyncio.get_running_loop().create_future()

    _ = asyncio.create_task(wait())
    del _
    await inside.wait()
    await asyncio.sleep(0)
    gc.collect()


@each_handle
async def test_a_task_that_nobody_refers_to_any_more_is_destroyed_in_a_block(
    redis: Redis, key: str, make: Make
) -> None:
    async with LockClient(redis, config=LockConfig(lease=60)) as locks:
        handle = make(locks)
        await forgotten_in(handle)
        await freed(redis, key)
        async with handle:
            pass


async def test_a_leader_that_nobody_refers_to_any_more_is_destroyed_when_its_work_has_ended(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=60)) as locks:
        leader, go = locks.leader("orders"), asyncio.Event()
        await forgotten_in(leader, go.wait())
        assert await redis.exists("orders")
        go.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        await freed(redis, "orders")


async def test_a_stack_ends_the_block_of_its_own_task_first(locks: LockClient, other: LockClient) -> None:
    once, elsewhere, stack = (
        locks.once("orders", keep=60, wait=0),
        other.once("orders", keep=60, wait=0),
        AsyncExitStack(),
    )
    inside, go = asyncio.Event(), asyncio.Event()

    async def skipped() -> None:
        async with once as turn:
            assert not turn
            inside.set()
            await go.wait()

    turn = await stack.enter_async_context(once)
    task = asyncio.create_task(skipped())
    await inside.wait()
    turn.result = "done"
    await stack.aclose()
    async with elsewhere as later:
        assert later.result == "done"
    go.set()
    await task


async def test_blocks_of_several_locks_that_no_task_leaves_do_not_pile_up(locks: LockClient) -> None:
    both = locks.multi("orders", "stock")

    async def forsake() -> None:
        await AsyncExitStack().enter_async_context(both)

    for _ in range(100):
        await asyncio.create_task(forsake())
    gc.collect()
    assert sum(isinstance(each, MultiLease) for each in gc.get_objects()) < 50
