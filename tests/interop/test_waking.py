"""An unlock on one side wakes a waiter on the other: by its message, as the lease is far from its end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient
from aiolock._embedded_server import Server
from tests.interop.service import Redisson
from tests.support.observe import until
from tests.support.waiters import Waiters

NAME = "orders"
SOON = 0.05
# The waiter must be woken soon in one of them, as a slow machine may spoil some rounds.
ROUNDS = 20
LEASE = 600


@pytest.fixture
async def operator(server: Server, redis: Redis) -> AsyncIterator[LockClient]:
    """A client that neither holds nor waits."""
    async with LockClient(redis) as client:
        yield client


async def soon(round_: Callable[[], Awaitable[float]]) -> None:
    """Run rounds until one took no longer than it should; none may take as long as a lease."""
    took: list[float] = []
    while not took or min(took) > SOON:
        assert len(took) < ROUNDS, took
        async with asyncio.timeout(30):
            took.append(await round_())


@pytest.mark.parametrize("how", ["release", "force_release", "forceUnlock"])
async def test_a_thread_is_woken(locks: LockClient, operator: LockClient, redisson: Redisson, how: str) -> None:
    lock = locks.lock(NAME, owner="holder")

    async def one() -> float:
        lease = await lock.acquire(lease=LEASE)
        waiting = redisson.post("lock", NAME, lease=LEASE)
        await until(redisson.parked, within=20)
        began = monotonic()
        if how == "release":
            await lease.release()
        elif how == "force_release":
            assert await operator.lock(NAME).force_release()
        else:
            assert await redisson.ask("forceUnlock", NAME, thread=2)
        got = await waiting
        if how != "release":
            with pytest.raises(LeaseLostError):
                await lease.release()
        await redisson.ask("unlock", NAME)
        return got.ended - began

    await soon(one)


@pytest.mark.parametrize("how", ["unlock", "force_release", "forceUnlock"])
async def test_a_task_is_woken(locks: LockClient, operator: LockClient, redisson: Redisson, how: str) -> None:
    async def one() -> float:
        await redisson.ask("lock", NAME, lease=LEASE)
        async with Waiters(locks, NAME, go=True) as waiters:
            await waiters.park(1)
            began = monotonic()
            if how == "unlock":
                began = (await redisson.post("unlock", NAME)).began
            elif how == "force_release":
                assert await operator.lock(NAME).force_release()
            else:
                began = (await redisson.post("forceUnlock", NAME, thread=2)).began
            await waiters.granted(1, within=30)
            return monotonic() - began

    await soon(one)


async def test_all_waiters_on_both_sides_get_their_turn(locks: LockClient, redisson: Redisson) -> None:
    async def in_a_thread(number: int) -> None:
        await redisson.ask("lock", NAME, thread=number, lease=LEASE)
        await redisson.ask("unlock", NAME, thread=number)

    async def parked() -> bool:
        return all([await redisson.parked(number) for number in range(3)])

    lease = await locks.lock(NAME, owner="holder").acquire(lease=LEASE)
    async with asyncio.timeout(60), Waiters(locks, NAME, go=True) as waiters, asyncio.TaskGroup() as group:
        await waiters.park(3)
        for number in range(3):
            group.create_task(in_a_thread(number))
        await until(parked, within=20)
        await lease.release()
        await waiters.granted(3, within=30)
