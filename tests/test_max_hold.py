"""`LockConfig.max_hold`: the watchdog renews a lock for no longer than that, and then its holder is told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig, LockEvent, Lost
from tests.support.inside import hold_of, session_of
from tests.support.observe import until

MAX_HOLD = 1.5
PRIMITIVES: dict[str, Callable[[LockClient], AbstractAsyncContextManager[Any]]] = {
    "lock": lambda locks: locks.lock("lock"),
    "fair lock": lambda locks: locks.fair_lock("fair"),
    "read lock": lambda locks: locks.read_write_lock("read").read,
    "write lock": lambda locks: locks.read_write_lock("write").write,
    "permit": lambda locks: locks.semaphore("permits", 2),
    "multi lock": lambda locks: locks.multi("one", "two"),
    "once": lambda locks: locks.once("once", keep=60),
    "leader": lambda locks: locks.leader("leader"),
}


@pytest.fixture
def told() -> list[LockEvent]:
    return []


@pytest.fixture
async def capped(redis: Redis, told: list[LockEvent]) -> AsyncIterator[LockClient]:
    config = LockConfig(lease=1, renew_interval=0.1, max_hold=MAX_HOLD, on_event=told.append)
    async with LockClient(redis, config=config) as client:
        yield client


async def test_every_renewed_primitive_is_lost_when_it_was_held_for_that_long(
    capped: LockClient, told: list[LockEvent], redis: Redis
) -> None:
    async def hold(primitive: Callable[[LockClient], AbstractAsyncContextManager[Any]]) -> str:
        with pytest.raises(LeaseLostError, match="max_hold or longer") as lost:
            async with primitive(capped):
                await asyncio.Event().wait()
        return str(lost.value.reason)

    reasons = await asyncio.gather(*(hold(each) for each in PRIMITIVES.values()))
    assert dict(zip(PRIMITIVES, reasons, strict=True)) == dict.fromkeys(PRIMITIVES, "max_hold")
    held = {event.name: event.held for event in told if isinstance(event, Lost)}
    assert len(held) == len(PRIMITIVES) + 1
    assert all(MAX_HOLD - 0.5 < each < MAX_HOLD + 1 for each in held.values())
    async with asyncio.timeout(30):
        while await redis.exists("lock", "fair", "read", "write", "one", "two", "leader"):
            await asyncio.sleep(0.01)


async def test_a_nested_acquire_near_the_end_leaves_the_deadline_guarded(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=30, renew_interval=10, max_hold=30)) as client:
        hold = hold_of(await client.lock("a").acquire())
        # It was granted 25 seconds ago and no renewal was due yet; a nested acquire gets what is left of `max_hold`.
        hold.since -= 25
        hold.extend(monotonic(), 5.0)
        session_of(client).watchdog.watch(hold)
        assert hold.watch.number == 0
        assert hold.watch.renew_at >= hold.deadline
        assert hold.watch.guard is not None


async def test_a_nested_acquire_lets_it_live_no_longer(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=10, renew_interval=0.05, max_hold=10)) as client:
        lock = client.lock("a")
        async with lock:
            await until(lambda: lock.statistics().renewals == 10)
            async with lock:
                assert await redis.pttl("a") < 9_800


async def test_a_lease_that_is_asked_for_may_be_longer(capped: LockClient) -> None:
    lease = await capped.lock("a").acquire(lease=60)
    assert lease.remaining > MAX_HOLD
    await lease.release()
