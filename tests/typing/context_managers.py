"""Every context manager of the public surface, as type checkers see it: checked by mypy and pyright, never run."""

from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import assert_type

from fastapi import FastAPI
from redis.asyncio import Redis

import aiolock
from aiolock import (
    AsyncCountDownLatch,
    Lease,
    LockClient,
    MultiLease,
    Term,
    Turn,
)
from aiolock.fastapi import LocksState, lifespan


def leases(locks: LockClient, lease: Lease) -> list[AbstractAsyncContextManager[Lease]]:
    halves = locks.read_write_lock("a")
    permits = locks.semaphore("a", 2)
    return [
        lease,
        locks.lock("a"),
        locks.lock("a").hold(wait=1),
        locks.fair_lock("a"),
        locks.fair_lock("a").hold(),
        halves.read,
        halves.write,
        halves.write.hold(),
        permits,
        permits.hold(),
    ]


async def entered(locks: LockClient, lease: MultiLease, term: Term) -> None:
    async with AsyncExitStack() as stack:
        assert_type(await stack.enter_async_context(locks), LockClient)
        assert_type(await stack.enter_async_context(locks.lock("a")), Lease)
        assert_type(await stack.enter_async_context(locks.lock("a").hold()), Lease)
        assert_type(await stack.enter_async_context(locks.multi("a", "b")), MultiLease)
        assert_type(await stack.enter_async_context(locks.multi("a", "b").hold()), MultiLease)
        assert_type(await stack.enter_async_context(lease), MultiLease)
        assert_type(await stack.enter_async_context(locks.counting_semaphore("a", 2)), None)
        assert_type(await stack.enter_async_context(locks.counting_semaphore("a", 2).hold()), None)
        assert_type(await stack.enter_async_context(locks.leader("a")), Term)
        assert_type(await stack.enter_async_context(term), Term)
        assert_type(await stack.enter_async_context(locks.once("a", keep=1)), Turn)
        await stack.enter_async_context(aiolock.background())


async def with_frameworks(redis: Redis, app: FastAPI) -> None:
    async with AsyncExitStack() as stack:
        assert_type(await stack.enter_async_context(lifespan(redis)(app)), LocksState)


async def no_context_manager(latch: AsyncCountDownLatch) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(latch)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
