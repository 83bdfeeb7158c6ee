"""A lock goes with a job to worker processes of taskiq: the code of docs/how-to/hand-over.md."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aiolock import LockClient
from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE, LOCK
from tests.integrations.recipes.recipe import recipe
from tests.integrations.recipes.taskiq_workers import SOON, jobs, ledger, lines, workers
from tests.support.observe import until
from tests.support.proxy import Proxy, Rule, hold, script

__all__ = ["ledger"]

PAGE = "hand-over.md"

# The tests' additions: a short lease, and a job that notes that it works, and works until there is a file.
JOBS = """

import asyncio, os
from pathlib import Path

from aiolock import LockConfig

LEDGER = Path(os.environ["LEDGER"])
broker.idle_timeout = 3000  # Milliseconds after which a job without an answer is delivered again.


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def open_short_locks(state: TaskiqState) -> None:
    await state.locks.aclose()
    state.locks = LockClient.from_url("redis://localhost", config=LockConfig(lease=2))


async def work_on(order: int, token: int) -> None:
    with LEDGER.open("a") as file:
        file.write(f"{order} {os.getpid()} {token}\\n")
    while not LEDGER.with_suffix(".over").exists():
        await asyncio.sleep(0.01)
"""


def service(url: str, locks_url: str | None = None) -> str:
    """The module that the workers run; their locks may come from another address."""
    return recipe(PAGE, "broker = RedisStreamBroker", url) + JOBS.replace("redis://localhost", locks_url or url)


def entries(ledger: Path) -> list[tuple[int, int]]:
    """The process and the token of each time that the job worked."""
    return [(int(pid), int(token)) for _, pid, token in lines(ledger)]


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_lock_goes_with_the_job(
    redis_server: Server, watcher: LockClient, ledger: Path, tmp_path: Path
) -> None:
    lock = watcher.lock("order:7")
    async with jobs(tmp_path, service(redis_server.url)) as module:
        await module.order_paid(7, watcher)
        holder = await lock.holder()
        assert holder is not None
        assert holder.detached
        with workers(tmp_path, 1):
            await until(lambda: len(entries(ledger)) == 1, within=SOON)
            holder = await lock.holder()
            assert holder is not None
            assert (holder.pid, holder.detached) == (entries(ledger)[0][0], False)
            ledger.with_suffix(".over").touch()

            async def is_free() -> bool:
                return not await lock.locked()

            await until(is_free, within=SOON)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_worker_that_is_killed_at_work_leaves_the_job_and_the_lock_to_the_next(
    redis_server: Server, watcher: LockClient, ledger: Path, tmp_path: Path
) -> None:
    """The first worker has used the ticket up, so that the next one acquires when the lease of the first has ended."""
    async with jobs(tmp_path, service(redis_server.url)) as module:
        await module.order_paid(8, watcher)
        with workers(tmp_path, 1):
            await until(lambda: len(entries(ledger)) == 1, within=SOON)
            os.kill(entries(ledger)[0][0], signal.SIGKILL)

            await delivered_again(module, lambda: len(entries(ledger)) > 1)
            (first, token), (second, later) = entries(ledger)[:2]
            assert first != second
            assert later > token
            ledger.with_suffix(".over").touch()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_worker_that_is_killed_before_it_adopts_leaves_the_ticket_to_the_next(
    redis_server: Server, watcher: LockClient, ledger: Path, tmp_path: Path
) -> None:
    async with (
        Proxy(redis_server.host, redis_server.port) as proxy,
        jobs(tmp_path, service(redis_server.url, proxy.url)) as module,
    ):
        held = proxy.install(Rule(script(LOCK.adopt), hold(reset=False)))
        await module.order_paid(10, watcher)
        with workers(tmp_path, 1):
            await held.caught(within=SOON)
        assert await watcher.lock("order:10").try_lock() is None
        with workers(tmp_path, 1):
            await delivered_again(module, lambda: bool(entries(ledger)))
            ledger.with_suffix(".over").touch()
        # The ticket was valid: no worker had to acquire.
        assert not any(map(script(ACQUIRE), proxy.requests))


async def delivered_again(module: Any, works: Callable[[], bool]) -> None:
    """Return when the job of a killed worker runs again; the queue looks for old jobs when a new one comes."""

    async def is_delivered() -> bool:
        await module.finish.kiq(9, "no ticket")
        await asyncio.sleep(0.5)
        return works()

    await until(is_delivered, within=60)
