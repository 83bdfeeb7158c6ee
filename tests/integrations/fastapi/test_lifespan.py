"""The client comes from the lifespan, `Locks`, overrides and mounted applications; errors say that there is none."""

import asyncio
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import fastapi.dependencies.utils
import fastapi.routing
import httpx
import pytest
from fastapi import APIRouter, FastAPI, Header, Request, WebSocket
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from redis.asyncio import Redis
from starlette.requests import HTTPConnection

import aiolock.fastapi
from aiolock import ClientClosedError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._fastapi import inside
from aiolock.fastapi import Locks, lock_for
from tests.support.asgi import served
from tests.support.observe import connected, until_connected


def with_endpoints(app: FastAPI) -> FastAPI:
    @app.get("/locked/{name}")
    async def locked(name: str, locks: Locks) -> bool:
        return await locks.lock(name).locked()

    @app.get("/client")
    async def client(locks: Locks) -> int:
        return id(locks)

    @app.websocket("/client")
    async def socket(websocket: WebSocket, locks: Locks) -> None:
        await websocket.accept()
        await websocket.send_json(id(locks))
        await websocket.close()

    return app


async def test_a_lifespan_of_a_url_keeps_a_client_and_closes_it(server: Server, redis: Redis) -> None:
    before = await connected(redis)
    async with served(with_endpoints(FastAPI(lifespan=aiolock.fastapi.lifespan(server.url)))) as client:
        assert (await client.get("/locked/orders")).json() is False
        assert await connected(redis) > before
    await until_connected(redis, before)


async def test_a_lifespan_of_a_client_borrows_it(redis: Redis) -> None:
    config = LockConfig(prefix="shop:")
    app = with_endpoints(FastAPI(lifespan=aiolock.fastapi.lifespan(redis, config=config)))
    async with served(app) as client, LockClient(redis) as other, other.lock("shop:orders"):
        assert (await client.get("/locked/orders")).json() is True
    assert await redis.ping()


async def test_the_error_of_a_lifespan_that_is_not_called_shows_the_call() -> None:
    app = FastAPI(lifespan=aiolock.fastapi.lifespan)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"lifespan\(url\)"), TestClient(app):
        pass


@pytest.mark.parametrize("given", [LockClient, LockClient(Redis()), LockClient.from_url, lambda: LockClient(Redis())])
def test_a_lock_client_or_its_maker_is_refused_with_advice(given: Any) -> None:
    with pytest.raises(TypeError, match=r"lifespan\(.redis://.*\) makes the LockClient itself: give it a URL, or"):
        aiolock.fastapi.lifespan(given)


async def test_starting_does_not_need_redis() -> None:
    async with served(with_endpoints(FastAPI(lifespan=aiolock.fastapi.lifespan("redis://127.0.0.1:1")))) as client:
        assert (await client.get("/client")).is_success


class State(TypedDict):
    locks: LockClient
    database: str


async def test_it_composes_with_a_lifespan_and_a_typed_state(server: Server) -> None:
    with_locks = aiolock.fastapi.lifespan(server.url)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[State]:
        async with with_locks(app) as state:
            yield {"database": "orders.db", **state}

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def look(request: Request, locks: Locks) -> list[object]:
        return [request.state.database, request.state.locks is locks]

    async with served(app) as client:
        assert (await client.get("/")).json() == ["orders.db", True]


async def test_the_lifespan_of_an_included_router_serves_the_application(server: Server) -> None:
    app = with_endpoints(FastAPI())
    app.include_router(APIRouter(lifespan=aiolock.fastapi.lifespan(server.url)))
    async with served(app) as client:
        assert (await client.get("/locked/orders")).json() is False


async def test_a_mounted_application_and_websockets_have_the_same_client(server: Server) -> None:
    app = with_endpoints(FastAPI(lifespan=aiolock.fastapi.lifespan(server.url)))
    app.mount("/sub", with_endpoints(FastAPI()))
    with TestClient(app) as client:
        own = client.get("/client").json()
        assert client.get("/sub/client").json() == own
        for path in ("/client", "/sub/client"):
            with client.websocket_connect(path) as websocket:
                assert websocket.receive_json() == own


async def test_overrides_are_honoured_also_in_a_mounted_application(locks: LockClient) -> None:
    app, sub = with_endpoints(FastAPI()), with_endpoints(FastAPI())
    app.mount("/sub", sub)
    for each in (app, sub):
        each.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.get("/client")).json() == id(locks)
        assert (await client.get("/sub/client")).json() == id(locks)


async def test_an_override_takes_the_place_of_the_client_of_the_lifespan(server: Server, locks: LockClient) -> None:
    """Also for `lock_for`; the override is a dependency like any other, and is called once for a request."""
    app, router = FastAPI(lifespan=aiolock.fastapi.lifespan(server.url)), APIRouter()
    users = []

    async def override(user: Annotated[str, Header()]) -> AsyncIterator[LockClient]:
        users.append(user)
        yield locks

    @router.post("/{order_id}", dependencies=[lock_for("order:{order_id}")])
    async def endpoint(order_id: int, given: Locks) -> list[bool]:
        return [given is locks, await given.lock(f"order:{order_id}").held()]

    app.include_router(router)
    async with served(app) as client:
        assert (await client.post("/7")).json() == [False, True]
        app.dependency_overrides[aiolock.fastapi.get_locks] = override
        assert (await client.post("/7", headers={"user": "ann"})).json() == [True, True]
        assert (await client.post("/7")).status_code == 422
        app.dependency_overrides.clear()
        assert (await client.post("/7")).json() == [False, True]
    assert users == ["ann"]


async def test_fastapi_does_not_solve_the_client_of_lock_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dependency costs FastAPI more than `lock_for` needs to find the client by itself."""
    app, found = FastAPI(lifespan=aiolock.fastapi.lifespan(server.url)), aiolock.fastapi.get_locks
    finds = 0

    async def counted(connection: HTTPConnection) -> LockClient:
        nonlocal finds
        finds += 1
        return await found(connection)

    @app.post("/", dependencies=[lock_for("orders")])
    async def endpoint() -> None:
        pass

    async with served(app) as client:
        monkeypatch.setattr(aiolock.fastapi, "get_locks", counted)
        assert (await client.post("/")).status_code == 200
    assert finds == 1


def assert_names_the_causes(error: BaseException) -> None:
    for cause in ("no aiolock lifespan", "must yield its state", "TestClient(app) without `with`", "ASGITransport"):
        assert cause in str(error)


def test_without_with_the_error_names_the_causes(server: Server) -> None:
    client = TestClient(with_endpoints(FastAPI(lifespan=aiolock.fastapi.lifespan(server.url))))
    with pytest.raises(RuntimeError) as raised:
        client.get("/client")
    assert_names_the_causes(raised.value)


async def test_with_a_transport_that_runs_no_lifespan_the_error_names_the_causes(server: Server) -> None:
    app = with_endpoints(FastAPI(lifespan=aiolock.fastapi.lifespan(server.url)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        with pytest.raises(RuntimeError) as raised:
            await client.get("/client")
    assert_names_the_causes(raised.value)


async def test_a_state_of_another_kind_under_the_same_name_is_not_taken() -> None:
    with pytest.raises(RuntimeError) as raised:
        await aiolock.fastapi.get_locks(HTTPConnection({"type": "http", "state": {"locks": "canals"}}))
    assert_names_the_causes(raised.value)


def assert_is_refused(name: str) -> None:
    """An import from FastAPI's inside, which `aiolock.fastapi` needs, fails with the name that is missing."""
    with pytest.raises(ImportError, match=rf"This FastAPI lacks [\w, ]*\b{name}\b"):
        runpy.run_path(str(inside.__file__))


# Older versions of FastAPI copy the routes of an included router, and lack these names.
OF_ROUTERS = ("iter_route_contexts", "_get_scope_effective_route_context")
KEEPS_ROUTERS = hasattr(fastapi.routing, OF_ROUTERS[0])
FUNCTIONS = (
    "fastapi.dependencies.utils.request_params_to_args",
    *(f"fastapi.routing.{name}" for name in OF_ROUTERS if KEEPS_ROUTERS),
)


@pytest.mark.parametrize("path", FUNCTIONS)
def test_a_fastapi_without_a_function_that_templates_need_is_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(path)
    assert_is_refused(path.rpartition(".")[2])


OF_DEPENDANTS = ("call", "dependencies", "path_params", "query_params")


@pytest.mark.parametrize("name", ["dependant", *OF_DEPENDANTS])
def test_a_fastapi_whose_routes_lack_an_attribute_that_templates_need_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = APIRoute.__init__

    def make_without(route: Any, *args: Any, **kwargs: Any) -> None:
        make(route, *args, **kwargs)
        if name == "dependant":
            del route.dependant
        else:
            route.dependant = SimpleNamespace(**{each: () for each in OF_DEPENDANTS if each != name})

    monkeypatch.setattr(APIRoute, "__init__", make_without)
    assert_is_refused(name)


def test_a_fastapi_that_keeps_no_exit_stack_for_endpoints_is_refused() -> None:
    with pytest.raises(RuntimeError, match="This FastAPI lacks fastapi_function_astack"):
        inside.stack_of(HTTPConnection({"type": "http"}))


@pytest.mark.skipif(not KEEPS_ROUTERS, reason="this FastAPI copies the routes of routers")
@pytest.mark.parametrize("name", ["original_route", "dependant"])
def test_a_fastapi_whose_included_routes_lack_an_attribute_that_templates_need_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = SimpleNamespace(**dict.fromkeys({"original_route", "dependant"} - {name}))
    monkeypatch.setattr(fastapi.routing, "iter_route_contexts", lambda routes: iter([lacking]))
    assert_is_refused(name)


def test_the_client_of_a_test_does_not_fit_the_loop_of_a_test_client_and_the_error_says_so(server: Server) -> None:
    app = FastAPI()
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks

    @app.get("/")
    async def endpoint(locks: Locks) -> None:
        await locks.lock("order").try_lock()

    async def use() -> None:
        async with locks:
            await asyncio.to_thread(ask)

    def ask() -> None:
        with TestClient(app) as client, pytest.raises(ClientClosedError, match="that of a TestClient"):
            client.get("/")

    locks = LockClient.from_url(server.url)
    asyncio.run(use())
