"""The answers to clients of a service, and their schema."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request, WebSocket
from fastapi.testclient import TestClient
from redis.asyncio import Redis
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocketDisconnect

import aiolock.fastapi
from aiolock import ClientClosedError, Lease, LeaseLostError, LockClient, LockTimeoutError
from aiolock._embedded_server import Server
from aiolock._fastapi.names import check_endpoints
from aiolock._web import problem as _problem
from aiolock.fastapi import Locks, add_exception_handlers, lock_for
from aiolock.testing import failing_commands, lose
from tests.support.asgi import served
from tests.support.holding import client_of_another_loop, lock_client
from tests.support.inside import redis_of
from tests.support.observe import until

OrderLock = Annotated[Lease, lock_for("order")]


@asynccontextmanager
async def requests(app: FastAPI, locks: LockClient, *, handlers: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    if handlers:
        add_exception_handlers(app)
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with served(app) as client:
        yield client


def assert_problem(response: httpx.Response, status: int, detail: str) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["retry-after"] == "1"
    document = response.json()
    assert document.keys() == {"type", "title", "status", "detail"}
    assert document["status"] == status
    assert detail in document["detail"]


def locked_application() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    async def endpoint(lease: OrderLock) -> str:
        return "done"

    @app.get("/other-status", dependencies=[lock_for("order", status=423)])
    async def other_status() -> None: ...

    @app.get("/by-hand")
    async def by_hand(locks: Locks) -> None:
        async with locks.lock("order").hold(wait=0.01):
            pass

    return app


# Contention.


async def test_contention_is_a_conflict(locks: LockClient, other: LockClient) -> None:
    async with requests(locked_application(), locks) as client, other.lock("order") as lease:
        refused = await client.get("/")
        assert_problem(refused, 409, "Somebody else is working on this. Nothing was done.")
        assert "order" not in refused.text
        assert str(lease.token) not in refused.text
        assert_problem(await client.get("/other-status"), 423, "Somebody else")
        by_hand = await client.get("/by-hand")
        assert_problem(by_hand, 409, "Somebody else")
        assert "Nothing was done" not in by_hand.text


async def test_without_handlers_the_status_is_right_too(locks: LockClient, other: LockClient) -> None:
    async with requests(locked_application(), locks, handlers=False) as client, other.lock("order"):
        refused = await client.get("/")
        assert (refused.status_code, refused.headers["retry-after"]) == (409, "1")
        assert "Somebody else" in refused.json()["detail"]


async def test_a_mounted_application_has_handlers_of_its_own(locks: LockClient, other: LockClient) -> None:
    app, sub = FastAPI(), locked_application()
    add_exception_handlers(sub)
    sub.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    app.mount("/sub", sub)
    async with requests(app, locks) as client, other.lock("order"):
        assert_problem(await client.get("/sub/"), 409, "Somebody else")
        assert_problem(await client.get("/sub/by-hand"), 409, "Somebody else")


# Redis.


async def test_redis_out_of_reach_is_out_of_service() -> None:
    cut_off = lock_client("redis://127.0.0.1:1", command_timeout=0.1)
    async with cut_off as locks, requests(locked_application(), locks) as client:
        for path, detail in (("/", "Nothing was done"), ("/other-status", "Nothing"), ("/by-hand", "cannot be sure")):
            assert_problem(await client.get(path), 503, detail)


async def test_a_closed_client_is_out_of_service(redis: Redis) -> None:
    locks = LockClient(redis)
    await locks.aclose()
    async with requests(locked_application(), locks) as client:
        assert_problem(await client.get("/"), 503, "shutting down")


async def test_why_it_is_out_of_service_is_logged_and_not_for_each_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_problem, "_warned", {})
    monkeypatch.setattr(_problem, "_PAUSE", 3600)
    cut_off = lock_client("redis://127.0.0.1:1", command_timeout=0.1)
    async with cut_off as locks, requests(locked_application(), locks) as client:
        for path in ("/", "/by-hand"):
            assert (await client.get(path)).status_code == 503
    warnings = [record.getMessage() for record in caplog.records if record.name == "aiolock"]
    assert len(warnings) == 1
    assert "BackendError: acquire of " in warnings[0]
    assert "127.0.0.1:1" in warnings[0]


@pytest.mark.parametrize("path", ["/", "/by-hand"])
async def test_a_client_of_another_loop_is_a_mistake_in_the_service(path: str, server: Server) -> None:
    app = locked_application()
    add_exception_handlers(app)
    locks = await client_of_another_loop(server.url)
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        with pytest.raises(ClientClosedError, match="another event loop"):
            await client.get(path)


async def test_a_foreign_key_is_a_mistake_in_the_service(locks: LockClient, redis: Redis) -> None:
    await redis.set("order", "something else")
    async with requests(locked_application(), locks) as client:
        assert (await client.get("/")).status_code == 500


async def test_work_that_is_done_is_a_success_though_its_release_gets_no_answer(
    locks: LockClient, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint(lease: OrderLock) -> str:
        failing.enter_context(failing_commands(locks))
        return "done"

    with ExitStack() as failing:
        async with requests(app, locks) as client:
            answer = await client.get("/")
    assert (answer.status_code, answer.json()) == (200, "done")
    assert "its release was not answered" in caplog.text
    assert await redis.exists("order") == 0


async def test_a_release_by_hand_that_gets_no_answer_does_not_say_that_nothing_was_done(locks: LockClient) -> None:
    app = FastAPI()

    @app.get("/")
    async def endpoint() -> None:
        async with locks.lock("order"):
            failing.enter_context(failing_commands(locks))

    with ExitStack() as failing:
        async with requests(app, locks) as client:
            answer = await client.get("/")
    assert_problem(answer, 503, "cannot be sure")
    assert "Nothing was done" not in answer.text


@pytest.mark.parametrize("names", [("order:{number}",), ("order:{number}", "stock")], ids=["one", "several"])
async def test_an_endpoint_may_run_without_its_lock_while_redis_fails(
    names: tuple[str, ...], locks: LockClient
) -> None:
    app = FastAPI()

    @app.get("/{number}")
    async def endpoint(number: int, lease: Annotated[Any, lock_for(*names, on_unavailable="run")]) -> bool:
        if number == 404:
            raise HTTPException(404)
        return lease is not None

    async with requests(app, locks) as client:
        with failing_commands(locks, None):
            assert (await client.get("/7")).json() is False
            assert (await client.get("/404")).status_code == 404
        assert (await client.get("/7")).json() is True
        async with locks.lock("order:7"):
            assert (await client.get("/7")).status_code == 409
            with failing_commands(locks, None):
                assert_problem(await client.get("/7"), 503, "Nothing was done.")
    assert locks.statistics().held == 0


# A lost lock.


class DoneError(Exception):
    """An exception of the service, whose handler answers with a success."""


class Worker:
    """An application whose endpoints work until they are cancelled, and note how they end."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.events: list[str] = []
        self.app.get("/rolls-back", dependencies=[lock_for("order")])(self.rolls_back)
        self.app.get("/swallows", dependencies=[lock_for("order")])(self.swallows)
        self.app.get("/ignores", dependencies=[lock_for("order")])(self.ignores)
        self.app.get("/redirects", dependencies=[lock_for("order")])(self.redirects)
        self.app.get("/tells-of-success", dependencies=[lock_for("order")])(self.tells_of_success)
        self.app.get("/own")(self.own)
        self.app.exception_handler(DoneError)(self.done)

    async def rolls_back(self) -> str:
        try:
            await self.work()
        finally:
            await asyncio.sleep(0.01)
            self.events.append("rolled back")
        return "done"

    async def swallows(self) -> str:
        try:
            await self.work()
        except asyncio.CancelledError:
            self.events.append("swallowed")
        return "done"

    async def ignores(self, locks: Locks) -> str:
        await redis_of(locks).delete("order")
        self.events.append("ignored")
        return "done"

    async def redirects(self, locks: Locks) -> None:
        await self.ignores(locks)
        raise HTTPException(303, headers={"Location": "/done"})

    async def tells_of_success(self) -> None:
        try:
            await self.work()
        except asyncio.CancelledError:
            raise DoneError from None

    async def done(self, request: Request, error: Exception) -> JSONResponse:
        return JSONResponse("done")

    async def own(self, locks: Locks) -> None:
        async with locks.lock("order"):
            await self.work()

    async def work(self) -> None:
        self.events.append("began")
        await asyncio.sleep(3600)


@pytest.mark.parametrize("path", ["/rolls-back", "/swallows", "/tells-of-success", "/own"])
async def test_a_lost_lock_cancels_the_endpoint_and_is_never_a_success(path: str, locks: LockClient) -> None:
    worker = Worker()
    async with requests(worker.app, locks) as client:
        answer = asyncio.create_task(client.get(path))
        await until(lambda: worker.events == ["began"], within=30)
        await lose(locks, "order")
        assert_problem(await answer, 503, "could not be sure to work alone any more")
    ends = {"/rolls-back": ["rolled back"], "/swallows": ["swallowed"]}
    assert worker.events == ["began", *ends.get(path, [])]


async def test_a_lost_lock_is_no_success_without_handlers_either(locks: LockClient) -> None:
    worker = Worker()
    async with requests(worker.app, locks, handlers=False) as client:
        answer = asyncio.create_task(client.get("/rolls-back"))
        await until(lambda: worker.events == ["began"], within=30)
        await lose(locks, "order")
        assert (await answer).status_code == 503
        assert "could not be sure" in (await answer).json()["detail"]


@pytest.mark.parametrize("path", ["/ignores", "/redirects"])
async def test_a_lock_that_is_found_lost_at_the_release_is_no_success(path: str, locks: LockClient) -> None:
    worker = Worker()
    async with requests(worker.app, locks) as client:
        assert_problem(await client.get(path), 503, "could not be sure")
    assert worker.events == ["ignored"]


@pytest.mark.parametrize("error", [DoneError(), HTTPException(404), LockTimeoutError("another", 1)])
async def test_the_loss_of_the_lock_comes_before_any_exception_of_the_endpoint(
    error: Exception, locks: LockClient
) -> None:
    worker = Worker()

    @worker.app.get("/", dependencies=[lock_for("order")])
    async def endpoint(locks: Locks) -> None:
        await worker.ignores(locks)
        raise error

    async with requests(worker.app, locks) as client:
        assert_problem(await client.get("/"), 503, "could not be sure")


async def test_an_exception_that_is_handled_as_a_success_is_one_while_the_lock_is_held(locks: LockClient) -> None:
    worker = Worker()

    @worker.app.get("/", dependencies=[lock_for("order")])
    async def endpoint() -> None:
        raise DoneError

    async with requests(worker.app, locks) as client:
        answer = await client.get("/")
    assert (answer.status_code, answer.json()) == (200, "done")


@pytest.mark.parametrize("status", [303, 404])
async def test_an_answer_that_is_raised_is_passed_on(status: int, locks: LockClient, redis: Redis) -> None:
    app = FastAPI()

    @app.get("/", dependencies=[lock_for("order")])
    async def endpoint() -> None:
        raise HTTPException(status, "mine", {"Location": "/done"})

    async with requests(app, locks) as client:
        answer = await client.get("/")
    assert (answer.status_code, answer.json(), answer.headers["location"]) == (status, {"detail": "mine"}, "/done")
    assert await redis.exists("order") == 0


async def test_two_locks_that_are_lost_are_one_line_each(locks: LockClient, caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    began, both = asyncio.Event(), asyncio.Event()

    @app.get("/", dependencies=[lock_for("outer"), lock_for("inner")])
    async def endpoint() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await both.wait()

    async with requests(app, locks) as client:
        request = asyncio.create_task(client.get("/"))
        await began.wait()
        await lose(locks, "inner")
        await lose(locks, "outer")
        both.set()
        assert (await request).status_code == 503
    assert sum(record.getMessage().startswith("lock ") for record in caplog.records) == 2
    assert [record.exc_info for record in caplog.records if record.exc_info] == []


async def test_a_lock_lost_under_a_base_http_middleware_is_no_success(locks: LockClient) -> None:
    worker = Worker()

    async def dispatch(request: Request, call_next: RequestResponseEndpoint) -> Response:
        return await call_next(request)

    worker.app.add_middleware(BaseHTTPMiddleware, dispatch=dispatch)
    async with requests(worker.app, locks) as client:
        answer = asyncio.create_task(client.get("/rolls-back"))
        await until(lambda: worker.events == ["began"], within=30)
        await lose(locks, "order")
        assert_problem(await answer, 503, "could not be sure")
    assert worker.events == ["began", "rolled back"]


async def test_a_lock_lost_while_another_dependency_works_is_no_success(locks: LockClient) -> None:
    app, worker = FastAPI(), Worker()

    @app.get("/", dependencies=[lock_for("order"), Depends(worker.work)])
    async def endpoint() -> None:
        worker.events.append("endpoint")

    async with requests(app, locks) as client:
        answer = asyncio.create_task(client.get("/"))
        await until(lambda: worker.events == ["began"], within=30)
        await lose(locks, "order")
        assert_problem(await answer, 503, "could not be sure")
    assert worker.events == ["began"]


@pytest.mark.parametrize("error", [LockTimeoutError("another", 1), LeaseLostError("another", 1, "expired")])
async def test_errors_about_other_locks_are_left_to_other_handlers(error: Exception, locks: LockClient) -> None:
    app = FastAPI()
    seen: list[Exception] = []

    @app.exception_handler(type(error))
    async def handle(request: Request, raised: Exception) -> JSONResponse:
        seen.append(raised)
        return JSONResponse("mine", 418)

    @app.get("/")
    async def endpoint(lease: OrderLock) -> None:
        raise error

    async with requests(app, locks, handlers=False) as client:
        assert (await client.get("/")).status_code == 418
    assert seen == [error]


def test_a_websocket_whose_lock_is_lost_is_closed(server: Server) -> None:
    app = FastAPI(lifespan=aiolock.fastapi.lifespan(server.url))
    add_exception_handlers(app)

    @app.websocket("/")
    async def endpoint(websocket: WebSocket, lease: OrderLock, locks: Locks) -> None:
        await websocket.accept()
        await lose(locks, "order")
        await websocket.send_text("told after the loss")
        await asyncio.sleep(3600)

    @app.websocket("/by-hand")
    async def by_hand(websocket: WebSocket, locks: Locks) -> None:
        await websocket.accept()
        raise LockTimeoutError("order", 1)

    with TestClient(app) as client:
        for path, reason in (("/", "half done"), ("/by-hand", "Somebody else")):
            with client.websocket_connect(path) as websocket, pytest.raises(WebSocketDisconnect) as closed:
                while True:
                    websocket.receive_text()
            assert closed.value.code == 1013
            assert reason in closed.value.reason


async def test_a_websocket_that_was_closed_gets_no_response() -> None:
    """Servers log a response after the close as an error of the application."""
    app, sent = FastAPI(), list[str]()
    add_exception_handlers(app)

    @app.websocket("/")
    async def by_hand(websocket: WebSocket) -> None:
        await websocket.accept()
        raise LockTimeoutError("order", 1)

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message["type"])

    scope = {"type": "websocket", "path": "/", "headers": [], "query_string": b"", "subprotocols": []}
    await app(scope, receive, send)
    assert sent == ["websocket.accept", "websocket.close"]


# The schema.


def responses(schema: dict[str, Any], path: str, method: str = "get") -> dict[str, Any]:
    described: dict[str, Any] = schema["paths"][path][method]["responses"]
    return described


def test_the_schema_describes_the_problems() -> None:
    app = locked_application()
    add_exception_handlers(app)
    add_exception_handlers(app)
    conflict = responses(app.openapi(), "/")["409"]
    assert conflict["content"]["application/problem+json"]["schema"]["properties"].keys() == {
        *("type", "title", "status", "detail")
    }
    assert "Retry-After" in conflict["headers"]
    assert responses(app.openapi(), "/").keys() == {"200", "409", "503"}
    assert responses(app.openapi(), "/other-status").keys() == {"200", "423", "503"}
    assert responses(app.openapi(), "/by-hand").keys() == {"200"}
    json.dumps(app.openapi())


def test_the_schema_describes_routers_and_keeps_responses_that_are_declared_by_hand() -> None:
    app, router = FastAPI(), APIRouter(prefix="/orders/{order}")

    @router.post("/pay", dependencies=[lock_for("order:{order}")], responses={409: {"description": "Paid already"}})
    async def pay(order: int) -> None: ...

    @router.get("/look")
    async def look(order: int) -> None: ...

    app.include_router(router, prefix="/api")
    app.include_router(router, prefix="/locked", dependencies=[lock_for("again:{order}", status=423)])
    add_exception_handlers(app)
    schema = app.openapi()
    paid = responses(schema, "/api/orders/{order}/pay", "post")
    assert paid["409"]["description"] == "Paid already"
    assert "503" in paid
    assert responses(schema, "/api/orders/{order}/look").keys() == {"200", "422"}
    assert responses(schema, "/locked/orders/{order}/pay", "post").keys() == {"200", "409", "422", "423", "503"}
    assert responses(schema, "/locked/orders/{order}/look").keys() == {"200", "422", "423", "503"}


def test_the_schema_describes_each_status_by_all_of_its_causes() -> None:
    app = FastAPI()

    @app.get("/{order}", dependencies=[lock_for("order:{order}", status=422), lock_for("order:{order}", status=400)])
    async def endpoint(order: int) -> None: ...

    @app.get("/declared/{order}", dependencies=[lock_for("a", status=422)], responses={422: {"description": "Mine"}})
    async def declared(order: int) -> None: ...

    add_exception_handlers(app)
    add_exception_handlers(app)
    busy = "Somebody else is working on this."
    locked = responses(app.openapi(), "/{order}")
    assert (locked["400"]["description"], locked["422"]["description"]) == (busy, f"Validation Error\n\n{busy}")
    assert locked["422"]["content"].keys() == {"application/json", "application/problem+json"}
    assert all("Retry-After" in locked[status]["headers"] for status in ("400", "422", "503"))
    assert responses(app.openapi(), "/declared/{order}")["422"] == {"description": "Mine"}


class Role:
    """A dependency, or an endpoint, that no weak reference can be made to."""

    __slots__ = ()

    def __call__(self) -> str:
        return "clerk"


class Unhashable(Role):
    __hash__ = None  # type: ignore[assignment]


def test_the_schema_has_endpoints_and_dependencies_that_are_objects() -> None:
    app = FastAPI()
    app.add_api_route("/object", Role(), dependencies=[lock_for("order")])
    app.add_api_route("/depends", returns_nothing, dependencies=[lock_for("order"), Depends(Role())])
    add_exception_handlers(app)
    for path in ("/object", "/depends"):
        assert responses(app.openapi(), path).keys() == {"200", "409", "503"}


async def returns_nothing() -> None: ...


async def test_an_endpoint_that_has_no_hash_is_locked(locks: LockClient) -> None:
    app = FastAPI()
    app.add_api_route("/", Unhashable(), dependencies=[lock_for("order")])
    check_endpoints(app)
    async with requests(app, locks) as client:
        for _ in range(2):
            assert (await client.get("/")).json() == "clerk"


def test_the_schema_of_a_mounted_application_is_its_own() -> None:
    app, sub = FastAPI(), locked_application()
    app.mount("/sub", sub)
    add_exception_handlers(app)
    assert responses(sub.openapi(), "/").keys() == {"200"}
    add_exception_handlers(sub)
    assert responses(sub.openapi(), "/").keys() == {"200", "409", "503"}


def test_websockets_are_no_part_of_the_schema() -> None:
    app = locked_application()

    @app.websocket("/socket")
    async def endpoint(websocket: WebSocket, lease: OrderLock) -> None: ...

    add_exception_handlers(app)
    assert "/socket" not in app.openapi()["paths"]
    assert "409" in responses(app.openapi(), "/")


def test_a_schema_of_ones_own_is_extended() -> None:
    app = locked_application()
    describe = app.openapi
    app.openapi = lambda: describe() | {"info": {"title": "Mine", "version": "2"}}  # type: ignore[method-assign]
    add_exception_handlers(app)
    assert app.openapi()["info"]["title"] == "Mine"
    assert "409" in responses(app.openapi(), "/")
