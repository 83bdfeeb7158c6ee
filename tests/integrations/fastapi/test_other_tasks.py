"""Work outside of the endpoint's task: in threads, streaming bodies, background tasks and middleware."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial, update_wrapper, wraps
from typing import Annotated, Any, Literal
from uuid import uuid4

import anyio.from_thread
import fastapi
import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Request
from redis.asyncio import Redis
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

import aiolock.fastapi
from aiolock import AioLockError, Lease, LockClient
from aiolock.fastapi import Locks, add_exception_handlers, lock_for
from aiolock.testing import lose
from tests.support.asgi import served
from tests.support.observe import freed, until

NAME = "order"


@asynccontextmanager
async def requests(app: FastAPI, locks: LockClient) -> AsyncIterator[httpx.AsyncClient]:
    add_exception_handlers(app)
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with served(app) as client:
        yield client


# Endpoints that run in a thread.


async def test_a_plain_endpoint_checks_its_lease_in_its_thread(locks: LockClient) -> None:
    app = FastAPI()
    began, go_on, checked = threading.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    errors: list[Exception] = []

    @app.get("/")
    def endpoint(lease: Annotated[Lease, lock_for(NAME)]) -> str:
        began.set()
        go_on.wait(30)
        try:
            lease.check()
        except AioLockError as error:
            errors.append(error)
            raise
        finally:
            loop.call_soon_threadsafe(checked.set)
        return "written"

    async with requests(app, locks) as client:
        answer = asyncio.create_task(client.get("/"))
        await until(began.is_set, within=30)
        await lose(locks, NAME)
        go_on.set()
        assert (await answer).status_code == 503
        await asyncio.wait_for(checked.wait(), 30)
    assert len(errors) == 1


async def test_a_plain_endpoint_that_is_cancelled_works_on_without_its_lock(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    began, go_on = threading.Event(), threading.Event()
    checked: list[str] = []

    @app.get("/")
    def endpoint(lease: Annotated[Lease, lock_for(NAME)]) -> None:
        began.set()
        go_on.wait(30)
        with pytest.raises(AioLockError):
            lease.check()
        checked.append("it")

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        request = asyncio.create_task(client.get("/"))
        await asyncio.to_thread(began.wait, 30)
        # uvicorn does so when it is forced to stop.
        request.cancel()
        await freed(redis, NAME)
        assert not checked
        go_on.set()
        await until(lambda: checked == ["it"], within=30)
        await asyncio.wait([request])


async def test_a_plain_endpoint_takes_a_lock_of_a_named_owner(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    @app.get("/")
    def endpoint(locks: Locks) -> bool:
        lock = locks.lock(NAME, owner=str(uuid4()))
        lease = anyio.from_thread.run(lock.try_lock, 0, 20)
        if lease is None:
            return False
        try:
            return anyio.from_thread.run(lock.held)
        finally:
            anyio.from_thread.run(lease.release)

    async with requests(app, locks) as client:
        assert (await client.get("/")).json() is True
        assert await redis.exists(NAME) == 0
        async with LockClient(redis) as other, other.lock(NAME):
            assert (await client.get("/")).json() is False


# Streaming bodies.


async def lock_of_the_response(locks: Locks) -> AsyncIterator[Lease]:
    """Scoped by the request: entered and left in the request's task, after the last byte."""
    async with locks.lock(NAME).hold(wait=0) as lease:
        yield lease


class Stream:
    """An application that streams: a first chunk, then another when it may go on."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.go_on = asyncio.Event()
        self.app.get("/by-dependency")(self.by_dependency)
        self.app.get("/by-body")(self.by_body)

    async def by_dependency(self, lease: Annotated[Lease, Depends(lock_of_the_response)]) -> Response:
        return StreamingResponse(self.chunks())

    async def by_body(self, locks: Locks) -> Response:
        async def body() -> AsyncIterator[str]:
            async with locks.lock(NAME):
                async for chunk in self.chunks():
                    yield chunk

        return StreamingResponse(body())

    async def chunks(self) -> AsyncIterator[str]:
        yield "first\n"
        await self.go_on.wait()
        yield "last\n"


STREAMS = ["/by-dependency", "/by-body"]


@pytest.mark.parametrize("path", STREAMS)
async def test_a_streaming_body_is_under_the_lock_to_its_end(path: str, locks: LockClient, redis: Redis) -> None:
    stream = Stream()
    async with requests(stream.app, locks) as client, client.stream("GET", path) as answer:
        chunks = answer.aiter_text()
        assert await anext(chunks) == "first\n"
        assert await redis.exists(NAME) == 1
        stream.go_on.set()
        assert await anext(chunks) == "last\n"
        await freed(redis, NAME)


@pytest.mark.parametrize("path", STREAMS)
async def test_a_client_that_leaves_a_stream_frees_the_lock(path: str, locks: LockClient, redis: Redis) -> None:
    async with requests(Stream().app, locks) as client:
        async with client.stream("GET", path) as answer:
            assert await anext(answer.aiter_text()) == "first\n"
        await freed(redis, NAME)
        assert locks.statistics().held == 0


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_whose_lock_is_lost_breaks_off(path: str, locks: LockClient) -> None:
    async with requests(Stream().app, locks) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            async with client.stream("GET", path) as answer:
                chunks = answer.aiter_text()
                assert await anext(chunks) == "first\n"
                await lose(locks, NAME)
                await anext(chunks)


async def test_a_stream_that_is_locked_by_a_dependency_is_refused_with_a_problem(
    locks: LockClient, other: LockClient
) -> None:
    async with requests(Stream().app, locks) as client, other.lock(NAME):
        refused = await client.get("/by-dependency")
    assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")


has_sse = hasattr(fastapi, "sse")


@pytest.mark.skipif(not has_sse, reason="this FastAPI has no endpoints that are event streams")
@pytest.mark.parametrize("leaves", [False, True])
async def test_an_event_stream_is_locked_by_a_dependency(
    leaves: bool, locks: LockClient, other: LockClient, redis: Redis
) -> None:
    from fastapi.sse import EventSourceResponse

    app = FastAPI()
    go_on = asyncio.Event()

    @app.get("/", response_class=EventSourceResponse)
    async def endpoint(lease: Annotated[Lease, Depends(lock_of_the_response)]) -> AsyncIterator[str]:
        yield "first"
        await go_on.wait()
        yield "last"

    async with requests(app, locks) as client:
        async with other.lock(NAME):
            assert (await client.get("/")).status_code == 409
        async with client.stream("GET", "/") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == 'data: "first"'
            assert await redis.exists(NAME) == 1
            if not leaves:
                go_on.set()
                assert 'data: "last"' in [line async for line in lines]
        await freed(redis, NAME)
        assert locks.statistics().held == 0


async def yields() -> AsyncIterator[int]:
    raise AssertionError("it would work without the lock")
    yield 1


def yields_in_a_thread() -> Iterator[int]:
    raise AssertionError("it would work without the lock")
    yield 1


class Yields:
    async def __call__(self) -> AsyncIterator[int]:
        raise AssertionError("it would work without the lock")
        yield 1


class YieldsInAThread:
    def __call__(self) -> Iterator[int]:
        raise AssertionError("it would work without the lock")
        yield 1


class YieldsByItself(Yields):
    def __init__(self) -> None:
        update_wrapper(self, returns)


async def returns() -> list[int]:
    raise AssertionError("nothing calls it")


@wraps(returns)
async def yields_for_another() -> AsyncIterator[int]:
    raise AssertionError("it would work without the lock")
    yield 1


@wraps(yields)
async def returns_for_another() -> AsyncIterator[int]:
    raise AssertionError("FastAPI takes it for what it wraps, and fails")


OBJECTS = [Yields(), YieldsInAThread(), YieldsByItself()]
WRAPPED = [yields_for_another, returns_for_another, partial(yields), partial(Yields()), partial(yields_for_another)]
ENDPOINTS = [yields, yields_in_a_thread, *OBJECTS, *WRAPPED]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_an_endpoint_that_yields_is_refused_because_it_would_work_without_the_lock(
    endpoint: Any, locks: LockClient, redis: Redis
) -> None:
    app, router = FastAPI(), APIRouter(dependencies=[lock_for(lock_name)])
    router.get("/events", response_model=None)(endpoint)
    app.include_router(router)
    refused = "the endpoint of /events yields its response.*`yield` dependency of the default scope"
    with pytest.raises(RuntimeError, match=refused):
        async with aiolock.fastapi.lifespan("redis://127.0.0.1:1")(app):
            pass
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        with pytest.raises(RuntimeError, match=refused):
            await client.get("/events")
    assert not locks.statistics().held
    assert not await redis.exists(NAME)


async def lock_name() -> str:
    return NAME


async def test_behind_a_base_http_middleware_nobody_sees_that_a_stream_broke_off(locks: LockClient) -> None:
    """Starlette hides the error; when this test fails, the documentation can be shorter."""

    async def dispatch(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    stream = Stream()
    stream.app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    async with requests(stream.app, locks) as client, client.stream("GET", "/by-dependency") as answer:
        chunks = answer.aiter_text()
        assert await anext(chunks) == "first\n"
        await lose(locks, NAME)
        assert [chunk async for chunk in chunks] == []


# Sessions, and other acts of a dependency as it is left.


@pytest.mark.parametrize("scope", ["function", "request"])
@pytest.mark.parametrize("first", ["session", "lock"])
async def test_a_session_commits_under_the_lock_if_it_is_left_first(
    scope: Literal["function", "request"], first: str, locks: LockClient
) -> None:
    app = FastAPI()
    committed_under_lock: list[bool] = []
    held = lock_for(NAME)

    async def session() -> AsyncIterator[None]:
        yield
        committed_under_lock.append(await locks.lock(NAME).locked())

    async def session_that_needs_the_lease(lease: Annotated[Lease, held]) -> AsyncIterator[None]:
        async for each in session():
            yield each

    bare = Depends(session, scope=scope)
    safe = Depends(session_that_needs_the_lease, scope="function")
    app.get("/bare", dependencies=[bare, held] if first == "session" else [held, bare])(lambda: None)
    app.get("/safe", dependencies=[safe, held] if first == "session" else [held, safe])(lambda: None)
    async with requests(app, locks) as client:
        for path in ("/bare", "/safe"):
            assert (await client.get(path)).is_success
    await until(lambda: len(committed_under_lock) == 2)
    assert committed_under_lock == [scope == "function" and first == "lock", True]


# Background tasks.


class Afterwards:
    """Background work that goes on when the test says so."""

    def __init__(self) -> None:
        self.began, self.go_on, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work(self) -> None:
        self.began.set()
        await self.go_on.wait()

    async def with_its_own_lock(self, locks: LockClient) -> None:
        async with locks.lock(NAME):
            await self.work()
        self.ended.set()

    async def with_the_lease_of_the_endpoint(self, lease: Lease) -> None:
        try:
            await self.work()
            await asyncio.to_thread(lease.check)
        finally:
            await lease.release()
        self.ended.set()

    async def check(self, redis: Redis) -> None:
        await asyncio.wait_for(self.began.wait(), 30)
        assert await redis.exists(NAME) == 1
        self.go_on.set()
        await asyncio.wait_for(self.ended.wait(), 30)
        assert await redis.exists(NAME) == 0


async def test_a_background_task_takes_its_lock_itself(locks: LockClient, redis: Redis) -> None:
    app, afterwards = FastAPI(), Afterwards()

    @app.get("/", dependencies=[lock_for(NAME)])
    async def endpoint(locks: Locks, tasks: BackgroundTasks) -> None:
        tasks.add_task(afterwards.with_its_own_lock, locks)

    async with requests(app, locks) as client:
        assert (await client.get("/")).is_success
        await afterwards.check(redis)


async def test_a_background_task_is_passed_the_lease(locks: LockClient, redis: Redis) -> None:
    app, afterwards = FastAPI(), Afterwards()

    @app.get("/")
    async def endpoint(locks: Locks, tasks: BackgroundTasks) -> None:
        tasks.add_task(afterwards.with_the_lease_of_the_endpoint, await locks.lock(NAME).acquire())

    async with requests(app, locks) as client:
        assert (await client.get("/")).is_success
        await afterwards.check(redis)


async def test_work_that_outlives_the_request_is_a_named_owner(locks: LockClient, redis: Redis) -> None:
    app, afterwards = FastAPI(), Afterwards()
    jobs: set[asyncio.Task[None]] = set()

    @app.get("/")
    async def endpoint(locks: Locks) -> bool:
        lease = await locks.lock(NAME, owner=f"job {uuid4()}").try_lock()
        if lease is None:
            return False
        jobs.add(asyncio.create_task(afterwards.with_the_lease_of_the_endpoint(lease)))
        return True

    async with requests(app, locks) as client:
        assert (await client.get("/")).json() is True
        assert (await client.get("/")).json() is False
        await afterwards.check(redis)
        await asyncio.wait(jobs)


async def test_a_lease_that_nobody_gives_back_ends_with_the_request(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint(locks: Locks) -> None:
        await locks.lock(NAME).acquire()

    async with requests(app, locks) as client:
        assert (await client.get("/")).is_success
        await freed(redis, NAME)


# Middleware.


async def test_a_base_http_middleware_passes_its_lease_along(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    async def dispatch(request: Request, call_next: RequestResponseEndpoint) -> Response:
        async with locks.lock(NAME).hold(wait=0) as lease:
            request.state.lease = lease
            return await call_next(request)

    @app.get("/")
    async def endpoint(request: Request, locks: Locks) -> list[bool]:
        request.state.lease.check()
        return [await locks.lock(NAME).locked(), await locks.lock(NAME).held()]

    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    async with requests(app, locks) as client:
        assert (await client.get("/")).json() == [True, False]
        assert await redis.exists(NAME) == 0


async def test_a_base_http_middleware_shares_a_named_owner(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    async def dispatch(request: Request, call_next: RequestResponseEndpoint) -> Response:
        request.state.owner = f"request {uuid4()}"
        async with locks.lock(NAME, owner=request.state.owner).hold(wait=0):
            return await call_next(request)

    @app.get("/")
    async def endpoint(request: Request, locks: Locks) -> int:
        async with locks.lock(NAME, owner=request.state.owner) as lease:
            return lease.holds

    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    async with requests(app, locks) as client:
        assert (await client.get("/")).json() == 2
        assert await redis.exists(NAME) == 0


class UnderLock:
    """A middleware of plain ASGI: it runs in the task of the endpoint."""

    def __init__(self, app: ASGIApp, locks: LockClient) -> None:
        self.app = app
        self.locks = locks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        async with self.locks.lock(NAME).hold(wait=0):
            return await self.app(scope, receive, send)


async def test_an_error_in_a_base_http_middleware_is_a_500(locks: LockClient, other: LockClient) -> None:
    """The middleware is outside of the exception handlers, which do not see its errors."""
    app = FastAPI()
    began = asyncio.Event()

    async def dispatch(request: Request, call_next: RequestResponseEndpoint) -> Response:
        async with locks.lock(NAME).hold(wait=0):
            return await call_next(request)

    app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)

    @app.get("/")
    async def endpoint() -> None:
        began.set()
        await asyncio.sleep(30)

    async with requests(app, locks) as client:
        async with other.lock(NAME):
            assert (await client.get("/")).status_code == 500
        answer = asyncio.create_task(client.get("/"))
        await began.wait()
        await lose(locks, NAME)
        assert (await answer).status_code == 500


async def test_a_plain_middleware_has_the_task_of_the_endpoint(locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint(lease: Annotated[Lease, lock_for(NAME)]) -> Any:
        return lease.holds

    app.add_middleware(UnderLock, locks=locks)
    async with requests(app, locks) as client:
        assert (await client.get("/")).json() == 2
        await freed(redis, NAME)
