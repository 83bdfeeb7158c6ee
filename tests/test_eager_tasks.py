"""Everything under `asyncio.eager_task_factory`: a task that is created runs at once, before its creator goes on."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Connection, ConnectionPool, Redis

from aiolock import (
    AsyncRLock,
    BackendError,
    ClientClosedError,
    Lease,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    LockTimeoutError,
    Lost,
    Orphaned,
)
from aiolock._embedded_server import Server
from tests.support.holding import Holder, lock_client
from tests.support.observe import all_parked, connected, until
from tests.support.proxy import Proxy
from tests.test_connection import PATIENCE, Recorder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")

TASKS = 8


def eagerly(loop: asyncio.AbstractEventLoop, coroutine: Any, **settings: Any) -> Any:
    settings.pop("eager_start", None)  # uvloop passes it on, and the factory of Python 3.13.0 does not know it.
    return getattr(asyncio, "eager_task_factory")(loop, coroutine, **settings)  # noqa: B009 - unknown to Python 3.11


@pytest.fixture(autouse=True)
async def eager() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(eagerly)
    yield
    loop.set_task_factory(None)


@pytest.fixture
async def locks(server: Server, redis: Redis) -> AsyncIterator[LockClient]:
    """A client whose own tasks are eager, too."""
    async with lock_client(server.url, lease=0.9) as client:
        yield client


def running(method: str) -> int:
    """How many tasks run this method of a connection."""
    return sum(f" coro=<{method}() " in repr(task) for task in asyncio.all_tasks())


async def test_a_connection_that_is_woken_again_by_its_own_failure_runs_once() -> None:
    attempts: list[int] = []

    def connect() -> Connection:
        attempts.append(running("Connection._run"))
        raise OSError("cannot be made")

    user = Recorder(connect)

    def broken(error: Exception, waited: float) -> None:
        user.errors.append(error)
        user.connection.wake()  # A pipeline with something to send does so.

    user.broken = broken  # type: ignore[method-assign]
    user.send(("PING",))
    assert running("Connection._run") == 1
    assert attempts == [], "the connection runs before `wake` knows of it"
    await until(lambda: len(attempts) >= 3, within=10 * PATIENCE)
    assert set(attempts) == {1}
    assert len(user.errors) in (len(attempts), len(attempts) - 1)
    await user.connection.aclose()
    assert running("Connection._run") == 0


async def test_a_client_whose_connections_cannot_be_made_tries_in_one_task_and_fails_in_time() -> None:
    attempts: list[int] = []

    class Unmakeable(Connection):
        """Fails before there is anything to await, except when its settings are looked at."""

        def __init__(self, **settings: Any) -> None:
            if seen.is_set():
                attempts.append(running("Connection._run"))
                raise OSError("cannot be made")
            super().__init__(**settings)

    seen = asyncio.Event()
    config = LockConfig(command_timeout=0.6, release_timeout=0.6)
    async with LockClient(Redis(connection_pool=ConnectionPool(connection_class=Unmakeable)), config=config) as locks:
        seen.set()
        async with asyncio.timeout(5):
            with pytest.raises(BackendError, match="cannot be made"):
                await locks.lock("a").try_lock()
    assert set(attempts) == {1}


async def test_each_link_connects_once(server: Server, redis: Redis) -> None:
    async with Proxy(server.host, server.port) as proxy, lock_client(proxy.url) as locks:
        async with locks.lock("a"):
            waiting = asyncio.create_task(take(locks.lock("a")))
            await until(lambda: locks.statistics().connections == 2)  # For commands and for messages.
        await waiting
        assert len(proxy.connections) == 2
        async with locks.lock("a") as lease:
            await lease.renew()
        # The renewal may have gone by the connection for commands, while the one for renewals was being made.
        await until(lambda: len(proxy.connections) == locks.statistics().connections == 3)


async def take(lock: AsyncRLock) -> int:
    async with lock as lease:
        return lease.token


async def test_eager_tasks_are_owners_of_their_own(locks: LockClient) -> None:
    lock = locks.lock("owned")

    async def attempt() -> Lease | None:
        return await lock.try_lock()

    async with lock:
        assert await asyncio.create_task(attempt()) is None
        with pytest.raises(RuntimeError, match="runs in another"):
            await asyncio.create_task(lock.try_lock())
    assert await asyncio.create_task(attempt()) is not None
    async with asyncio.timeout(5), lock:  # That task has ended.
        pass


async def test_eager_tasks_exclude_each_other_and_each_gets_its_turn(locks: LockClient) -> None:
    lock = locks.lock("counted")
    count = inside = 0

    async def add() -> None:
        nonlocal count, inside
        async with lock:
            inside += 1
            assert inside == 1
            read = count
            await asyncio.sleep(0.001)
            count = read + 1
            inside -= 1

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(add())
    assert count == TASKS
    assert not await lock.locked()


async def test_two_clients_wake_each_other(server: Server, locks: LockClient) -> None:
    async with lock_client(server.url) as other, asyncio.timeout(10):
        for _ in range(5):
            async with locks.lock("to and fro") as lease:
                waiting = asyncio.create_task(take(other.lock("to and fro")))
                await all_parked(other, 1)
            assert await waiting > lease.token


async def test_a_lock_is_nested_renewed_and_given_back_by_its_watchdog_and_its_task(locks: LockClient) -> None:
    lock = locks.lock("kept")

    async def work() -> None:
        async with lock as outer, lock as inner:
            assert outer.holds == inner.holds == await lock.hold_count() == 2
            await until(lambda: locks.statistics().renewals >= 4)
            inner.check()

    await asyncio.create_task(work())
    assert not await lock.locked()


async def test_a_loss_cancels_the_body_of_an_eager_task_once(locks: LockClient) -> None:
    lock = locks.lock("lost")
    async with Holder(lock) as holder:
        await lock.force_release()
        error = await holder.lost()
        assert (error.reason, holder.cancelled, holder.rolled_back) == ("forced", 1, 3)
    assert holder.uncancelled


async def test_a_loss_between_two_scopes_of_one_task_ends_the_one_that_is_lost(locks: LockClient) -> None:
    one, two = locks.lock("one"), locks.lock("two")

    async def work() -> str:
        async with one:
            with pytest.raises(LeaseLostError) as lost:
                async with two:
                    await two.force_release()
                    await asyncio.sleep(5)
            assert await one.held()
            return lost.value.name

    assert await asyncio.create_task(work()) == "two"


async def test_a_wait_ends_in_time_and_a_cancelled_one_leaves_nothing(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock("wanted")
    async with lock:
        cancelled = asyncio.create_task(take(lock))
        with pytest.raises(LockTimeoutError):
            await asyncio.create_task(enter(lock, 0.05))
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
        assert lock.statistics().parked == 0
    await until(lambda: locks.statistics().pending == 0)
    assert not await redis.exists("wanted")


async def enter(lock: AsyncRLock, wait: float) -> None:
    async with lock.hold(wait=wait):
        pytest.fail("entered")


async def test_closing_tells_holders_and_waiters_and_leaves_no_connection(server: Server, redis: Redis) -> None:
    alone = await connected(redis)
    async with lock_client(server.url) as locks:
        lock = locks.lock("closed")
        holder = Holder(lock)
        await until(lambda: lock.statistics().held == 1)
        waiting = asyncio.create_task(take(lock))
        await until(lambda: lock.statistics().parked == 1)
    assert (await holder.lost()).reason == "closed"
    [error] = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(error, ClientClosedError)
    assert not await redis.exists("closed")

    async def is_alone() -> bool:
        return await connected(redis) == alone

    await until(is_alone)
    async with holder:
        pass


async def test_a_hook_that_closes_the_client_closes_it_once(redis: Redis) -> None:
    closings: list[asyncio.Task[None]] = []

    def close(event: LockEvent) -> None:
        if isinstance(event, Lost):
            closings.append(asyncio.create_task(client.aclose()))

    client = LockClient(redis, config=LockConfig(on_event=close))
    for name in ("a", "b"):
        await client.lock(name, owner="job").acquire()
    await client.lock("a").force_release()
    await until(lambda: bool(closings) and all(each.done() for each in closings))
    assert len(closings) == 2  # One for the loss by force, and one for the loss by closing.
    assert not await redis.exists("a", "b")


async def test_a_hook_may_give_back_the_lease_of_a_destroyed_task(redis: Redis) -> None:
    """Another task of the same owner has a hold, too."""
    leases: list[Lease] = []
    releases: list[asyncio.Task[None]] = []

    def give_back(event: LockEvent) -> None:
        if isinstance(event, Orphaned):
            releases.append(asyncio.create_task(leases.pop().release()))

    async def begin_a_block(lock: AsyncRLock) -> None:
        leases.append(await lock.acquire())
        await leases[0].__aenter__()
        await asyncio.get_running_loop().create_future()

    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    async with LockClient(redis, config=LockConfig(on_event=give_back)) as client:
        lock = client.lock("a", owner="job")
        first = await lock.acquire()
        task = asyncio.create_task(begin_a_block(lock))
        await until(lambda: first.holds == 2)
        await until(lambda: bool(leases))
        del task
        gc.collect()
        await until(lambda: bool(releases))
        await asyncio.gather(*releases)
        assert first.holds == await lock.hold_count() == 1
        await first.release()
    assert [each["message"] for each in problems if "exception" in each] == []
