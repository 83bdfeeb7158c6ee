"""The end of an application, for handlers that hold locks or wait for them."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientError, ClientSession, web
from redis.asyncio import Redis

from aiolock import Lease, LeaseLostError, LockClient, LockConfig, to_thread
from aiolock.aiohttp import LOCKS, lease_from, locks_from, setup, synchronized
from tests.support.observe import until

GO = web.AppKey("GO", asyncio.Event)
RELEASE_TIMEOUT = 2.0
Names = list[str]


@asynccontextmanager
async def running(
    redis: Redis,
    work: Callable[[web.Request], Awaitable[None]],
    *,
    shutdown_timeout: float = 0.1,
    handler_cancellation: bool = False,
) -> AsyncIterator[tuple[web.AppRunner, ClientSession]]:
    """
    An application that does *work* under the lock of the path, by decorator or, below ``/hand``, by hand.

    It has ended when the block has.
    """
    app = web.Application()
    setup(app, redis, config=LockConfig(release_timeout=RELEASE_TIMEOUT))
    app[GO] = asyncio.Event()

    @synchronized("{name}", wait=60)
    async def handler(request: web.Request) -> web.Response:
        await work(request)
        return web.Response()

    async def by_hand(request: web.Request) -> web.Response:
        async with locks_from(request).lock(request.match_info["name"]):
            await work(request)
        return web.Response()

    app.router.add_post("/{name}", handler)
    app.router.add_post("/hand/{name}", by_hand)
    runner = web.AppRunner(app, shutdown_timeout=shutdown_timeout, handler_cancellation=handler_cancellation)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as session:
        yield runner, session
        await runner.cleanup()


async def told(session: ClientSession, path: str) -> int:
    """The status; 0 when the connection was closed instead."""
    try:
        async with session.post(path) as response:
            return response.status
    except ClientError:
        return 0


def at_work(runner: web.AppRunner) -> tuple[int, int]:
    """How many locks are held and waited for."""
    statistics = runner.app[LOCKS].statistics()
    return statistics.held, statistics.parked


def rolling_back_under(names: Names) -> Callable[[web.Request], Awaitable[None]]:
    async def work(request: web.Request) -> None:
        """Work until cancelled, then roll back, and note the name of the lock if it is still held."""
        name = request.match_info["name"]
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.05)
            if await locks_from(request).lock(name).held():
                names.append(name)

    return work


async def test_a_handler_that_ends_in_time_has_its_lock_until_then(redis: Redis, other: LockClient) -> None:
    held: list[bool] = []

    async def work(request: web.Request) -> None:
        await request.app[GO].wait()
        held.append(await locks_from(request).lock("a").held())

    async with running(redis, work, shutdown_timeout=30) as (runner, session):
        requests = [asyncio.create_task(told(session, "/a")) for _ in range(2)]
        await until(lambda: at_work(runner) == (1, 1))
        asyncio.get_running_loop().call_soon(runner.app[GO].set)
        await runner.cleanup()
        assert [await request for request in requests] == [200, 200]
    assert held == [True, True]
    assert not await other.lock("a").locked()


async def test_handlers_that_do_not_end_are_cancelled_and_roll_back_under_their_locks(
    redis: Redis, other: LockClient
) -> None:
    names: Names = []
    async with running(redis, rolling_back_under(names)) as (runner, session):
        requests = [asyncio.create_task(told(session, f"/{name}")) for name in "aabbc"]
        await until(lambda: at_work(runner) == (3, 2))
        await runner.cleanup()
        assert at_work(runner) == (0, 0)
        assert not any([await other.lock(name).locked() for name in "abc"])
        assert {await request for request in requests} <= {0, 503}
    assert sorted(names) == ["a", "b", "c"]


async def test_with_handler_cancellation_aiohttp_breaks_into_a_rollback(redis: Redis, other: LockClient) -> None:
    ends: list[str] = []

    async def work(request: web.Request) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ends.append("cancelled again")
                raise

    async with running(redis, work, handler_cancellation=True) as (runner, session):
        request = asyncio.create_task(told(session, "/a"))
        await until(lambda: at_work(runner) == (1, 0))
        await runner.cleanup()
        assert ends == ["cancelled again"]
        assert not await other.lock("a").locked()
        assert await request in (0, 503)


@pytest.mark.parametrize("path", ["/a", "/hand/a"])
async def test_handlers_of_clients_that_have_gone_are_cancelled_too(redis: Redis, other: LockClient, path: str) -> None:
    names: Names = []
    async with running(redis, rolling_back_under(names)) as (runner, session):
        request = asyncio.create_task(told(session, path))
        await until(lambda: at_work(runner) == (1, 0))
        request.cancel()
        await asyncio.wait([request])
        await runner.cleanup()
        assert not await other.lock("a").locked()
    assert names == ["a"]


async def test_a_handler_that_does_not_let_itself_be_cancelled_loses_its_lock(redis: Redis, other: LockClient) -> None:
    async def work(request: web.Request) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            await request.app[GO].wait()

    async with running(redis, work) as (runner, session):
        request = asyncio.create_task(told(session, "/a"))
        await until(lambda: at_work(runner) == (1, 0))
        await runner.cleanup()
        assert not await other.lock("a").locked()
        runner.app[GO].set()
        assert await request in (0, 503)


@pytest.mark.slow
async def test_a_thread_has_the_release_timeout_under_its_lock_and_then_check_tells_it(
    redis: Redis, other: LockClient
) -> None:
    began, lost, go = threading.Event(), threading.Event(), threading.Event()
    kept: list[float] = []
    handlers: list[asyncio.Task[object]] = []

    def write(handler: "asyncio.Task[object]", lease: Lease) -> None:
        began.set()
        while not handler.cancelling():
            time.sleep(0.001)
        cancelled = time.monotonic()
        try:
            while True:
                lease.check()
                time.sleep(0.001)
        except LeaseLostError:
            kept.append(time.monotonic() - cancelled)
            lost.set()
            go.wait(30)

    async def work(request: web.Request) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        handlers.append(handler)
        await to_thread(write, handler, lease_from(request))

    async with running(redis, work) as (runner, session):
        request = asyncio.create_task(told(session, "/a"))
        await until(began.is_set)
        try:
            await runner.cleanup()
            assert lost.is_set()
            assert kept[0] > 0.75 * RELEASE_TIMEOUT
            assert not await other.lock("a").locked(), "the close did not free the lock"
        finally:
            go.set()
        await asyncio.wait([*handlers, request])
        assert request.result() in (0, 503)
