"""A timeout or cancellation of the user's own that comes with a loss keeps its meaning."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext

import anyio
import pytest

from aiolock import AsyncRLock, LeaseLostError, LockClient
from tests.support.observe import until

# Turns of the loop between the loss and the user's own act.
TURNS = pytest.mark.parametrize("turns", range(4))


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


class Body:
    """The target of a loss and of the user's act: it waits, and cleans up in awaits, which the act may cut short."""

    def __init__(self) -> None:
        self.inside = asyncio.Event()
        self.cancelled = 0
        self.rolled_back = False
        self.went_on = False

    async def run(self) -> None:
        self.inside.set()
        try:
            await asyncio.sleep(60)
            self.went_on = True
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            await asyncio.sleep(0.005)
            await asyncio.sleep(0.005)
            self.rolled_back = True


async def both(lock: AsyncRLock, body: Body, act: Callable[[], object], turns: int) -> None:
    """Take the lock away while the body waits, and act, that many turns of the loop later."""
    await body.inside.wait()
    assert await lock.force_release()
    for _ in range(turns):
        await asyncio.sleep(0)
    act()


@TURNS
async def test_a_cancellation_stays_a_cancellation(locks: LockClient, turns: int) -> None:
    lock, body = locks.lock("a"), Body()
    counts: list[int] = []

    async def work() -> None:
        try:
            async with lock:
                await body.run()
        finally:
            counts.append(cancelling())

    task = asyncio.create_task(work())
    await both(lock, body, task.cancel, turns)
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    assert counts == [1], "the loss took its own cancellation back, and not the user's"
    assert any("by force" in note for note in cancelled.value.__notes__)


async def test_a_cancellation_before_the_loss_stays_one(locks: LockClient) -> None:
    lock, body = locks.lock("a"), Body()

    async def work() -> None:
        async with lock:
            await body.run()

    task = asyncio.create_task(work())
    await body.inside.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert await lock.force_release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


@asynccontextmanager
async def asyncio_timeout() -> AsyncIterator[Callable[[], None]]:
    async with asyncio.timeout(50) as timeout:
        yield lambda: None if timeout.expired() else timeout.reschedule(asyncio.get_running_loop().time())


@asynccontextmanager
async def anyio_scope(
    limit: Callable[[float], AbstractContextManager[anyio.CancelScope]],
) -> AsyncIterator[Callable[[], None]]:
    with limit(50) as scope:
        yield lambda: setattr(scope, "deadline", anyio.current_time())


LIMITS: dict[str, Callable[[], AbstractAsyncContextManager[Callable[[], None]]]] = {
    "asyncio.timeout": asyncio_timeout,
    "fail_after": lambda: anyio_scope(anyio.fail_after),
    "move_on_after": lambda: anyio_scope(anyio.move_on_after),
}


@TURNS
@pytest.mark.parametrize("limit", LIMITS)
async def test_a_limit_around_the_scope_ends_as_it_would_without_the_loss(
    locks: LockClient, limit: str, turns: int
) -> None:
    lock, body = locks.lock("a"), Body()

    async with asyncio.TaskGroup() as group:
        with nullcontext() if limit == "move_on_after" else pytest.raises(TimeoutError):
            async with LIMITS[limit]() as end:
                group.create_task(both(lock, body, end, turns))
                async with lock:
                    await body.run()
                body.went_on = True
        assert cancelling() == 0
        await asyncio.sleep(0.001)
    assert not body.went_on


@TURNS
@pytest.mark.parametrize("limit", ["asyncio.timeout", "move_on_after"])
async def test_a_limit_in_the_body_does_not_hide_the_loss(locks: LockClient, limit: str, turns: int) -> None:
    lock, body = locks.lock("a"), Body()

    async with asyncio.TaskGroup() as group:
        with pytest.raises(LeaseLostError):
            async with lock:
                async with LIMITS[limit]() as end:
                    group.create_task(both(lock, body, end, turns))
                    await body.run()
                await asyncio.sleep(60)
        assert cancelling() == 0
        await asyncio.sleep(0.001)
    assert not body.went_on


async def test_a_task_group_around_the_scope_sees_the_loss_as_an_error(locks: LockClient) -> None:
    lock, body = locks.lock("a"), Body()

    async def work() -> None:
        async with lock:
            await body.run()

    with pytest.raises(ExceptionGroup) as group:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work())
            tasks.create_task(both(lock, body, lambda: None, 0))
    assert [type(error) for error in group.value.exceptions] == [LeaseLostError]


async def test_a_task_group_in_the_body_is_ended_by_the_loss(locks: LockClient) -> None:
    lock, bodies = locks.lock("a"), [Body(), Body()]
    with pytest.raises(LeaseLostError):
        async with lock, asyncio.TaskGroup() as tasks:
            for body in bodies:
                tasks.create_task(body.run())
            await both(lock, bodies[0], lambda: None, 0)
    assert [(body.cancelled, body.rolled_back) for body in bodies] == [(1, True)] * 2
    assert cancelling() == 0


async def test_a_scope_entered_while_cleaning_up_after_a_cancellation_tells_of_its_loss(locks: LockClient) -> None:
    """The earlier cancellation of the task is not the scope's, and stays."""
    lock, body = locks.lock("a"), Body()
    told: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            try:
                async with lock:
                    await body.run()
            except LeaseLostError as error:
                told.append(error.reason)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await both(lock, body, lambda: None, 0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["forced"]
    assert task.cancelling() == 1


@pytest.mark.parametrize("turns", range(8))
async def test_no_cancellation_is_swallowed_when_the_cleanup_of_a_lost_scope_fails(
    locks: LockClient, turns: int
) -> None:
    """While the cleanup runs, the user may choose the error; from then on a cancellation must get through."""
    lock, body = locks.lock("a"), Body()
    seen: list[str] = []

    async def work() -> None:
        try:
            async with lock:
                try:
                    await asyncio.sleep(60)
                finally:
                    seen.append("cleaned up")
                    raise ValueError
        except ValueError:
            seen.append("failed")
        await asyncio.sleep(0.01)
        seen.append("went on")

    task = asyncio.create_task(work())
    await until(lambda: lock.statistics().held == 1)
    await asyncio.sleep(0.01)
    body.inside.set()
    await both(lock, body, lambda: None, turns)
    late = "cleaned up" in seen
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or not late, seen
