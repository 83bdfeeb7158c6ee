"""Jobs under a lock, in worker processes of taskiq: the code of docs/how-to/recipes/taskiq.md."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pytest
from taskiq import InMemoryBroker, TaskiqDepends

from aiolock import Lease, LockClient
from aiolock._embedded_server import Server
from aiolock.testing import lose
from tests.integrations.recipes.recipe import recipe
from tests.support.observe import until

PAGE = "recipes/taskiq.md"
SOON = 30.0  # Seconds; a machine that is busy takes some.

# What the tests add: jobs that note when they enter and leave, and one that is at work until there is a file.
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


@contextmanager
def workers(directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Two of them, each a process."""
    command = [sys.executable, "-m", "taskiq", "worker", "jobs:broker", "--workers", "2", *options]
    with (directory / "output").open("ab") as output:
        running = subprocess.Popen(command, cwd=directory, stdout=output, stderr=output, start_new_session=True)
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):  # When all of them have ended.
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger"
    path.touch()
    monkeypatch.setenv("LEDGER", str(path))
    return path


@asynccontextmanager
async def jobs(redis_server: Server, directory: Path) -> AsyncIterator[Any]:
    """The module that the workers run, its broker started, to send jobs with."""
    (directory / "jobs.py").write_text(recipe(PAGE, "broker = RedisStreamBroker", redis_server.url) + JOBS, "utf-8")
    sys.path.insert(0, str(directory))
    try:
        module = import_module("jobs")
        await module.broker.startup()
        yield module
        await module.broker.shutdown()
    finally:
        sys.path.remove(str(directory))
        sys.modules.pop("jobs", None)


def entries(ledger: Path, job: str) -> list[tuple[str, int]]:
    """What jobs of that name noted, and in which process."""
    *whole, _ = ledger.read_text().split("\n")
    parts = [line.split() for line in whole]
    return [(what, int(pid)) for each, what, pid in parts if each == job]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("watcher")
async def test_jobs_of_two_workers_are_kept_apart(redis_server: Server, ledger: Path, tmp_path: Path) -> None:
    async with jobs(redis_server, tmp_path) as module:
        with workers(tmp_path):
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
    async with jobs(redis_server, tmp_path) as module:
        with workers(tmp_path):
            await module.hold.kiq()
            await until(watcher.lock("held").locked, within=SOON)

            async def waited_for() -> bool:
                await (await module.visit.kiq(0)).wait_result(timeout=SOON)
                return bool(await watcher._redis.pubsub_channels("*held*"))

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
    async with jobs(redis_server, tmp_path) as module:
        with workers(tmp_path, *options) as running:
            job = await module.hold.kiq()
            await until(watcher.lock("held").locked, within=SOON)
            running.terminate()
            await until(lambda: "Stopping prefetching" in (tmp_path / "output").read_text(), within=SOON)
            assert await watcher.lock("held").locked()
            if ends:
                ledger.with_suffix(".over").touch()
            await until(lambda: running.poll() is not None, within=SOON)
            assert not await watcher.lock("held").locked()  # Released: the lease is 30 seconds.
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

    job = await work.kiq()  # type: ignore[call-overload]  # It does not know what a dependency gives.
    await until(lambda: locks.statistics().held == 1)
    await lose(locks, "orders")
    result = await job.wait_result(timeout=SOON)
    assert type(result.error).__name__ == "CancelledError"
    await broker.shutdown()
