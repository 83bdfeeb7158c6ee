"""Jobs under a lock, in worker processes of taskiq: the code of docs/how-to/recipes/taskiq.md."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pytest
from taskiq import InMemoryBroker, TaskiqDepends

from aiolock import Lease, LockClient
from aiolock._embedded_server import Server
from aiolock.testing import lose
from tests.integrations.recipes.recipe import recipe
from tests.integrations.recipes.taskiq_workers import SOON, jobs, ledger, lines, workers
from tests.support.inside import redis_of
from tests.support.observe import until

__all__ = ["ledger"]

PAGE = "recipes/taskiq.md"

# The tests' additions: jobs that note when they enter and leave, and one that works until there is a file.
JOBS = """

import asyncio, os
from pathlib import Path

LEDGER = Path(os.environ["LEDGER"])
broker.idle_timeout = 1000  # Milliseconds.


def note(job, what):
    with LEDGER.open("a") as file:
        file.write(f"{job} {what} {os.getpid()}\\n")


@broker.task
async def visit(number: int, locks: Locks) -> int:
    async with locks.lock("visited"):
        note("visit", "enter")
        await asyncio.sleep(0.01)
        note("visit", "leave")
        return os.getpid()


@broker.task
async def hold(locks: Locks) -> None:
    async with locks.lock("held"):
        note("hold", "enter")
        while not LEDGER.with_suffix(".over").exists():
            await asyncio.sleep(0.01)
        note("hold", "leave")
"""


def recipe_of(redis_server: Server) -> str:
    return recipe(PAGE, "broker = RedisStreamBroker", redis_server.url) + JOBS


def entries(ledger: Path, job: str) -> list[tuple[str, int]]:
    """The notes of jobs of that name, with their processes."""
    return [(what, int(pid)) for each, what, pid in lines(ledger) if each == job]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("watcher")
async def test_jobs_of_two_workers_are_kept_apart(redis_server: Server, ledger: Path, tmp_path: Path) -> None:
    async with jobs(tmp_path, recipe_of(redis_server)) as module:
        with workers(tmp_path, 2):
            sent = [await module.visit.kiq(number) for number in range(60)]
            results = [await job.wait_result(timeout=SOON) for job in sent]
            settled = await (await module.settle.kiq(7)).wait_result(timeout=SOON)
    assert not any(result.is_err for result in results)
    assert settled.return_value > 0
    seen = entries(ledger, "visit")
    assert Counter(what for what, _ in seen) == {"enter": 60, "leave": 60}
    assert all(first[1] == second[1] for first, second in zip(seen[::2], seen[1::2], strict=True))
    assert all(first[0] != second[0] for first, second in pairwise(seen))


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_job_that_is_delivered_a_second_time_waits_for_the_first(
    redis_server: Server, watcher: LockClient, ledger: Path, tmp_path: Path
) -> None:
    """After *idle_timeout* the queue takes it for lost; it looks when there is another job."""
    async with jobs(tmp_path, recipe_of(redis_server)) as module:
        with workers(tmp_path, 2):
            await module.hold.kiq()
            await until(watcher.lock("held").locked, within=SOON)

            async def waited_for() -> bool:
                await (await module.visit.kiq(0)).wait_result(timeout=SOON)
                return bool(await redis_of(watcher).pubsub_channels("*held*"))

            await until(waited_for, within=SOON)
            assert [what for what, _ in entries(ledger, "hold")] == ["enter"]
            ledger.with_suffix(".over").touch()
            await until(lambda: len(entries(ledger, "hold")) >= 4, within=SOON)
    assert [what for what, _ in entries(ledger, "hold")][:4] == ["enter", "leave", "enter", "leave"]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("ends", [True, False], ids=["the job ends", "the job does not end"])
async def test_sigterm_leaves_nothing_locked(
    redis_server: Server, watcher: LockClient, ledger: Path, tmp_path: Path, ends: bool
) -> None:
    options = () if ends else ("--wait-tasks-timeout", "1")
    async with jobs(tmp_path, recipe_of(redis_server)) as module:
        with workers(tmp_path, 2, *options) as running:
            job = await module.hold.kiq()
            await until(watcher.lock("held").locked, within=SOON)
            running.terminate()
            await until(lambda: "Stopping prefetching" in (tmp_path / "output").read_text(), within=SOON)
            assert await watcher.lock("held").locked()
            if ends:
                ledger.with_suffix(".over").touch()
            await until(lambda: running.poll() is not None, within=SOON)
            # The lease is 30 seconds, so the lock was released.
            assert not await watcher.lock("held").locked()
        if ends:
            assert not (await job.wait_result(timeout=SOON)).is_err


# In one process.


async def test_a_lost_lock_is_the_result_of_the_job(locks: LockClient) -> None:
    broker = InMemoryBroker(await_inplace=False)

    @broker.task
    async def work() -> None:
        async with locks.lock("orders"):
            await asyncio.sleep(60)

    job = await work.kiq()
    await until(lambda: locks.statistics().held == 1)
    await lose(locks, "orders")
    result = await job.wait_result(timeout=SOON)
    assert type(result.error).__name__ == "LeaseLostError"
    await broker.shutdown()


async def test_the_loss_of_a_lock_in_a_dependency_is_not_the_result_of_the_job(locks: LockClient) -> None:
    broker = InMemoryBroker(await_inplace=False)

    async def held() -> AsyncIterator[Lease]:
        async with locks.lock("orders") as lease:
            yield lease

    @broker.task
    async def work(lease: Annotated[Lease, TaskiqDepends(held)]) -> None:
        await asyncio.sleep(60)

    job = await work.kiq()  # type: ignore[call-overload]
    await until(lambda: locks.statistics().held == 1)
    await lose(locks, "orders")
    result = await job.wait_result(timeout=SOON)
    assert type(result.error).__name__ == "CancelledError"
    await broker.shutdown()
