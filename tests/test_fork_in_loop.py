"""A fork whose child lets the inherited event loop run on: it says nothing on its parent's connections."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis as synchronous

from aiolock import AsyncRLock, LockClient
from aiolock._embedded_server import Server
from aiolock._redis.notifier import LINGER
from tests.support.forks import run_in_fork
from tests.support.holding import Holder, lock_client
from tests.support.inside import hears, keys_of
from tests.support.observe import until


@pytest.fixture
def observer(server: Server) -> Iterator[synchronous.Redis]:
    """Looks at the server while our loop stands still; it is connected already."""
    with synchronous.Redis.from_url(server.url) as client:
        client.flushall()
        yield client


def said(observer: synchronous.Redis) -> dict[str, int]:
    """The number of calls of each command; our own question is left out."""
    stats: Any = observer.info("commandstats")
    return {name: stat["calls"] for name, stat in stats.items() if name != "cmdstat_info"}


async def take(lock: AsyncRLock) -> None:
    async with lock:
        pass


async def test_a_child_whose_copies_of_the_tasks_end_leaves_the_parents_locks_alone(
    server: Server, observer: synchronous.Redis
) -> None:
    async with lock_client(server.url) as locks, Holder(locks.lock("a")) as holder:

        async def child() -> None:
            holder.task.cancel()
            await asyncio.wait([holder.task])

        before = said(observer)
        await run_in_fork(child, on_loop=True)
        assert said(observer) == before
        assert observer.exists("a")
        holder.leases[0].check()


async def test_a_childs_copy_of_the_watchdog_renews_nothing_and_its_deadlines_free_nothing(
    server: Server, observer: synchronous.Redis
) -> None:
    async with lock_client(server.url, lease=6, renew_interval=1) as locks:
        await locks.lock("watched").acquire()
        fixed = await locks.lock("fixed").acquire(lease=2)
        # After this, a command frees the lock when its lease is over.
        await fixed.renew()
        await until(lambda: locks.statistics().pending == 0 and locks.statistics().connections == 2)

        async def child() -> None:
            # Meanwhile the first renewal of the watched lock would be due.
            await until(fixed.lost.is_set)

        before = said(observer)
        await run_in_fork(child, on_loop=True)
        assert said(observer) == before


async def test_a_childs_copy_of_a_waiter_leaves_the_subscription_alone(
    server: Server, observer: synchronous.Redis
) -> None:
    async with LockClient.from_url(server.url) as locks, LockClient.from_url(server.url) as other:
        lease = await other.lock("a").acquire()
        lock = locks.lock("a")
        waiting = asyncio.create_task(take(lock))
        await until(lambda: hears(locks, lock))
        await until(lambda: locks.statistics().pending == 0)

        async def child() -> None:
            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.sleep(LINGER + 0.6)

        before = said(observer)
        await run_in_fork(child, on_loop=True)
        assert said(observer) == before
        assert observer.pubsub_numsub(keys_of(lock).channel)[0][1] == 1
        await lease.release()
        async with asyncio.timeout(5):
            await waiting


async def test_a_call_in_the_moment_of_the_fork_is_sent_by_the_parent_only(
    server: Server, observer: synchronous.Redis
) -> None:
    async with LockClient.from_url(server.url) as locks:
        lock = locks.lock("a")
        await take(lock)
        taking = asyncio.create_task(take(lock))
        while not locks.statistics().pending:
            await asyncio.sleep(0)

        async def child() -> None:
            await asyncio.sleep(0.3)

        before = said(observer)
        await run_in_fork(child, on_loop=True)
        assert said(observer) == before
        await taking
        await take(lock)
        assert locks.statistics().pending == 0
