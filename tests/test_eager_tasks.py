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
    Lease,
    LockClient,
    LockConfig,
    LockEvent,
    Lost,
    Orphaned,
)
from aiolock._embedded_server import Server
from tests.contract.test_contract import (
    test_a_block_raises_a_timeout_when_its_wait_ends,
    test_a_child_is_another_owner_and_a_named_one_is_the_same_in_any_task,
    test_a_waiter_is_woken_by_a_message,
    test_cancelled_waits_leave_nothing,
    test_closing_cancels_blocks_and_releases_every_hold,
    test_closing_ends_waits,
    test_the_holder_takes_it_again,
    test_there_are_never_too_many_holders,
)
from tests.contract.test_held import (
    test_an_acquire_that_becomes_a_task_is_refused,
    test_force_cancels_a_block_and_is_told_once,
    test_it_is_renewed_until_it_is_given_back,
    test_the_holds_of_a_task_that_ends_are_given_back_with_an_event,
)
from tests.support.holding import lock_client
from tests.support.observe import until
from tests.support.proxy import Proxy
from tests.test_connection import PATIENCE, Recorder

__all__ = [
    "test_a_block_raises_a_timeout_when_its_wait_ends",
    "test_a_child_is_another_owner_and_a_named_one_is_the_same_in_any_task",
    "test_a_waiter_is_woken_by_a_message",
    "test_an_acquire_that_becomes_a_task_is_refused",
    "test_cancelled_waits_leave_nothing",
    "test_closing_cancels_blocks_and_releases_every_hold",
    "test_closing_ends_waits",
    "test_force_cancels_a_block_and_is_told_once",
    "test_it_is_renewed_until_it_is_given_back",
    "test_the_holder_takes_it_again",
    "test_the_holds_of_a_task_that_ends_are_given_back_with_an_event",
    "test_there_are_never_too_many_holders",
]
pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")


def eagerly(loop: asyncio.AbstractEventLoop, coroutine: Any, **settings: Any) -> Any:
    # uvloop passes it on, and the factory of Python 3.13.0 does not know it.
    settings.pop("eager_start", None)
    return getattr(asyncio, "eager_task_factory")(loop, coroutine, **settings)  # noqa: B009 - unknown to Python 3.11


@pytest.fixture(autouse=True)
async def eager() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_task_factory(eagerly)
    yield
    loop.set_task_factory(None)


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
        user.connection.wake()

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
            await until(lambda: locks.statistics().connections == 2)
        await waiting
        assert len(proxy.connections) == 2
        async with locks.lock("a") as lease:
            await lease.renew()
        # The renewal may have gone by the connection for commands, while the one for renewals was being made.
        await until(lambda: len(proxy.connections) == locks.statistics().connections == 3)


async def take(lock: AsyncRLock) -> int:
    async with lock as lease:
        return lease.token


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
    assert len(closings) == 2
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


@pytest.mark.parametrize("works", [1, 2])
async def test_work_of_a_leader_that_steps_down_at_once_is_stopped_before_another_leads(
    redis: Redis, works: int
) -> None:
    async with LockClient(redis) as locks, LockClient(redis) as other:
        term = await locks.leader("scheduler").try_lead()
        assert term is not None
        ended = False

        async def work() -> None:
            nonlocal ended
            for _ in range(1, works):
                await term.start(asyncio.sleep(0))
            term.step_down()
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                ended = True

        working = term.start(work())
        async with other.leader("scheduler"):
            assert ended
        assert working.cancelled()
