"""A lease: what it says, how it is renewed, and how it ends."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, Lease, LeaseLostError, LockClient, NotHeldError
from aiolock._events import LockEvent, Lost, Orphaned
from aiolock._server import Server
from tests.support.holding import lock_client, seize
from tests.support.observe import until


async def test_a_lease_says_what_is_held(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock("a")
    outer = await lock.acquire(lease=10)
    inner = await lock.acquire(lease=20)
    assert (outer.name, outer.lease, inner.lease) == ("a", 10, 20)
    assert outer.token == inner.token == int(await redis.hget("a", "aiolock:token") or 0)
    assert 19 < outer.remaining <= 20
    assert (outer.holds, inner.holds) == (2, 2)
    outer.check()
    assert not outer.lost.is_set()
    await inner.release()
    assert (outer.holds, inner.holds, inner.remaining) == (1, 0, 0)
    with pytest.raises(NotHeldError):
        inner.check()
    await outer.release()
    assert (outer.holds, outer.remaining) == (0, 0)


async def test_remaining_is_never_more_than_the_server_grants(redis: Redis, locks: LockClient) -> None:
    lease = await locks.lock("a").acquire(lease=5)
    for _ in range(20):
        remaining = lease.remaining
        assert remaining < int(await redis.pttl("a")) / 1000 + 0.05
        assert remaining > 4
    await lease.release()


async def test_waiting_for_the_loss_of_a_released_lease_goes_on_for_ever(locks: LockClient) -> None:
    lease = await locks.lock("a").acquire(lease=0.2)
    await lease.release()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await lease.lost
    assert not lease.lost.is_set()


async def test_several_tasks_may_wait_for_the_loss(locks: LockClient) -> None:
    lock = locks.lock("a")
    lease = await lock.acquire()

    async def wait() -> str:
        return await lease.lost

    waiting = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    await lock.force_release()
    assert await asyncio.gather(*waiting) == ["forced"] * 3
    assert await lease.lost == "forced", "also when it is long known"


async def test_release_after_a_loss_raises_once_for_each_hold_and_then_says_not_held(locks: LockClient) -> None:
    lock = locks.lock("a")
    leases = [await lock.acquire() for _ in range(3)]
    await lock.force_release()
    await_release: list[Callable[[], Coroutine[Any, Any, None]]] = [leases[0].release, lock.release, lock.release]
    for release in await_release:
        with pytest.raises(LeaseLostError) as lost:
            await release()
        assert lost.value.token == leases[0].token
    for release in (lock.release, leases[0].release):
        with pytest.raises(NotHeldError):
            await release()


@pytest.mark.parametrize("forget", [True, False])
async def test_acquire_after_a_loss_is_a_fresh_grant_with_a_greater_token(
    redis: Redis, locks: LockClient, forget: bool
) -> None:
    lock = locks.lock("a")
    lost = [await lock.acquire(), await lock.acquire()]
    await redis.delete(*(["a", "aiolock_token:{a}"] if forget else ["a"]))
    with pytest.raises(LeaseLostError):
        await lost[1].release()
    fresh = await lock.acquire()
    assert fresh.token > lost[0].token
    assert (fresh.holds, await lock.hold_count()) == (1, 1)
    with pytest.raises(LeaseLostError):
        lost[0].check()
    with pytest.raises(LeaseLostError):
        await lost[0].release()
    fresh.check()
    assert await lock.held(), "what is given back late was the lost hold's"
    await lock.release()
    assert not await lock.locked()


async def test_a_nested_acquire_learns_of_the_loss_and_takes_nothing(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock("a")
    lease = await lock.acquire()
    await redis.delete("a")
    with pytest.raises(LeaseLostError) as lost:
        await lock.acquire()
    assert lost.value.reason == "expired"
    assert lease.lost.is_set()
    assert not await redis.exists("a")
    with pytest.raises(LeaseLostError):
        await lock.release()
    with pytest.raises(NotHeldError):
        await lock.release()


async def test_a_release_that_leaves_holds_learns_of_the_loss(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock("a")
    outer, inner = await lock.acquire(), await lock.acquire()
    await seize(redis, "a")
    with pytest.raises(LeaseLostError) as lost:
        await inner.release()
    assert lost.value.reason == "taken"
    assert outer.lost.is_set()
    assert await redis.exists("a")
    with pytest.raises(LeaseLostError):
        await outer.release()


@pytest.mark.parametrize("duration", [20, 20.0, timedelta(seconds=20)])
async def test_renew_lengthens(redis: Redis, locks: LockClient, duration: float | timedelta) -> None:
    lease = await locks.lock("a").acquire(lease=2)
    await lease.renew(duration)
    assert 18 < lease.remaining <= 20
    assert 19_000 < await redis.pttl("a") <= 20_000
    await lease.release()


async def test_renew_never_shortens(redis: Redis, locks: LockClient) -> None:
    lease = await locks.lock("a").acquire(lease=20)
    await lease.renew(1)
    assert lease.remaining > 15
    assert await redis.pttl("a") > 15_000
    await lease.release()


async def test_renew_without_a_duration_starts_the_lease_anew(redis: Redis, locks: LockClient) -> None:
    lease = await locks.lock("a").acquire(lease=0.8)
    for _ in range(4):
        await asyncio.sleep(0.3)
        await lease.renew()
    lease.check()
    assert await asyncio.wait_for(lease.lost, 5) == "expired"


async def test_renew_from_another_task_and_after_the_release(locks: LockClient) -> None:
    lease = await locks.lock("a").acquire(lease=2)
    await asyncio.create_task(lease.renew(20))
    assert lease.remaining > 15
    await lease.release()
    with pytest.raises(NotHeldError):
        await lease.renew()


async def test_renew_of_what_another_took_says_so_and_leaves_it_alone(redis: Redis, locks: LockClient) -> None:
    lease = await locks.lock("a").acquire(lease=20)
    await seize(redis, "a")
    await redis.pexpire("a", 5000)
    with pytest.raises(LeaseLostError) as lost:
        await lease.renew()
    assert (lost.value.name, lost.value.token, lost.value.reason) == ("a", lease.token, "taken")
    assert await redis.pttl("a") <= 5000


async def test_a_loss_without_a_scope_interrupts_nothing(server: Server, redis: Redis) -> None:
    events: list[LockEvent] = []
    async with lock_client(server.url, on_event=events.append) as client:
        lock = client.lock("a")
        leases = [await lock.acquire(), await lock.try_lock()]
        await lock.force_release()
        await asyncio.sleep(0.05)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert all(lease is not None and lease.lost.is_set() for lease in leases)
        first = leases[0]
        assert first is not None
        assert [event for event in events if isinstance(event, Lost)] == [Lost("a", *_who(events), "forced")]


def _who(events: list[LockEvent]) -> tuple[str, int]:
    return events[0].owner, events[0].token


async def ends(lock: AsyncRLock) -> None:
    await lock.acquire()
    await lock.acquire(lease=60)


async def fails(lock: AsyncRLock) -> None:
    await lock.acquire()
    raise ValueError("its own")


async def waits(lock: AsyncRLock) -> None:
    await lock.acquire()
    await asyncio.sleep(60)


@pytest.mark.parametrize("end", [ends, fails, waits])
async def test_a_task_that_ends_while_it_holds_is_released_at_once_with_a_warning(
    server: Server,
    redis: Redis,
    caplog: pytest.LogCaptureFixture,
    end: Callable[[AsyncRLock], Coroutine[Any, Any, None]],
) -> None:
    events: list[LockEvent] = []
    async with lock_client(server.url, on_event=events.append) as client, LockClient(redis) as others:
        lock = client.lock("orders:42")
        task = asyncio.create_task(end(lock), name="careless")
        await until(lambda: lock.statistics().held == 1 or task.done())
        if end is waits:
            task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(2):
            await others.lock("orders:42", owner="next").acquire()
        assert client.statistics().held == 0
    orphaned = [event for event in events if isinstance(event, Orphaned)]
    assert [(event.name, event.task, event.holds) for event in orphaned] == [
        ("orders:42", "careless", 2 if end is ends else 1)
    ]
    warning = next(record for record in caplog.records if record.levelno == logging.WARNING)
    assert "orders:42" in warning.getMessage()
    assert "careless" in warning.getMessage()
    assert not any(isinstance(event, Lost) for event in events)


async def test_a_task_that_ends_after_a_loss_is_no_orphan_and_frees_nobody_else(
    redis: Redis, locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    lock = locks.lock("a")

    async def hold_and_lose() -> Lease:
        lease = await lock.acquire()
        await lock.force_release()
        return lease

    lease = await asyncio.create_task(hold_and_lose())
    await seize(redis, "a")
    await until(lambda: locks.statistics().pending == 0)
    assert lease.lost.is_set()
    assert await redis.exists("a")
    assert not any("ended while" in record.getMessage() for record in caplog.records)


async def test_what_a_named_owner_holds_outlives_the_task(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock("a", owner="job-17")

    async def take() -> Lease:
        return await lock.acquire()

    lease = await asyncio.create_task(take())
    await asyncio.sleep(0.02)
    assert await redis.exists("a")
    lease.check()
    await lock.release()
    assert not await redis.exists("a")
