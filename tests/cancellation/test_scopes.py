"""A lock inside the user's own scopes: each cancellation ends where it was asked for, and nothing is masked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import anyio
import pytest
from redis.asyncio import Redis

from aiolock import Lease, LeaseLostError, LockClient, LockConfig
from aiolock._scripts import RELEASE, RELEASE_CLEAN
from tests.support.cancellation import MODES, Mode, cancel_at
from tests.support.observe import until
from tests.support.proxy import ALWAYS, Proxy, Rule, script, withhold_reply

each_mode = pytest.mark.parametrize("mode", MODES)
BRIEFLY = 0.05


class BodyError(Exception):
    """The exception of a test's body."""


async def nothing_held(client: LockClient, redis: Redis) -> None:
    await until(lambda: (client.statistics().held, client.statistics().pending) == (0, 0))
    assert not await redis.exists("lock", "another")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def work(client: LockClient) -> None:
    async with client.lock("lock"):
        await asyncio.sleep(60)


async def wait(client: LockClient) -> None:
    holder = await client.lock("lock", owner="holder").acquire()
    try:
        await work(client)
    finally:
        await holder.release()


each_place = pytest.mark.parametrize("run", [work, wait])
Run = Callable[[LockClient], Coroutine[Any, Any, None]]


@each_place
async def test_move_on_after(locks: LockClient, redis: Redis, run: Run) -> None:
    with anyio.move_on_after(BRIEFLY) as scope:
        await run(locks)
    assert scope.cancelled_caught
    await nothing_held(locks, redis)


@each_place
@pytest.mark.parametrize("limit", [anyio.fail_after, asyncio.timeout])
async def test_a_timeout_of_the_users_own(
    locks: LockClient, redis: Redis, run: Run, limit: Callable[[float], Any]
) -> None:
    scope: AbstractContextManager[object] | AbstractAsyncContextManager[object] = limit(BRIEFLY)

    async def within_limit() -> None:
        if isinstance(scope, AbstractAsyncContextManager):
            async with scope:
                await run(locks)
        else:
            with scope:
                await run(locks)

    with pytest.raises(TimeoutError) as caught:
        await within_limit()
    assert type(caught.value) is TimeoutError
    await nothing_held(locks, redis)


@each_place
async def test_wait_for(locks: LockClient, redis: Redis, run: Run) -> None:
    with pytest.raises(TimeoutError) as caught:
        await asyncio.wait_for(run(locks), BRIEFLY)
    assert type(caught.value) is TimeoutError
    await nothing_held(locks, redis)


async def test_a_timeout_inside_of_the_body_stays_inside(locks: LockClient, redis: Redis) -> None:
    async with locks.lock("lock") as lease:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(BRIEFLY):
                await asyncio.sleep(60)
        with anyio.move_on_after(BRIEFLY) as scope:
            await asyncio.sleep(60)
        assert scope.cancelled_caught
        lease.check()
    await nothing_held(locks, redis)


@each_mode
async def test_nested_scopes_of_two_locks(locks: LockClient, redis: Redis, mode: Mode) -> None:
    async def both() -> None:
        async with locks.lock("lock"), locks.lock("another").hold(wait=5):
            await asyncio.sleep(BRIEFLY)

    reached = await cancel_at(0, mode, both)
    # There are two grants, the body, and two releases.
    assert reached.suspended == 5
    for k in range(1, reached.suspended + 1):
        outcome = await cancel_at(k, mode, both)
        assert isinstance(outcome.error, asyncio.CancelledError) or mode == "scope"
        assert outcome.swallowed == 0
        await nothing_held(locks, redis)


async def test_cleanup_releases_in_a_cancelled_scope(locks: LockClient, redis: Redis) -> None:
    """The scope cuts off the wait for the answer, not the release."""
    lock = locks.lock("lock", owner="me")
    with anyio.CancelScope() as scope:
        await lock.acquire()
        try:
            scope.cancel()
            await asyncio.sleep(60)
        finally:
            await lock.release()
    assert scope.cancelled_caught
    await nothing_held(locks, redis)


async def test_a_release_that_starts_in_a_cancelled_task_is_sent(locks: LockClient, redis: Redis) -> None:
    lease = await locks.lock("lock").acquire()
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lease.release()
    task.uncancel()
    await nothing_held(locks, redis)


async def test_a_failing_sibling(locks: LockClient, redis: Redis) -> None:
    """One task of the group holds the lock, others wait for it; the group ends with the failure alone."""

    async def fail() -> None:
        await until(lambda: locks.lock("lock").statistics().parked == 3)
        raise BodyError

    async def group_of_tasks() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(work(locks))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.create_task(group_of_tasks())
    assert [type(error) for error in caught.value.exceptions] == [BodyError]
    assert locks.statistics().parked == 0
    await nothing_held(locks, redis)


async def test_a_failing_sibling_in_an_anyio_group(locks: LockClient, redis: Redis) -> None:
    async def group_of_tasks() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(work, locks)
            await until(lambda: locks.lock("lock").statistics().parked == 3)
            raise BodyError

    with pytest.raises(ExceptionGroup) as caught:
        await group_of_tasks()
    assert [type(error) for error in caught.value.exceptions] == [BodyError]
    assert locks.statistics().parked == 0
    await nothing_held(locks, redis)


@contextlib.asynccontextmanager
async def guarded(client: LockClient) -> AsyncIterator[Lease]:
    async with client.lock("lock") as lease:
        yield lease


async def test_in_a_generator_that_one_task_enters_and_leaves(locks: LockClient, redis: Redis) -> None:
    with anyio.move_on_after(BRIEFLY) as scope:
        async with guarded(locks) as lease:
            assert lease.holds == 1
            await asyncio.sleep(60)
    assert scope.cancelled_caught
    with pytest.raises(BodyError):
        async with guarded(locks):
            raise BodyError
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(guarded(locks))
        await stack.enter_async_context(locks.lock("another"))
    await nothing_held(locks, redis)


@each_mode
async def test_an_error_of_the_body_is_never_masked(locks: LockClient, redis: Redis, mode: Mode) -> None:
    async def fails() -> None:
        async with locks.lock("lock"):
            raise BodyError

    undisturbed = await cancel_at(0, mode, fails)
    assert undisturbed.suspended == 2
    assert isinstance(undisturbed.error, BodyError)
    outcome = await cancel_at(2, mode, fails)
    # The scope does not cut off the exit, and nothing is left to cancel.
    if mode == "scope":
        assert isinstance(outcome.error, BodyError)
    else:
        assert isinstance(outcome.error, asyncio.CancelledError)
        assert isinstance(outcome.error.__context__, BodyError)
    await nothing_held(locks, redis)


@pytest.mark.parametrize("error", [BodyError(), asyncio.CancelledError()], ids=["error", "cancellation"])
async def test_a_release_that_finds_the_lock_lost_is_a_note(
    locks: LockClient, redis: Redis, error: BaseException
) -> None:
    async def body() -> None:
        async with locks.lock("lock"):
            await redis.delete("lock")
            raise error

    with pytest.raises(type(error)) as caught:
        await body()
    assert caught.value is error
    assert [note for note in caught.value.__notes__ if "was lost" in note]
    await nothing_held(locks, redis)


@pytest.mark.parametrize("cancelled", [False, True], ids=["error", "cancellation"])
async def test_a_release_that_is_not_answered_is_a_note(
    redis: Redis, proxy: Proxy, through: Redis, cancelled: bool
) -> None:
    async with LockClient(through, config=LockConfig(release_timeout=0.3)) as locks:
        rule = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), withhold_reply(), ALWAYS))

        async def body() -> None:
            async with locks.lock("lock"):
                if not cancelled:
                    raise BodyError
                await asyncio.sleep(60)

        outcome = await cancel_at(2 if cancelled else 0, "native", body)
        assert isinstance(outcome.error, asyncio.CancelledError if cancelled else BodyError)
        assert [note for note in outcome.error.__notes__ if "release of 'lock' failed" in note]
        assert not await redis.exists("lock")
        rule.let_go()


async def test_cancelled_as_the_lock_is_lost_and_the_body_ends(locks: LockClient, redis: Redis) -> None:
    """Both come after the last await of the body: the block raises the loss, and the next await the cancellation."""
    log: list[Lease | str] = []

    async def ends_cancelled(task: "asyncio.Task[None]") -> None:
        async with locks.lock("lock") as lease:
            log.append(lease)
            await redis.delete("lock")
            with pytest.raises(LeaseLostError):
                await lease.renew()
            task.cancel()

    async def body() -> None:
        with pytest.raises(LeaseLostError):
            await ends_cancelled(task)
        await asyncio.sleep(0)
        log.append("not cancelled")

    task = asyncio.create_task(body())
    await asyncio.wait([task])
    assert task.cancelled()
    (lease,) = log
    assert isinstance(lease, Lease)
    assert lease.given_back
    await nothing_held(locks, redis)
