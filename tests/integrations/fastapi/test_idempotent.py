"""`idempotent` beside the other dependencies of a request: credentials, and sessions that commit."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Cookie, Depends, FastAPI, Header, HTTPException
from fastapi.testclient import TestClient
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import aiolock.fastapi
from aiolock import LockClient
from aiolock._embedded_server import Server
from aiolock.fastapi import IdempotentRoute, add_exception_handlers, idempotent, lifespan, lock_for
from tests.support.asgi import served

KEY = {"Idempotency-Key": "7"}


async def account(x_account: Annotated[str, Header()]) -> str:
    return x_account


async def by_header(authorization: Annotated[str, Header()]) -> None:
    if authorization != "secret":
        raise HTTPException(401)


async def by_cookie(session: Annotated[str, Cookie()]) -> None:
    if session != "secret":
        raise HTTPException(401)


def application(locks: LockClient, **settings: Any) -> FastAPI:
    app = FastAPI(**settings)
    app.router.route_class = IdempotentRoute
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    return app


@pytest.mark.parametrize("caller", [None, account])
@pytest.mark.parametrize(
    ("check", "credential"),
    [(by_header, {"Authorization": "secret"}), (by_cookie, {"Cookie": "session=secret"})],
    ids=["header", "cookie"],
)
async def test_a_request_without_the_credential_that_a_check_needs_gets_no_kept_response(
    check: Any, credential: dict[str, str], caller: Any, locks: LockClient
) -> None:
    app = application(locks)

    @app.post("/pay", dependencies=[Depends(check), idempotent(caller)])
    async def pay() -> str:
        return "paid"

    others = KEY | {"X-Account": "ada"}
    async with served(app) as client:
        assert (await client.post("/pay", headers=others)).status_code == 422
        for replayed in (False, True):
            response = await client.post("/pay", headers=others | credential)
            assert (response.text, "idempotent-replayed" in response.headers) == ('"paid"', replayed)
        refused = await client.post("/pay", headers=others)
        assert refused.status_code == 422
        assert refused.json()["detail"][0]["type"] == "missing"


async def test_a_request_without_the_credential_that_a_check_needs_waits_for_no_lock(locks: LockClient) -> None:
    app = application(locks)

    @app.post("/pay", dependencies=[Depends(by_header), lock_for("orders")])
    async def pay() -> str:
        return "paid"

    async with served(app) as client, locks.lock("orders", owner="another request"):
        assert (await client.post("/pay", headers={"Authorization": "secret"})).status_code == 409
        assert (await client.post("/pay")).status_code == 422


async def test_an_override_of_a_check_needs_no_credential(locks: LockClient) -> None:
    app = application(locks)
    app.dependency_overrides[by_header] = lambda: None

    @app.post("/pay", dependencies=[Depends(by_header), idempotent(None)])
    async def pay() -> str:
        return "paid"

    async with served(app) as client:
        assert (await client.post("/pay", headers=KEY)).status_code == 200


class Sessions:
    """Sessions whose first commit fails; *rows* were committed."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.fails = True

    async def session(self) -> AsyncIterator[list[str]]:
        added: list[str] = []
        yield added
        if self.fails:
            self.fails = False
            raise HTTPException(500, "the commit failed")
        self.rows += added


@pytest.mark.parametrize("taken_by", ["the endpoint", "the caller", "the application"])
async def test_a_response_is_kept_only_after_the_commit_of_a_session_of_the_function_scope(
    taken_by: str, locks: LockClient
) -> None:
    sessions = Sessions()
    session = Depends(sessions.session, scope="function")

    async def caller(session: Annotated[list[str], session]) -> str:
        return "ada"

    app = application(locks, dependencies=[session] if taken_by == "the application" else [])

    @app.post("/pay", dependencies=[idempotent(caller if taken_by == "the caller" else None)])
    async def pay(session: Annotated[list[str], session]) -> str:
        session.append("paid")
        return "paid"

    async with served(app) as client:
        assert (await client.post("/pay", headers=KEY)).status_code == 500
        for replayed in (False, True):
            response = await client.post("/pay", headers=KEY)
            assert (response.text, "idempotent-replayed" in response.headers) == ('"paid"', replayed)
            assert sessions.rows == ["paid"]


async def test_a_lock_of_a_route_that_keeps_responses_covers_the_commit_of_an_earlier_session(
    locks: LockClient,
) -> None:
    seen: list[bool] = []

    async def session() -> AsyncIterator[None]:
        yield
        seen.append(await locks.lock("orders").locked())

    app = application(locks)

    @app.post("/pay", dependencies=[Depends(session, scope="function"), lock_for("orders")])
    async def pay() -> str:
        return "paid"

    async with served(app) as client:
        assert (await client.post("/pay")).status_code == 200
    assert seen == [True]


@pytest.mark.parametrize("required", [True, False])
def test_the_schema_says_whether_the_key_is_required(required: bool) -> None:
    app = FastAPI()
    app.router.route_class = IdempotentRoute
    add_exception_handlers(app)

    @app.post("/pay", dependencies=[idempotent(None, required=required)])
    async def pay(x_trace: Annotated[str | None, Header()] = None) -> str:
        return "paid"

    parameters = app.openapi()["paths"]["/pay"]["post"]["parameters"]
    assert {each["name"]: each["required"] for each in parameters} == {"Idempotency-Key": required, "x-trace": False}


async def test_a_second_route_that_gets_the_scope_of_an_earlier_request_leaves_its_own_blocks(
    locks: LockClient,
) -> None:
    app, router = FastAPI(), APIRouter(route_class=IdempotentRoute)
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks

    @router.get("/new")
    async def new() -> Response:
        return Response(status_code=404)

    @app.get("/old", dependencies=[lock_for("orders")])
    async def old() -> str:
        return "old"

    app.include_router(router)

    class Fallback:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async def drop(message: Message) -> None:
                pass

            if scope["type"] == "http":
                await self.app(scope, receive, drop)
                scope = dict(scope, path="/old", raw_path=b"/old")
            await self.app(scope, receive, send)

    app.add_middleware(Fallback)
    async with served(app) as client:
        assert (await client.get("/new")).json() == "old"
    assert not await locks.lock("orders").locked()


def test_a_parameter_that_the_schema_only_refers_to_stays_as_it_is() -> None:
    app = FastAPI()
    app.router.route_class = IdempotentRoute
    add_exception_handlers(app)
    elsewhere = {"$ref": "#/components/parameters/Trace"}

    @app.post("/pay", dependencies=[idempotent(None)], openapi_extra={"parameters": [elsewhere]})
    async def pay() -> str:
        return "paid"

    assert elsewhere in app.openapi()["paths"]["/pay"]["post"]["parameters"]


def twice() -> FastAPI:
    app, router = FastAPI(), APIRouter(route_class=IdempotentRoute, dependencies=[idempotent(None)])

    @router.post("/pay", dependencies=[idempotent(account)])
    async def pay() -> str:
        return "paid"

    app.include_router(router)
    return app


def test_an_application_with_two_keys_for_one_endpoint_does_not_start(server: Server) -> None:
    app = twice()
    app.router.lifespan_context = lifespan(server.url)
    with pytest.raises(RuntimeError, match=r"^/pay: it has two dependencies of `idempotent`"), TestClient(app):
        pass


def test_a_mounted_application_with_two_keys_for_one_endpoint_says_so(server: Server) -> None:
    app = FastAPI(lifespan=lifespan(server.url))
    app.mount("/shop", twice())
    with (
        TestClient(app) as client,
        pytest.raises(RuntimeError, match=r"^POST /shop/pay: it has two dependencies"),
    ):
        client.post("/shop/pay", headers=KEY | {"X-Account": "ada"})
