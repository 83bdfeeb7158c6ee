"""A client that nobody refers to any more is closed, with a warning, once it holds nothing."""

import asyncio
import contextlib
import gc
import subprocess
import warnings
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, Lease, LockClient
from aiolock._embedded_server import Server
from tests.support.observe import connected, freed, until, until_connected
from tests.support.programs import python


@contextlib.asynccontextmanager
async def unclosed(redis: Redis) -> AsyncIterator[None]:
    """In the block a client is forgotten; at the end nothing of the client is left but a warning."""
    before, tasks = await connected(redis), asyncio.all_tasks()
    with pytest.warns(ResourceWarning, match="unclosed <LockClient .*>: its connections end"):
        yield
    await until(lambda: asyncio.all_tasks() == tasks)
    await until_connected(redis, before)


async def use_and_forget(url: str) -> None:
    async with LockClient.from_url(url).lock("orders"):
        # A handle keeps its client.
        gc.collect()


async def test_its_connections_and_tasks_end_with_a_warning_that_names_it(server: Server, redis: Redis) -> None:
    async with unclosed(redis):
        for _ in range(3):
            await asyncio.create_task(use_and_forget(server.url))
            gc.collect()


async def test_a_lease_is_kept_that_somebody_has(
    server: Server, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with unclosed(redis):
        lease = await LockClient.from_url(server.url).lock("orders").acquire()
        gc.collect()
        await until(lambda: "It holds 'orders'" in caplog.text)
        lease.check()
        await lease.renew()
        await lease.release()
    assert not await redis.exists("orders")


async def test_the_holds_of_a_task_that_ends_are_released_at_once(server: Server, redis: Redis) -> None:
    async def forgets() -> Lease:
        return await LockClient.from_url(server.url).lock("orders").acquire()

    async with unclosed(redis):
        lease = await asyncio.create_task(forgets())
        gc.collect()
        await freed(redis, "orders")
    assert await lease.lost == "orphaned"


async def test_a_handle_keeps_the_client(server: Server, redis: Redis) -> None:
    def handle() -> AsyncRLock:
        return LockClient.from_url(server.url).lock("orders")

    async with unclosed(redis):
        lock = handle()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            async with lock:
                gc.collect()
            gc.collect()
            assert await lock.try_lock() is not None
            await lock.release()
        del lock
        gc.collect()


@pytest.mark.parametrize("closed", [True, False])
def test_a_client_gives_no_warning_after_it_or_its_loop_was_closed(server: Server, closed: bool) -> None:
    async def main() -> LockClient:
        locks = LockClient.from_url(server.url)
        async with locks.lock("orders"):
            pass
        if closed:
            await locks.aclose()
        return locks

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        locks = asyncio.run(main())
        del locks
        gc.collect()


def test_a_client_that_was_never_used_has_nothing_to_close(server: Server) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LockClient.from_url(server.url)
        gc.collect()


EXITING = """
import asyncio
import sys
import aiolock.blocking

async def main(url):
    locks = aiolock.LockClient.from_url(url)
    async with locks.lock("orders"):
        return locks, locks.lock("unused").hold()

loop = asyncio.new_event_loop()
blocking = aiolock.blocking.LockClient.from_url(sys.argv[1])
with blocking.lock("blocking"):
    pass
# Python clears the modules of aiolock first, and then deletes these objects.
asyncio.kept = [dict(sys.modules), loop, loop.run_until_complete(main(sys.argv[1])), blocking]
"""


def test_a_client_that_the_exit_of_python_deletes_fails_in_no_destructor(server: Server) -> None:
    with python("-c", EXITING, server.url, stderr=subprocess.PIPE) as exiting:
        _, told = exiting.communicate(timeout=30)
    assert "__del__" not in told
    assert exiting.returncode == 0


CLOSING_THE_LOOP = """
import asyncio
import sys
from aiolock import LockClient

async def main(url):
    locks = LockClient.from_url(url)
    async with locks.lock("orders"):
        return locks

loop = asyncio.new_event_loop()
locks = loop.run_until_complete(main(sys.argv[1]))
loop.close()
del loop
"""


def test_a_client_whose_loop_is_closed_with_its_tasks_ends_with_the_loop(server: Server) -> None:
    with python("-c", CLOSING_THE_LOOP, server.url, stderr=subprocess.PIPE) as ending:
        _, told = ending.communicate(timeout=30)
    # asyncio itself tells of the task.
    assert "Traceback" not in told
    assert ending.returncode == 0
