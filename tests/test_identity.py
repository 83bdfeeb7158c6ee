"""Identity: an owner is one task of one client, and never twice the same."""

import asyncio
import gc
import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import ClientClosedError, Lease, LockClient, NotHeldError
from aiolock._owner import Owners
from tests.support.observe import until

NAME = "identity"
OURS = {b"aiolock:acquisition", b"aiolock:token", b"aiolock:step", b"aiolock:renewal"}
Acquire = Callable[[LockClient], Coroutine[Any, Any, object]]
ACQUIRES: dict[str, Acquire] = {
    "acquire": lambda locks: locks.lock(NAME).acquire(),
    "try_lock": lambda locks: locks.lock(NAME).try_lock(),
    "waiting try_lock": lambda locks: locks.lock(NAME).try_lock(1),
    "async with": lambda locks: locks.lock(NAME).__aenter__(),
    "hold": lambda locks: locks.lock(NAME).hold().__aenter__(),
}


@pytest.mark.parametrize("collect", [True, False])
async def test_ten_thousand_tasks_never_share_an_owner_id(collect: bool) -> None:
    ids: list[str] = []
    addresses: set[int] = set()
    owners = Owners("client", lambda owner, task: None)

    async def note() -> None:
        ids.append(owners.current())
        addresses.add(id(asyncio.current_task()))

    (gc.enable if collect else gc.disable)()
    try:
        for number in range(10_000):
            await asyncio.create_task(note())
            if collect and number % 1000 == 0:
                gc.collect()
    finally:
        gc.enable()
    assert len(set(ids)) == 10_000
    assert len(addresses) < 10_000  # Or it would not have been a test: task ids are used again.


async def test_tasks_in_a_row_are_as_many_owners_to_the_server(redis: Redis, locks: LockClient) -> None:
    owners: set[bytes | str] = set()
    count = 500  # The numbers are drawn in one place, tried ten thousand times above.

    async def hold() -> None:
        async with locks.lock(NAME):
            owners.update(set(await redis.hkeys(NAME)) - OURS)

    for _ in range(count):
        await asyncio.create_task(hold())
    assert len(owners) == count


async def test_a_task_keeps_its_id_and_its_holds_nest(locks: LockClient) -> None:
    async with locks.lock(NAME) as outer, locks.lock(NAME) as inner:
        assert inner.token == outer.token
        assert await locks.lock(NAME).hold_count() == 2


async def test_a_child_task_is_another_owner(locks: LockClient) -> None:
    lock = locks.lock(NAME)

    async def child() -> Lease | None:
        assert not await lock.held()
        with pytest.raises(NotHeldError):
            await lock.release()
        return await lock.try_lock()

    async with lock:
        assert await asyncio.create_task(child()) is None
        assert list(await asyncio.gather(child(), child())) == [None, None]
        async with asyncio.TaskGroup() as group:
            grown = group.create_task(child())
        assert grown.result() is None
        assert await lock.hold_count() == 1


async def test_two_clients_in_one_task_are_two_owners(redis: Redis, locks: LockClient) -> None:
    async with LockClient(redis) as other, locks.lock(NAME):
        assert await other.lock(NAME).try_lock() is None
        with pytest.raises(NotHeldError):
            await other.lock(NAME).release()


async def test_a_named_owner_is_none_of_the_tasks_and_the_same_in_each(locks: LockClient) -> None:
    job = locks.lock(NAME, owner="1")  # The name looks like the number of a task.
    async with locks.lock(NAME):
        assert await job.try_lock() is None

    async def take() -> None:
        await job.acquire()

    await asyncio.create_task(take())
    assert await locks.lock(NAME).try_lock() is None
    assert await job.hold_count() == 1
    await job.release()
    assert not await job.locked()


@pytest.mark.parametrize("acquire", ACQUIRES.values(), ids=ACQUIRES)
async def test_an_acquire_that_is_the_whole_of_a_task_is_refused(
    redis: Redis, locks: LockClient, acquire: Acquire
) -> None:
    task = asyncio.create_task(acquire(locks))
    with pytest.raises(RuntimeError, match="whole of a task"):
        await task
    results = await asyncio.gather(acquire(locks), acquire(locks), return_exceptions=True)
    assert [type(result) for result in results] == [RuntimeError] * 2
    with pytest.raises(RuntimeError, match="named owner"):
        await asyncio.shield(acquire(locks))
    with pytest.raises(RuntimeError, match="whole of a task"):
        await asyncio.ensure_future(acquire(locks))
    assert await redis.exists(NAME) == 0
    assert locks.statistics().commands == 0


@pytest.mark.parametrize("acquire", ACQUIRES.values(), ids=ACQUIRES)
async def test_wait_for_never_leaves_a_lock_with_a_task_that_has_ended(
    redis: Redis, locks: LockClient, acquire: Acquire
) -> None:
    """Up to 3.11 `wait_for` makes a task of what it waits for; later versions await it in place."""
    if sys.version_info < (3, 12):
        with pytest.raises(RuntimeError, match=r"wait_for on Python 3\.11"):
            await asyncio.wait_for(acquire(locks), 5)
        assert await redis.exists(NAME) == 0
    else:
        await asyncio.wait_for(acquire(locks), 5)
        assert await locks.lock(NAME).held()


async def test_a_task_group_that_starts_an_acquire_is_told_so(locks: LockClient) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(locks.lock(NAME).acquire())
    assert "whole of a task" in str(caught.value.exceptions[0])


async def test_a_named_owner_may_acquire_in_a_task_of_its_own(locks: LockClient) -> None:
    job = locks.lock(NAME, owner="job")
    lease = await asyncio.create_task(job.acquire())
    assert await asyncio.wait_for(job.try_lock(1), 5)
    await lease.release()
    await job.release()


async def test_a_task_that_ends_while_holding_is_released_at_once_with_a_warning(
    locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    lock = locks.lock(NAME)

    async def forgetful() -> Lease:
        await lock.acquire()
        return await lock.acquire()

    lease = await asyncio.create_task(forgetful(), name="the forgetful one")
    async with asyncio.timeout(5), lock:
        assert lease.token > 0
    with pytest.raises(NotHeldError):
        await lease.release()
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "the forgetful one" in record.message
    assert NAME in record.message


@pytest.mark.parametrize("how", ["raises", "is cancelled"])
async def test_a_task_that_dies_while_holding_is_released_at_once(locks: LockClient, how: str) -> None:
    lock = locks.lock(NAME)

    async def dying() -> None:
        await lock.acquire()
        if how == "raises":
            raise ValueError("a bug")
        await asyncio.sleep(60)

    task = asyncio.create_task(dying())
    await until(lambda: lock.statistics().held == 1 or task.done())
    task.cancel()
    assert isinstance(*await asyncio.gather(task, return_exceptions=True), (ValueError, asyncio.CancelledError))
    async with asyncio.timeout(5), lock:
        pass


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_eager_tasks_are_owners_of_their_own(locks: LockClient) -> None:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - unknown to Python 3.11
    lock = locks.lock(NAME)

    async def attempt() -> Lease | None:
        return await lock.try_lock()

    try:
        async with lock:
            assert await asyncio.create_task(attempt()) is None
            with pytest.raises(RuntimeError, match="whole of a task"):
                await asyncio.create_task(lock.try_lock())
        assert await asyncio.create_task(attempt()) is not None
        async with asyncio.timeout(5), lock:  # That task has ended.
            pass
    finally:
        loop.set_task_factory(None)


async def test_outside_of_a_task_only_a_named_owner_can_be_asked_for(locks: LockClient) -> None:
    errors: list[BaseException] = []

    def callback() -> None:
        coroutine = locks.lock(NAME).acquire()
        try:
            coroutine.send(None)
        except RuntimeError as error:
            errors.append(error)

    asyncio.get_running_loop().call_soon(callback)
    await until(lambda: len(errors) == 1)
    assert "outside of one" in str(errors[0])


def uses(locks: LockClient) -> dict[str, Callable[[], Coroutine[Any, Any, object]]]:
    lock = locks.lock(NAME)
    return {
        "acquire": lock.acquire,
        "try_lock": lock.try_lock,
        "release": lock.release,
        "async with": lock.__aenter__,
        "locked": lock.locked,
        "held": lock.held,
        "remaining": lock.remaining,
        "holder": lock.holder,
        "force_release": lock.force_release,
        "client": locks.__aenter__,
        "aclose": locks.aclose,
    }


@pytest.mark.parametrize("use", uses(LockClient(Redis())))
async def test_use_from_another_loop_raises_at_once(locks: LockClient, use: str) -> None:
    async with locks.lock(NAME) as lease:
        errors: list[BaseException] = []

        async def elsewhere() -> None:
            for coroutine in (uses(locks)[use], lease.release, lease.renew):
                with pytest.raises(ClientClosedError, match="another event loop") as caught:
                    await coroutine()
                errors.append(caught.value)

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()), daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, 10)
        assert len(errors) == 3
        assert await locks.lock(NAME).hold_count() == 1


def test_use_in_a_later_loop_raises_at_once(server: Any) -> None:
    locks = LockClient.from_url(server.url)

    async def first() -> None:
        async with locks.lock(NAME):
            pass
        await locks.aclose()

    async def second() -> None:
        with pytest.raises(ClientClosedError, match="another event loop"):
            await locks.lock(NAME).try_lock()

    asyncio.run(first())
    asyncio.run(second())
