"""A named owner whose tasks give back in different ways: each what it acquired, and nothing stays held."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiolock import AsyncRLock, Lease, LockClient

NAME = "orders"
GiveBack = Callable[[AsyncRLock, Lease], Awaitable[None]]


class Worker:
    """A task that acquires when it is started, and gives back when it is told to."""

    def __init__(self, job: AsyncRLock, give_back: GiveBack) -> None:
        self._job = job
        self._give_back = give_back
        self._holds = asyncio.Event()
        self._go = asyncio.Event()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        await self._holds.wait()

    async def finish(self) -> None:
        self._go.set()
        await self._task

    async def _run(self) -> None:
        lease = await self._job.acquire()
        self._holds.set()
        await self._go.wait()
        await self._give_back(self._job, lease)


def by_lock(job: AsyncRLock, lease: Lease) -> Awaitable[None]:
    return job.release()


def by_lease(job: AsyncRLock, lease: Lease) -> Awaitable[None]:
    return lease.release()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first in first out", "last in first out"])
@pytest.mark.parametrize("ways", [(by_lock, by_lease), (by_lease, by_lock)], ids=["lock, lease", "lease, lock"])
async def test_tasks_of_an_owner_may_give_back_by_lock_and_by_lease(
    locks: LockClient, ways: tuple[GiveBack, GiveBack], order: tuple[int, int]
) -> None:
    job = locks.lock(NAME, owner="job")
    workers = [Worker(job, way) for way in ways]
    for worker in workers:
        await worker.start()
    assert await job.hold_count() == 2
    for number in order:
        await workers[number].finish()
    assert not await job.locked()
    assert locks.statistics().held == 0


async def test_a_task_that_acquired_nothing_gives_back_what_another_acquired(locks: LockClient) -> None:
    job = locks.lock(NAME, owner="job")
    await job.acquire()
    releasing = Worker(job, by_lease)
    await releasing.start()
    await job.release()
    assert await job.hold_count() == 1
    await releasing.finish()
    await asyncio.create_task(acquired(job))
    await job.release()
    assert not await job.locked()


async def acquired(job: AsyncRLock) -> Lease:
    return await job.acquire()
