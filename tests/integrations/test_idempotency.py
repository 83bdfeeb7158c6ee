"""`idempotent` in FastAPI and aiohttp: a request with an `Idempotency-Key` is carried out once, and answered again."""

import asyncio
import io
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Annotated, Any

import httpx
import pytest
from aiohttp import web
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Header, HTTPException, Request
from fastapi.routing import APIRoute
from redis.asyncio import Redis
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

import aiolock.aiohttp
import aiolock.fastapi
from aiolock import LockClient
from aiolock._scripts import ONCE, RELEASE_LATER
from aiolock._web.idempotency import BadRequestError, fingerprint, key_of, name_of
from aiolock.fastapi import IdempotentRoute
from aiolock.testing import failing_commands
from tests.support.asgi import http_client, served
from tests.support.holding import client_behind
from tests.support.inside import redis_of, session_of
from tests.support.observe import answered
from tests.support.proxy import Proxy, Rule, drop_reply, script
from tests.support.serving import application, serving

KEY = {"Idempotency-Key": '"8e03978e-40d5-43dd-bc93-6894a57f9324"'}
OTHER_KEY = {"Idempotency-Key": '"7"'}

# The work of an endpoint: it makes a status, headers and a body of the number and the body of the request.
Work = Callable[[int, bytes], Awaitable[tuple[int, dict[str, str], bytes]]]


class Kind(ABC):
    """A framework: it serves an endpoint ``POST /orders/{number}``, which does some work."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    @abstractmethod
    def serve(self, locks: LockClient, work: Work, **how: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
        """
        The service; *how* has the arguments of `idempotent`, where the caller is the name of a header.

        *under* in *how* is the name of a lock, which is taken first.
        """

    @abstractmethod
    def answer(self, status: int) -> Exception:
        """The framework's own exception for the *status* 303 or 404."""


class OfFastAPI(Kind):
    @asynccontextmanager
    async def serve(self, locks: LockClient, work: Work, **how: Any) -> AsyncIterator[httpx.AsyncClient]:
        app, router = FastAPI(), APIRouter(route_class=IdempotentRoute, prefix="/orders")

        async def caller(request: Request) -> str:
            return request.headers["x-caller"]

        outer = [aiolock.fastapi.lock_for(how.pop("under"))] if "under" in how else []
        once = aiolock.fastapi.idempotent(caller if how.pop("by_caller", False) else None, **how)

        @router.post("/{number}", dependencies=[*outer, once])
        async def carry_out(number: int, request: Request) -> Response:
            status, headers, body = await work(number, await request.body())
            return Response(body, status, headers)

        app.include_router(router)
        aiolock.fastapi.add_exception_handlers(app)
        app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
        async with served(app) as client:
            yield client

    def answer(self, status: int) -> Exception:
        return HTTPException(status, headers={"Location": "/done"})


class OfAiohttp(Kind):
    @asynccontextmanager
    async def serve(self, locks: LockClient, work: Work, **how: Any) -> AsyncIterator[httpx.AsyncClient]:
        app = application(locks)

        async def caller(request: web.Request) -> str:
            return request.headers["x-caller"]

        outer = [aiolock.aiohttp.synchronized(how.pop("under"))] if "under" in how else []

        @aiolock.aiohttp.idempotent(caller if how.pop("by_caller", False) else None, **how)
        async def carry_out(request: web.Request) -> web.Response:
            status, headers, body = await work(int(request.match_info["number"]), await request.read())
            return web.Response(body=body, status=status, headers=headers)

        for under in outer:
            carry_out = under(carry_out)
        app.router.add_post("/orders/{number}", carry_out)
        async with serving(app) as session, http_client(str(session._base_url)) as client:
            yield client

    def answer(self, status: int) -> Exception:
        return web.HTTPSeeOther("/done") if status == 303 else web.HTTPNotFound()


KINDS = (OfFastAPI("fastapi"), OfAiohttp("aiohttp"))
each_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)


class Orders:
    """The work of the endpoint; it counts its runs, and a test decides on the response."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.fails: Exception | None = None
        self.status = 201
        self.headers = {"Content-Type": "application/json", "Location": "/orders/1", "Set-Cookie": "session=secret"}
        self.body = b'{"paid": true}'

    async def __call__(self, number: int, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.runs += 1
        self.begun.set()
        await self.may_end.wait()
        if self.fails is not None:
            raise self.fails
        return self.status, self.headers, self.body


@pytest.fixture
def orders() -> Orders:
    return Orders()


def is_problem(response: httpx.Response, status: int, *, retry: bool = False) -> bool:
    assert response.headers["content-type"].startswith("application/problem+json")
    assert ("retry-after" in response.headers) == retry
    return (response.status_code, response.json()["status"]) == (status, status)


@each_kind
async def test_a_request_is_carried_out_once_and_answered_again(kind: Kind, locks: LockClient, orders: Orders) -> None:
    async with kind.serve(locks, orders) as client:
        first = await client.post("/orders/7", json={"amount": 1}, headers=KEY)
        again = [await client.post("/orders/7", json={"amount": 1}, headers=KEY) for _ in range(2)]
    assert (orders.runs, first.status_code, first.content) == (1, 201, orders.body)
    assert "idempotent-replayed" not in first.headers
    assert first.headers["set-cookie"] == "session=secret"
    for each in again:
        assert (each.status_code, each.content) == (201, orders.body)
        assert each.headers["idempotent-replayed"] == "true"
        assert "set-cookie" not in each.headers
        for name in ("content-type", "location", "content-length"):
            assert each.headers[name] == first.headers[name]
    assert locks.statistics().held == 0


@each_kind
async def test_another_request_with_the_key_is_refused(kind: Kind, locks: LockClient, orders: Orders) -> None:
    async with kind.serve(locks, orders) as client:
        await client.post("/orders/7", content=b"a", headers=KEY)
        for path, body in (("/orders/7", b"b"), ("/orders/8", b"a"), ("/orders/7?fast=1", b"a"), ("/orders/7", b"")):
            refused = await client.post(path, content=body, headers=KEY)
            assert is_problem(refused, 422)
            assert refused.json()["title"] == "Idempotency-Key is already used"
        assert (await client.post("/orders/7", content=b"b", headers=OTHER_KEY)).status_code == 201
    assert orders.runs == 2


@each_kind
async def test_a_request_is_refused_while_the_first_one_runs(kind: Kind, locks: LockClient, orders: Orders) -> None:
    orders.may_end.clear()
    async with kind.serve(locks, orders) as client:
        first = asyncio.create_task(client.post("/orders/7", headers=KEY))
        await orders.begun.wait()
        assert is_problem(await client.post("/orders/7", headers=KEY), 409, retry=True)
        orders.may_end.set()
        assert (await first).status_code == 201
        assert (await client.post("/orders/7", headers=KEY)).status_code == 201
    assert orders.runs == 1


@each_kind
async def test_many_requests_at_once_are_carried_out_once(kind: Kind, locks: LockClient, orders: Orders) -> None:
    async with kind.serve(locks, orders) as client:
        answers = await asyncio.gather(*(client.post("/orders/7", headers=KEY) for _ in range(20)))
    assert orders.runs == 1
    assert {each.status_code for each in answers} <= {201, 409}
    assert 201 in {each.status_code for each in answers}


@each_kind
@pytest.mark.parametrize("required", [True, False])
async def test_a_route_may_require_a_key(kind: Kind, required: bool, locks: LockClient, orders: Orders) -> None:
    async with kind.serve(locks, orders, required=required) as client:
        answers = [await client.post("/orders/7") for _ in range(2)]
        if required:
            assert all(is_problem(each, 400) for each in answers)
            assert answers[0].json()["title"] == "Idempotency-Key is missing"
        else:
            assert [each.status_code for each in answers] == [201, 201]
        assert is_problem(await client.post("/orders/7", headers={"Idempotency-Key": '"'}), 400)
        twice = httpx.Headers([("Idempotency-Key", "a"), ("Idempotency-Key", "a")])
        assert is_problem(await client.post("/orders/7", headers=twice), 400)
    assert orders.runs == (0 if required else 2)


@each_kind
async def test_callers_do_not_share_keys(kind: Kind, locks: LockClient, orders: Orders) -> None:
    async with kind.serve(locks, orders, by_caller=True) as client:
        for caller in ("a", "b", "a"):
            await client.post("/orders/7", headers=KEY | {"x-caller": caller})
    assert orders.runs == 2


@each_kind
@pytest.mark.parametrize("how", ["error", "refusal", "status"])
async def test_a_failure_is_not_kept(kind: Kind, how: str, locks: LockClient, orders: Orders) -> None:
    orders.fails = {"error": ZeroDivisionError(), "refusal": kind.answer(404), "status": None}[how]
    orders.status = 500 if how == "status" else 201
    async with kind.serve(locks, orders) as client:
        failed = await client.post("/orders/7", headers=KEY)
        assert failed.status_code == {"error": 500, "refusal": 404, "status": 500}[how]
        orders.fails, orders.status = None, 201
        assert (await client.post("/orders/7", headers=KEY)).status_code == 201
        assert (await client.post("/orders/7", headers=KEY)).headers["idempotent-replayed"] == "true"
    assert orders.runs == 2


@each_kind
async def test_a_refusal_that_is_returned_is_kept(kind: Kind, locks: LockClient, orders: Orders) -> None:
    orders.status = 402
    async with kind.serve(locks, orders) as client:
        assert [(await client.post("/orders/7", headers=KEY)).status_code for _ in range(2)] == [402, 402]
    assert orders.runs == 1


@each_kind
async def test_a_response_that_is_too_large_is_sent_once(
    kind: Kind, locks: LockClient, orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    orders.body = b"x" * 65_536
    async with kind.serve(locks, orders) as client:
        first = await client.post("/orders/7", headers=KEY)
        assert (first.status_code, len(first.content)) == (201, 65_536)
        assert is_problem(await client.post("/orders/7", headers=KEY), 409)
    assert orders.runs == 1
    assert "a response of 65536 bytes is too large to be kept" in caplog.text


@each_kind
async def test_redis_that_fails_carries_out_nothing(kind: Kind, locks: LockClient, orders: Orders) -> None:
    async with kind.serve(locks, orders) as client:
        with failing_commands(locks):
            assert is_problem(await client.post("/orders/7", headers=KEY), 503, retry=True)
        assert orders.runs == 0


@each_kind
async def test_a_request_may_be_carried_out_without_redis_and_is_not_kept(
    kind: Kind, locks: LockClient, orders: Orders
) -> None:
    async with kind.serve(locks, orders, on_unavailable="run") as client:
        with failing_commands(locks, None):
            assert (await client.post("/orders/7", headers=KEY)).status_code == 201
            orders.fails = kind.answer(404)
            assert (await client.post("/orders/7", headers=KEY)).status_code == 404
        orders.fails = None
        assert (await client.post("/orders/7", headers=KEY)).status_code == 201
        assert (await client.post("/orders/7", headers=KEY)).headers["idempotent-replayed"] == "true"
    assert orders.runs == 3


@each_kind
async def test_a_response_goes_out_though_redis_fails_at_its_end(
    kind: Kind, locks: LockClient, orders: Orders, caplog: pytest.LogCaptureFixture
) -> None:
    orders.may_end.clear()
    async with kind.serve(locks, orders) as client:
        first = asyncio.create_task(client.post("/orders/7", headers=KEY))
        await orders.begun.wait()
        with failing_commands(locks):
            orders.may_end.set()
            assert (await first).status_code == 201
    assert "may not be kept for its Idempotency-Key" in caplog.text


@each_kind
async def test_lost_replies_change_nothing(kind: Kind, proxy: Proxy, orders: Orders) -> None:
    async with client_behind(proxy) as locks, kind.serve(locks, orders) as client:
        for each in (ONCE.acquire, RELEASE_LATER):
            proxy.install(Rule(script(each), drop_reply()))
        assert (await client.post("/orders/7", headers=KEY)).status_code == 201
        proxy.install(Rule(script(ONCE.acquire), drop_reply()))
        assert (await client.post("/orders/7", headers=KEY)).headers["idempotent-replayed"] == "true"
        await answered(locks)
    assert orders.runs == 1


@each_kind
async def test_a_request_that_lost_its_lock_is_broken_off_and_not_kept(
    kind: Kind, locks: LockClient, redis: Redis, orders: Orders
) -> None:
    orders.may_end.clear()
    async with kind.serve(locks, orders) as client:
        first = asyncio.create_task(client.post("/orders/7", headers=KEY))
        await orders.begun.wait()
        [hold] = session_of(locks).entries.holds()
        await redis.delete(hold.keys.lock)
        hold.lose("expired", gone=True)
        assert is_problem(await first, 503, retry=True)
        orders.may_end.set()
        assert (await client.post("/orders/7", headers=KEY)).status_code == 201
    assert orders.runs == 2


@each_kind
@pytest.mark.parametrize("told", [True, False], ids=["told in mid-work", "found lost at the release"])
@pytest.mark.parametrize("status", [303, 404, None])
async def test_a_request_that_lost_its_lock_has_no_other_answer_that_it_could_raise(
    kind: Kind, status: int | None, told: bool, locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    error = ZeroDivisionError() if status is None else kind.answer(status)

    async def pay(number: int, body: bytes) -> tuple[int, dict[str, str], bytes]:
        [hold] = session_of(locks).entries.holds()
        await redis_of(locks).delete(hold.keys.lock)
        if told:
            hold.lose("expired", gone=True)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        raise error

    async with kind.serve(locks, pay) as client:
        assert is_problem(await client.post("/orders/7", headers=KEY), 503, retry=True)
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]


@each_kind
async def test_work_that_has_ended_is_not_done_again_though_the_lock_around_it_was_lost(
    kind: Kind, locks: LockClient, orders: Orders
) -> None:
    """Only the release of that lock tells the loss: the response is kept by then, and answers the next request."""

    async def pay(number: int, body: bytes) -> tuple[int, dict[str, str], bytes]:
        await redis_of(locks).delete("stock")
        return await orders(number, body)

    async with kind.serve(locks, pay, under="stock") as client:
        assert is_problem(await client.post("/orders/7", headers=KEY), 503, retry=True)
        again = await client.post("/orders/7", headers=KEY)
    assert (again.status_code, again.content) == (201, orders.body)
    assert again.headers["idempotent-replayed"] == "true"
    assert orders.runs == 1


# Keys.


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        (['"abc"'], "abc"),
        (["abc"], "abc"),
        ([' "a b" '], "a b"),
        ([r'"a\"b\\"'], r'a"b\ '.strip()),
        (["8e03978e-40d5-43dd-bc93-6894a57f9324"], "8e03978e-40d5-43dd-bc93-6894a57f9324"),
    ],
)
def test_a_key_is_a_string_with_or_without_quotation_marks(sent: list[str], key: str) -> None:
    assert key_of(sent, required=True) == key


@pytest.mark.parametrize(
    "sent", [[""], ['""'], ['"a'], ['a"'], ["a b"], ["a,b"], ["a;b"], ["a" * 256], ["\xe4"], ['"\x7f"'], ["a", "b"]]
)
def test_any_other_header_is_refused(sent: list[str]) -> None:
    with pytest.raises(BadRequestError):
        key_of(sent, required=False)


def test_no_two_keys_share_a_name_and_no_two_requests_a_fingerprint() -> None:
    names = [
        name_of(*each)
        for each in (
            ("a", "b", "c"),
            ("ab", "", "c"),
            ("a", None, "c"),
            ("a", "bc", ""),
            ("a", 7, "c"),
            ("a", "7", "c"),
        )
    ]
    assert len(set(names)) == len(names)
    prints = [
        fingerprint(*each)
        for each in (("POST", "/a", b"b"), ("POST", "/ab", b""), ("PUT", "/a", b"b"), ("POST", "/a", b""))
    ]
    assert len(set(prints)) == len(prints)


# FastAPI.


@asynccontextmanager
async def requests(app: FastAPI, locks: LockClient) -> AsyncIterator[httpx.AsyncClient]:
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with served(app) as client:
        yield client


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    app.router.route_class = IdempotentRoute
    return app


once = aiolock.fastapi.idempotent(None)


async def test_routes_with_models_raw_bodies_and_background_tasks_answer_again(app: FastAPI, locks: LockClient) -> None:
    done: list[str] = []

    @app.post("/model", dependencies=[once], status_code=202)
    async def model(order: dict[str, int], tasks: BackgroundTasks, response: Response) -> dict[str, int]:
        tasks.add_task(done.append, "task")
        response.headers["x-number"] = "1"
        return order

    @app.post("/raw", dependencies=[once])
    async def raw(request: Request) -> str:
        done.append("".join([part.decode() async for part in request.stream()]))
        return done[-1]

    @app.post("/plain")
    async def plain() -> str:
        return "plain"

    async with requests(app, locks) as client:
        for _ in range(2):
            found = await client.post("/model", json={"a": 1}, headers=KEY)
            assert (found.status_code, found.json(), found.headers["x-number"]) == (202, {"a": 1}, "1")
            assert (await client.post("/raw", content=b"a", headers=KEY)).json() == "a"
        assert (await client.post("/plain", headers=KEY)).json() == "plain"
        invalid = await client.post("/model", json=7, headers={"Idempotency-Key": "another"})
        assert invalid.status_code == 422
        assert (await client.post("/model", json={}, headers={"Idempotency-Key": "another"})).status_code == 202
    assert sorted(done) == ["a", "task", "task"]


async def test_dependencies_that_check_the_caller_come_first(app: FastAPI, locks: LockClient) -> None:
    async def user(authorization: Annotated[str, Header()]) -> str:
        if authorization != "secret":
            raise HTTPException(401)
        return authorization

    @app.post("/", dependencies=[aiolock.fastapi.idempotent(user)])
    async def pay(user: Annotated[str, Depends(user)]) -> str:
        return user

    async with requests(app, locks) as client:
        assert (await client.post("/", headers=KEY | {"authorization": "secret"})).json() == "secret"
        assert (await client.post("/", headers=KEY | {"authorization": "guess"})).status_code == 401


async def test_a_commit_that_fails_is_a_failure_if_it_comes_before_the_end_of_the_endpoint(
    app: FastAPI, locks: LockClient
) -> None:
    commits: list[Exception | None] = [ConnectionError(), None]

    async def session() -> AsyncIterator[None]:
        yield
        if (failure := commits.pop(0)) is not None:
            raise failure

    @app.post("/pay", status_code=201, dependencies=[aiolock.fastapi.idempotent(None)])
    async def pay(transaction: Annotated[None, Depends(session, scope="function")]) -> None: ...

    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    async with served(app) as client:
        assert [(await client.post("/pay", headers=KEY)).status_code for _ in range(3)] == [500, 201, 201]
    assert not commits


async def test_streams_are_refused_and_nothing_is_kept(app: FastAPI, locks: LockClient) -> None:
    @app.post("/stream", dependencies=[once])
    async def stream() -> StreamingResponse:
        return StreamingResponse(iter(["a"]))

    async with requests(app, locks) as client:
        for _ in range(2):
            assert (await client.post("/stream", headers=KEY)).status_code == 500
    assert locks.statistics().held == 0


async def test_a_service_without_exception_handlers_has_the_right_status(app: FastAPI, locks: LockClient) -> None:
    @app.post("/orders", dependencies=[once])
    async def orders() -> None:
        [hold] = session_of(locks).entries.holds()
        hold.lose("expired", gone=True)
        await asyncio.Event().wait()

    async with requests(app, locks) as client:
        assert (await client.post("/orders")).status_code == 400
        assert (await client.post("/orders", headers=KEY)).status_code == 503


async def test_a_route_that_keeps_no_responses_is_refused(locks: LockClient) -> None:
    app, errors = FastAPI(), []

    @app.post("/orders", dependencies=[once])
    async def orders() -> str:
        raise AssertionError("must not run")

    @app.exception_handler(RuntimeError)
    async def note(request: Request, error: RuntimeError) -> Response:
        errors.append(str(error))
        return PlainTextResponse("", 500)

    async with requests(app, locks) as client:
        assert (await client.post("/orders", headers=KEY)).status_code == 500
    assert errors == [
        "POST /orders: `idempotent` needs a route that keeps responses. Before the endpoint, write "
        "app.router.route_class = IdempotentRoute, or APIRouter(route_class=IdempotentRoute)"
    ]


def of_a_route(app: FastAPI) -> None:
    app.router.route_class = APIRoute
    app.post("/pay", dependencies=[once])(pay)


def of_an_endpoint_before_the_class(app: FastAPI) -> None:
    router = APIRouter()
    router.post("/pay", dependencies=[once])(pay)
    router.route_class = IdempotentRoute
    app.include_router(router)


def of_a_plain_router_in_others(app: FastAPI) -> None:
    outer, inner = APIRouter(route_class=IdempotentRoute, dependencies=[once]), APIRouter()
    inner.post("")(pay)
    outer.include_router(inner, prefix="/pay")
    app.include_router(outer)


def of_an_inner_dependency(app: FastAPI) -> None:
    async def inner(done: Annotated[None, once]) -> None: ...

    app.router.route_class = APIRoute
    app.post("/pay", dependencies=[Depends(inner)])(pay)


async def pay() -> None: ...


@pytest.mark.parametrize(
    "add", [of_a_route, of_an_endpoint_before_the_class, of_a_plain_router_in_others, of_an_inner_dependency]
)
async def test_an_application_whose_route_keeps_no_responses_does_not_start(
    app: FastAPI, add: Callable[[FastAPI], None]
) -> None:
    router = APIRouter(route_class=IdempotentRoute)
    router.post("/kept", dependencies=[once])(pay)
    outer = APIRouter()
    outer.include_router(router, prefix="/inner")
    app.include_router(outer, prefix="/outer", dependencies=[once])
    start = aiolock.fastapi.lifespan("redis://127.0.0.1:1")
    async with start(app):
        pass
    add(app)
    words = r"^/pay: `idempotent` needs a route that keeps .*Before .*APIRouter\(route_class=IdempotentRoute\)"
    with pytest.raises(RuntimeError, match=words):
        async with start(app):
            pass


@pytest.mark.parametrize("required", [True, False])
def test_the_schema_has_the_header_and_the_answers(app: FastAPI, required: bool) -> None:
    once = aiolock.fastapi.idempotent(None, required=required)

    @app.post("/orders", dependencies=[once, aiolock.fastapi.lock_for("orders")])
    async def orders() -> None: ...

    aiolock.fastapi.add_exception_handlers(app)
    operation = app.openapi()["paths"]["/orders"]["post"]
    assert [each["name"] for each in operation["parameters"]] == ["Idempotency-Key"]
    answers = operation["responses"]
    assert answers.keys() == {"200", "400", "409", "422", "503"}
    assert {status for status, each in answers.items() if "headers" in each} == {"409", "503"}
    assert ("This operation needs the header" in answers["400"]["description"]) == required
    assert answers["409"]["description"].split("\n\n") == [
        "The first request with this key is not done yet.",
        "The first request with this key was carried out, and its response was too large to be kept.",
        "Somebody else is working on this.",
    ]
    assert answers["422"]["description"].startswith("Validation Error\n\nAnother request had the same key")
    assert answers["422"]["content"].keys() == {"application/json", "application/problem+json"}


@pytest.mark.parametrize("caller", [lambda: None, lambda: True, lambda: 1.5])
async def test_a_caller_must_be_a_name_or_a_number(app: FastAPI, locks: LockClient, caller: Any) -> None:
    @app.post("/", dependencies=[aiolock.fastapi.idempotent(caller)])
    async def pay() -> JSONResponse:
        raise AssertionError("must not run")

    async with requests(app, locks) as client:
        assert (await client.post("/", headers=KEY)).status_code == 500


def test_impossible_settings_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="keep"):
        aiolock.fastapi.idempotent(None, keep=0)
    with pytest.raises(ValueError, match="keep"):
        aiolock.aiohttp.idempotent(None, keep=0)
    for idempotent in (aiolock.fastapi.idempotent, aiolock.aiohttp.idempotent):
        with pytest.raises(ValueError, match='on_unavailable must be "run" or "refuse"'):
            idempotent(None, on_unavailable="skip")  # type: ignore[arg-type]

    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    with pytest.raises(TypeError, match=r"write @idempotent\(caller\)"):
        aiolock.aiohttp.idempotent(handler)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="for coroutine functions"):
        aiolock.aiohttp.idempotent(None)(lambda request: None)  # type: ignore[type-var]


# aiohttp.


async def test_handlers_of_aiohttp_that_send_by_themselves_are_refused(locks: LockClient) -> None:
    @aiolock.aiohttp.idempotent(None)
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write_eof()
        return response

    @aiolock.aiohttp.idempotent(None)
    async def parts(request: web.Request) -> web.Response:
        return web.Response(body=io.BytesIO(b"a"))

    app = application(locks)
    app.router.add_post("/stream", stream)
    app.router.add_post("/parts", parts)
    async with serving(app) as session:
        async with session.post("/parts", headers=KEY) as response:
            assert response.status == 500
        form = aiohttp_form()
        async with session.post("/parts", headers=KEY, data=form) as response:
            assert response.status == 415
    assert locks.statistics().held == 0


def aiohttp_form() -> Any:
    from aiohttp import FormData

    form = FormData()
    form.add_field("a", b"b", filename="a")
    return form


async def test_a_view_of_aiohttp_answers_again(locks: LockClient) -> None:
    runs: list[int] = []

    class Orders(web.View):
        @aiolock.aiohttp.idempotent(lambda request: 7)
        async def post(self) -> web.Response:
            runs.append(1)
            return web.json_response({"paid": True})

    app = application(locks)
    app.router.add_view("/orders", Orders)
    async with serving(app) as session:
        for _ in range(2):
            async with session.post("/orders", headers=KEY) as response:
                assert await response.json() == {"paid": True}
    assert runs == [1]
