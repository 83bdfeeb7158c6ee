"""docs/how-to/shutdown.md: gunicorn, and programs without a server. Other files test uvicorn, aiohttp and clients."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.integrations.recipes.crew import Crew
from tests.integrations.recipes.recipe import recipe
from tests.support.asgi import WebProcess
from tests.support.observe import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

PAGE = "shutdown.md"
LONG = 60.0
SOON = 30.0


@contextmanager
def gunicorn(redis: Server, directory: Path, worker: str, graceful_timeout: int) -> Iterator[WebProcess]:
    settings = {"REDIS_URL": redis.url, "DIRECTORY": str(directory), "LEASE": str(LONG), "COMMAND_TIMEOUT": "10"}
    settings["HOME"] = str(directory)
    # One worker: gunicorn does not stop another that is still starting before its time is over.
    command = ["-m", "gunicorn", "tests.integrations.fastapi.service:app", "--bind", "127.0.0.1:{port}"]
    command += ["--worker-class", worker, "--workers", "1", "--pythonpath", str(directory)]
    command += ["--graceful-timeout", str(graceful_timeout)]
    with WebProcess(command, directory / "log", ready="/ready", environment=settings) as running:
        yield running


async def stopped_while_holding(service: WebProcess, watcher: LockClient) -> bool:
    """Send SIGTERM while a handler holds a lock and another waits; return whether the lock is still held in the end."""
    async with service.client() as client:
        requests = [asyncio.create_task(client.post("/hold/it")) for _ in range(2)]
        await until(watcher.lock("held:it").locked, within=SOON)
        await asyncio.to_thread(service.stop)
        locked = await watcher.lock("held:it").locked()
        answers = await asyncio.gather(*requests, return_exceptions=True)
        assert not any(isinstance(answer, httpx.Response) and answer.is_success for answer in answers)
    return locked


async def test_gunicorn_kills_handlers_that_do_not_end_and_their_locks_stay(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with gunicorn(redis_server, tmp_path, "uvicorn_worker.UvicornWorker", graceful_timeout=2) as service:
        assert await stopped_while_holding(service, watcher)


async def test_a_worker_of_gunicorn_with_a_time_of_its_own_leaves_nothing_locked(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    (tmp_path / "shop_worker.py").write_text(recipe(PAGE, "class Worker", redis_server.url), "utf-8")
    with gunicorn(redis_server, tmp_path, "shop_worker.Worker", graceful_timeout=20) as service:
        assert not await stopped_while_holding(service, watcher)


@pytest.mark.parametrize("worker", ["uvicorn_worker.UvicornWorker", "asgi"])
async def test_gunicorn_lets_handlers_finish(
    worker: str, redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with gunicorn(redis_server, tmp_path, worker, graceful_timeout=20) as service:
        async with service.client() as client:
            answer = asyncio.create_task(client.post("/hold/it"))
            await until(watcher.lock("held:it").locked, within=SOON)
            stopping = asyncio.create_task(asyncio.to_thread(service.stop))
            await until(lambda: "Handling signal: term" in service.output, within=SOON)
            (tmp_path / "never").touch()
            assert (await answer).status_code == 200
            await stopping
    assert not await watcher.lock("held:it").locked()


# A program of one's own.

WORK = """
async def work(locks):
    async with locks.lock("report"):
        await asyncio.sleep(3600)


"""
UNHANDLED = """
import asyncio
from aiolock import LockClient


async def main():
    async with LockClient.from_url("{url}") as locks:
        await work(locks)


asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_program_that_handles_sigterm_leaves_nothing_locked(
    number: signal.Signals, redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    code = WORK + recipe(PAGE, "add_signal_handler", redis_server.url)
    with Crew(tmp_path, code, 1) as crew:
        await until(watcher.lock("report").locked, within=SOON)
        (pid,) = crew.workers
        status = await asyncio.to_thread(crew.dismiss, pid, number)
        # The lease is 30 seconds, so the lock was released.
        assert not await watcher.lock("report").locked()
    assert status == (0 if number == signal.SIGTERM else -signal.SIGINT)


async def test_a_program_that_does_not_leaves_its_lock_for_one_lease(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with Crew(tmp_path, WORK + UNHANDLED.replace("{url}", redis_server.url), 1) as crew:
        await until(watcher.lock("report").locked, within=SOON)
        (pid,) = crew.workers
        assert await asyncio.to_thread(crew.dismiss, pid) == -signal.SIGTERM
        left = await watcher.lock("report").remaining()
        assert left is not None
        assert 0 < left <= 30
