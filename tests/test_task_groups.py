"""A loss in a task whose count of cancellations is raised: by a task group that failed, or by a cancellation."""

import asyncio
import time
from time import monotonic

import pytest

from aiolock import AsyncRLock, LeaseLostError, LockClient
from aiolock._core.held import CLEANUP

NAME = "counted"


async def fail() -> None:
    raise ValueError("a child failed")


async def failed_task_group() -> None:
    """Before Python 3.13 the task counts as being cancelled from here on."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
    except* ValueError:
        pass


class Loss:
    """A body that loses the lock, goes on without looking, and notes when it was cancelled."""

    def __init__(self, lock: AsyncRLock) -> None:
        self._lock = lock

    async def run(self, groups: int) -> float:
        """Fail that many task groups in the body; returns the seconds from the loss to the cancellation."""
        with pytest.raises((LeaseLostError, asyncio.CancelledError)):
            await self.body(groups)
        return self._cancelled - self._lost

    async def body(self, groups: int) -> None:
        async with self._lock:
            for _ in range(groups):
                await failed_task_group()
            await self._lock.force_release()
            self._lost = monotonic()
            try:
                await asyncio.sleep(10)
            finally:
                self._cancelled = monotonic()


@pytest.mark.parametrize("groups", [1, 3])
async def test_a_loss_after_failed_task_groups_that_were_handled_cancels_the_body(
    locks: LockClient, groups: int
) -> None:
    assert await Loss(locks.lock(NAME)).run(groups) < CLEANUP + 1.5


async def test_a_loss_after_failed_task_groups_that_were_handled_raises_lease_lost_error(locks: LockClient) -> None:
    with pytest.raises(LeaseLostError):
        await Loss(locks.lock(NAME)).body(groups=1)


async def test_after_a_task_group_that_failed_well_before_a_lease_ends_nobody_is_granted_the_lock_beside_the_body(
    locks: LockClient, other: LockClient
) -> None:
    order: list[str] = []

    async def next_holder() -> None:
        async with other.lock(NAME):
            order.append("granted")

    async def body() -> None:
        async with locks.lock(NAME).hold(lease=1):
            await failed_task_group()
            waiting.append(asyncio.create_task(next_holder()))
            try:
                await asyncio.sleep(10)
            finally:
                order.append("cancelled")

    waiting: list[asyncio.Task[None]] = []
    with pytest.raises(LeaseLostError, match="its lease ended"):
        await body()
    await asyncio.gather(*waiting)
    assert order == ["cancelled", "granted"]


async def test_after_a_task_group_that_failed_a_loss_is_told_at_once_when_the_loop_was_blocked_until_then(
    lock: AsyncRLock,
) -> None:
    turns = 0
    with pytest.raises(LeaseLostError, match="its lease ended"):
        async with lock.hold(lease=1):
            await failed_task_group()
            time.sleep(1.1)
            while turns < 1000:
                turns += 1
                await asyncio.sleep(0)
            await asyncio.sleep(60)
    assert turns < 1000


async def test_a_task_group_that_failed_before_the_block_does_not_delay_its_loss(locks: LockClient) -> None:
    await failed_task_group()
    assert await Loss(locks.lock(NAME)).run(groups=0) < CLEANUP


async def test_a_loss_whose_cancellation_a_failing_task_group_drops_is_raised_by_check(lock: AsyncRLock) -> None:
    checked = False

    async def fail_at_its_cancellation() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await fail()

    async def body() -> None:
        nonlocal checked
        async with lock as lease:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail_at_its_cancellation())
                    await lock.force_release()
                    await asyncio.sleep(60)
            except* ValueError:
                pass
            with pytest.raises(LeaseLostError):
                lease.check()
            checked = True

    with pytest.raises(LeaseLostError):
        await body()
    assert checked


class Body:
    """A body that is cancelled by its user, loses the lock as it begins to clean up, and cleans up for a while."""

    def __init__(self, lock: AsyncRLock, cleanup: float) -> None:
        self.entered = asyncio.Event()
        self.ended: list[str] = []
        self._lock = lock
        self._cleanup = cleanup

    async def run(self) -> None:
        async with self._lock as lease:
            try:
                self.entered.set()
                await asyncio.sleep(30)
            finally:
                await self._lock.force_release()
                assert lease.lost.is_set()
                await self._clean_up()

    async def _clean_up(self) -> None:
        try:
            await asyncio.sleep(self._cleanup)
        except asyncio.CancelledError:
            self.ended.append("cut")
            raise
        self.ended.append("whole")


@pytest.mark.parametrize(("cleanup", "ended"), [(CLEANUP * 0.6, "whole"), (30, "cut")], ids=["short", "long"])
async def test_a_loss_leaves_a_cancelled_body_time_to_clean_up_but_not_for_ever(
    locks: LockClient, cleanup: float, ended: str
) -> None:
    body = Body(locks.lock(NAME), cleanup)
    task = asyncio.create_task(body.run())
    await body.entered.wait()
    task.cancel()
    await asyncio.wait([task], timeout=CLEANUP + 3)
    # The cancellation was the user's own, so it is no LeaseLostError.
    assert task.cancelled()
    assert body.ended == [ended]
