"""An owner is one task of one client, never twice the same, and its holds end with it."""

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import ref

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, Lease, LeaseLostError, LockClient, LockEvent, Lost, NotHeldError, Orphaned
from aiolock._core.owners import Owners, is_named, running_task
from aiolock._embedded_server import Server
from tests.support.calls import acquire, acquire_and_release
from tests.support.holding import lock_client, seize
from tests.support.inside import hold_of, session_of
from tests.support.observe import answered, until

NAME = "owners"
OURS = {b"aiolock:acquisition", b"aiolock:token", b"aiolock:step", b"aiolock:renewal"}


async def test_ten_thousand_tasks_never_share_an_owner_id() -> None:
    ids: list[str] = []
    addresses: set[int] = set()
    owners = Owners("client", lambda task: None)

    async def note() -> None:
        ids.append(owners[ref(running_task())].owner)
        addresses.add(id(asyncio.current_task()))

    for _ in range(10_000):
        await asyncio.create_task(note())
    assert len(set(ids)) == 10_000
    # Task ids are used again, or this test would show nothing.
    assert len(addresses) < 10_000


async def test_dead_tasks_are_not_kept(locks: LockClient) -> None:
    for _ in range(100):
        await asyncio.create_task(acquire_and_release(locks.lock(NAME)))
    gc.collect()
    assert len(session_of(locks).owners) <= 1


async def test_the_end_of_a_task_is_reported_once_though_its_record_is_kept() -> None:
    ends: list[tuple[str, str]] = []
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    owners = Owners("client", lambda task: ends.append((task.owner, task.name)))

    async def ask_twice() -> Any:
        assert owners[ref(running_task())] is owners[ref(running_task())]
        return owners[ref(running_task())]

    record = await asyncio.create_task(ask_twice(), name="worker 7")
    gc.collect()
    await asyncio.sleep(0)
    assert ends == [(record.owner, "worker 7")]
    assert is_named(owners.named("job")) > is_named(record.owner)
    assert failures == []


async def test_tasks_in_a_row_are_as_many_owners_to_the_server(redis: Redis, locks: LockClient) -> None:
    owners: set[bytes | str] = set()
    # The numbers are drawn in one place, which the first test tries ten thousand times.
    count = 100

    async def hold() -> None:
        async with locks.lock(NAME):
            owners.update(set(await redis.hkeys(NAME)) - OURS)

    for _ in range(count):
        await asyncio.create_task(hold())
    assert len(owners) == count


async def test_two_clients_in_one_task_are_two_owners(redis: Redis, locks: LockClient) -> None:
    async with LockClient(redis) as other, locks.lock(NAME):
        assert await other.lock(NAME).try_lock() is None
        with pytest.raises(NotHeldError):
            await other.lock(NAME).release()


async def test_a_named_owner_is_none_of_the_tasks_and_the_same_in_each(locks: LockClient) -> None:
    job = locks.lock(NAME, owner="1")
    async with locks.lock(NAME):
        assert await job.try_lock() is None
    await asyncio.create_task(acquire(job))
    assert await locks.lock(NAME).try_lock() is None
    assert await job.hold_count() == 1
    await job.release()
    assert not await job.locked()


async def test_a_lock_is_not_used_outside_of_a_task(locks: LockClient) -> None:
    errors: list[BaseException] = []

    def callback() -> None:
        coroutine = locks.lock(NAME).acquire()
        try:
            coroutine.send(None)
        except RuntimeError as error:
            errors.append(error)

    asyncio.get_running_loop().call_soon(callback)
    await until(lambda: len(errors) == 1)
    assert "asyncio task" in str(errors[0])


# A task that ends.


async def ends(lock: AsyncRLock) -> Lease:
    await lock.acquire()
    return await lock.acquire(lease=60)


async def fails(lock: AsyncRLock) -> Lease:
    await lock.acquire()
    raise ValueError("its own")


async def waits(lock: AsyncRLock) -> Lease:
    lease = await lock.acquire()
    await asyncio.sleep(60)
    return lease


@pytest.mark.parametrize("end", [ends, fails, waits])
async def test_a_task_that_ends_while_it_holds_is_released_at_once_with_a_warning(
    server: Server,
    other: LockClient,
    caplog: pytest.LogCaptureFixture,
    end: Callable[[AsyncRLock], Coroutine[Any, Any, Lease]],
) -> None:
    events: list[LockEvent] = []
    async with lock_client(server.url, on_event=events.append) as client:
        lock = client.lock("orders:42")
        task = asyncio.create_task(end(lock), name="careless")
        await until(lambda: lock.statistics().held == 1 or task.done())
        if end is waits:
            task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(15), other.lock("orders:42"):
            pass
        assert client.statistics().held == 0
        if end is ends:
            lease = task.result()
            assert (lease.lost.is_set(), await lease.lost, lease.remaining, lease.holds) == (True, "orphaned", 0, 0)
            for use in (lease.renew, lease.__aenter__, lease.release):
                with pytest.raises(
                    LeaseLostError, match=r"the task or thread that acquired it has ended.*'careless'"
                ) as lost:
                    await use()
                assert (lost.value.reason, lost.value.task) == ("orphaned", "careless")
            with pytest.raises(NotHeldError):
                await lease.release()
    orphaned = [event for event in events if isinstance(event, Orphaned)]
    assert [(event.name, event.task, event.holds) for event in orphaned] == [
        ("orders:42", "careless", 2 if end is ends else 1)
    ]
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "orders:42" in warning.getMessage()
    assert "careless" in warning.getMessage()
    assert [event.reason for event in events if isinstance(event, Lost)] == ["orphaned"]


async def test_an_orphaned_lock_is_not_renewed_when_one_of_its_leases_is_given_back(locks: LockClient) -> None:
    lock, over = locks.lock(NAME), asyncio.Event()
    acquired: asyncio.Future[tuple[Lease, Lease]] = asyncio.get_running_loop().create_future()

    async def own() -> None:
        acquired.set_result((await lock.acquire(), await lock.acquire()))
        await over.wait()

    owner = asyncio.create_task(own())
    first, second = await acquired
    async with first:
        over.set()
        await owner
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(60)
        await second.release()
        assert not hold_of(first).watch.renews


async def test_a_task_that_ends_after_a_loss_is_no_orphan_and_leaves_the_next_holder_alone(
    redis: Redis, locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    lock = locks.lock("a")

    async def hold_and_lose() -> Lease:
        lease = await lock.acquire()
        await lock.force_release()
        return lease

    lease = await asyncio.create_task(hold_and_lose())
    await seize(redis, "a")
    await answered(locks)
    assert lease.lost.is_set()
    assert await redis.exists("a")
    assert not any("ended while" in record.getMessage() for record in caplog.records)


async def test_names_that_share_a_channel_are_locks_of_their_own(locks: LockClient, other: LockClient) -> None:
    """`a` and `{a}` share one by Redisson's rule of braces."""
    async with locks.lock("a") as plain:
        braced = await locks.lock("{a}").try_lock()
        assert braced is not None
        assert (plain.holds, braced.holds, braced.name) == (1, 1, "{a}")
        assert await other.lock("{a}").try_lock() is None
        await braced.release()
        assert await other.lock("a").locked()
        assert not await other.lock("{a}").locked()
        plain.check()
