"""`idempotent`: whose keys they are, work in threads, and responses that cannot be kept."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import fastapi
import httpx
import pytest
from aiohttp import BytesPayload, JsonPayload, ServerDisconnectedError, StringPayload, web
from fastapi import APIRouter, FastAPI, Request, WebSocket
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.asyncio import Redis

import aiolock.aiohttp
import aiolock.fastapi
from aiolock import LockClient, LockConfig
from aiolock.fastapi import IdempotentRoute
from tests.support.asgi import http_client, served
from tests.support.inside import session_of
from tests.support.serving import application, serving

KEY = {"Idempotency-Key": "7"}
ELSEWHERE = "another.test"

# Serves ``POST /w`` for each of some patterns of hosts (without one for all hosts), and answers with the pattern.
Serve = Callable[[LockClient, "list[str]"], AbstractAsyncContextManager[httpx.AsyncClient]]


def part_of_fastapi(locks: LockClient, answer: str) -> FastAPI:
    part, router = FastAPI(), APIRouter(route_class=IdempotentRoute)

    @router.post("/w", dependencies=[aiolock.fastapi.idempotent(None)])
    async def work() -> str:
        return answer

    part.include_router(router)
    part.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    return part


@asynccontextmanager
async def fastapi_hosts(locks: LockClient, hosts: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    root = FastAPI()
    for host in hosts:
        root.host(host.replace("*", "{any}"), part_of_fastapi(locks, host))
    root.mount("", part_of_fastapi(locks, ""))
    async with served(root) as client:
        yield client


@asynccontextmanager
async def fastapi_mounted_hosts(locks: LockClient, hosts: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    root, mounted = FastAPI(), FastAPI()
    for host in hosts:
        mounted.host(host.replace("*", "{any}"), part_of_fastapi(locks, host))
    mounted.mount("", part_of_fastapi(locks, ""))
    root.mount("", mounted)
    async with served(root) as client:
        yield client


@asynccontextmanager
async def aiohttp_hosts(locks: LockClient, hosts: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    root = web.Application()
    aiolock.aiohttp.setup(root, "redis://127.0.0.1:1")
    root[aiolock.aiohttp.LOCKS] = locks
    for host in hosts:
        root.add_domain(host, part_of_aiohttp(host))
    # In older versions of aiohttp a route of the root would come before domains.
    if hosts:
        root.add_domain("*.test", part_of_aiohttp(""))
    else:
        root.router.add_post("/w", handler_of(""))
    async with serving(root) as session, http_client(str(session._base_url)) as client:
        yield client


def handler_of(answer: str) -> Any:
    @aiolock.aiohttp.idempotent(None)
    async def work(request: web.Request) -> web.Response:
        return web.json_response(answer)

    return work


def part_of_aiohttp(answer: str) -> web.Application:
    part = web.Application()
    part.router.add_post("/w", handler_of(answer))
    return part


each_way = pytest.mark.parametrize("serve", [fastapi_hosts, fastapi_mounted_hosts, aiohttp_hosts])


async def asked(client: httpx.AsyncClient, host: str) -> tuple[Any, bool]:
    """What *host* answers, and whether that is a replay."""
    response = await client.post("/w", headers=KEY | {"Host": host})
    assert response.status_code == 200, response.text
    return response.json(), "idempotent-replayed" in response.headers


@each_way
async def test_each_host_has_keys_of_its_own_where_hosts_are_routed(serve: Serve, locks: LockClient) -> None:
    async with serve(locks, ["a.example", "b.example"]) as client:
        for replayed in (False, True):
            assert await asked(client, "a.example") == ("a.example", replayed)
            assert await asked(client, "b.example") == ("b.example", replayed)
            assert await asked(client, ELSEWHERE) == ("", replayed)
        # Older versions of Starlette do not route it as a.example.
        assert await asked(client, "A.Example") in {("a.example", True), ("", True)}


@each_way
async def test_hosts_of_one_pattern_do_not_share_keys(serve: Serve, locks: LockClient) -> None:
    async with serve(locks, ["*.example"]) as client:
        for replayed in (False, True):
            for tenant in ("a.example", "b.example"):
                assert await asked(client, tenant) == ("*.example", replayed)


@each_way
async def test_a_service_that_does_not_route_hosts_has_the_same_keys_under_all_names(
    serve: Serve, locks: LockClient
) -> None:
    async with serve(locks, []) as client:
        assert await asked(client, "a.example") == ("", False)
        assert await asked(client, "b.example") == ("", True)


async def test_services_with_prefixes_do_not_share_keys(redis: Redis) -> None:
    """The front service passes the key on to the same path of the bank, as the page advises."""
    async with (
        LockClient(redis, config=LockConfig(prefix="bank:")) as of_bank,
        LockClient(redis, config=LockConfig(prefix="front:")) as of_front,
        served(part_of_fastapi(of_bank, "paid")) as bank,
    ):
        front = FastAPI()
        front.router.route_class = IdempotentRoute
        front.dependency_overrides[aiolock.fastapi.get_locks] = lambda: of_front

        @front.post("/w", dependencies=[aiolock.fastapi.idempotent(None)])
        async def work() -> list[object]:
            return [*await asked(bank, ELSEWHERE)]

        async with served(front) as client:
            assert await asked(client, ELSEWHERE) == (["paid", False], False)
            assert await asked(client, ELSEWHERE) == (["paid", False], True)


@pytest.mark.parametrize(
    ("path", "host"),
    [("/b", "test"), ("/a%23", "test"), ("/a%3Fc=1", "test"), ("/b", "test/a?c=1#"), ("/b", "["), ("/a", "test?c=1#")],
)
async def test_another_path_or_query_is_another_request_for_any_host_header(
    path: str, host: str, locks: LockClient
) -> None:
    app = FastAPI()
    app.router.route_class = IdempotentRoute
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks

    @app.post("/{name}", dependencies=[aiolock.fastapi.idempotent(None)])
    async def work(name: str) -> str:
        return name

    async with served(app) as client:
        assert (await client.post("/a?c=1", headers=KEY)).json() == "a"
        assert (await client.post(path, headers=KEY | {"Host": host})).status_code == 422


@pytest.mark.skipif(not hasattr(fastapi, "telemetry"), reason="this FastAPI makes no spans")
async def test_a_response_that_is_repeated_is_no_failure_in_the_traces_of_fastapi(locks: LockClient) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = FastAPI(telemetry={"tracer_provider": provider})
    app.router.route_class = IdempotentRoute
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks

    @app.post("/", status_code=201, dependencies=[aiolock.fastapi.idempotent(None)])
    async def work() -> None: ...

    async with served(app) as client:
        for replayed in (None, "true"):
            answer = await client.post("/", headers={"Idempotency-Key": "a"})
            assert (answer.status_code, answer.headers.get("Idempotent-Replayed")) == (201, replayed)
    spans = exporter.get_finished_spans()
    assert {each.name for each in spans} >= {"fastapi.dependencies"}
    assert all(each.status.is_unset for each in spans)


async def test_an_endpoint_that_is_not_idempotent_reads_its_body_piece_by_piece_despite_a_key(
    locks: LockClient,
) -> None:
    router = APIRouter(route_class=IdempotentRoute)
    begun = asyncio.Event()

    @router.post("/")
    async def work(request: Request) -> int:
        pieces = request.stream()
        first = await anext(pieces)
        begun.set()
        return len(first) + sum([len(piece) async for piece in pieces])

    async def body() -> AsyncIterator[bytes]:
        yield b"first"
        await begun.wait()
        yield b"last"

    app = FastAPI()
    app.include_router(router)
    async with served(app) as client:
        assert (await client.post("/", content=body(), headers=KEY)).json() == 9


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_failure_of_the_service(locks: LockClient) -> None:
    app = part_of_fastapi(locks, "")
    received = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(received)

    async def send(message: Any) -> None:
        sent.append(message)

    head = {
        "type": "http",
        "method": "POST",
        "path": "/w",
        "query_string": b"",
        "headers": [(b"idempotency-key", b"7")],
    }
    await app(head, receive, send)
    assert sent[0]["status"] == 400


@pytest.mark.parametrize("where", ["lifespan", "mounted"])
def test_a_websocket_is_refused_before_its_endpoint_runs(where: str) -> None:
    root, part = FastAPI(lifespan=aiolock.fastapi.lifespan("redis://127.0.0.1:1")), FastAPI()
    root.mount("", part)

    @(part if where == "mounted" else root).websocket("/w", dependencies=[aiolock.fastapi.idempotent(None)])
    async def work(websocket: WebSocket) -> None:
        raise AssertionError("must not run")

    refused = pytest.raises(RuntimeError, match="/w: `idempotent` is for requests, and not for WebSockets")
    with refused, TestClient(root) as client, client.websocket_connect("/w", headers=KEY):
        pass


async def test_a_form_that_is_encoded_again_is_another_request(locks: LockClient) -> None:
    async with served(part_of_fastapi(locks, "")) as client:
        for status in (200, 422):
            assert (await client.post("/w", files={"a": b"b"}, headers=KEY)).status_code == status


# Threads.


@pytest.mark.parametrize(
    "under", [aiolock.fastapi.idempotent(None), aiolock.fastapi.lock_for("a")], ids=["idempotent", "lock_for"]
)
async def test_a_client_learns_that_a_thread_may_go_on_without_its_lock(under: Any, locks: LockClient) -> None:
    app = FastAPI()
    app.router.route_class = IdempotentRoute
    aiolock.fastapi.add_exception_handlers(app)
    app.dependency_overrides[aiolock.fastapi.get_locks] = lambda: locks
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    @app.post("/", dependencies=[under])
    def work() -> None:
        begun.set()
        may_end.wait(30)
        ended.set()

    async with served(app) as client:
        first = asyncio.create_task(client.post("/", headers=KEY))
        assert await asyncio.to_thread(begun.wait, 30)
        [hold] = session_of(locks).entries.holds()
        hold.lose("expired", gone=True)
        refused = await first
        assert not ended.is_set()
        may_end.set()
    assert (refused.status_code, refused.json()["detail"]) == (
        503,
        "The service could not be sure to work alone any more. The work may be done, half done, or still going on.",
    )


# Responses of aiohttp.


IN_UTF_16 = StringPayload("Grüße, 世界", content_type="text/plain; charset=utf-16")
IN_UTF_8 = BytesPayload("Grüße, 世界".encode(), content_type="text/plain; charset=utf-8")
IN_JSON = JsonPayload("Grüße, 世界", dumps=str)


@pytest.mark.parametrize("body", ["Grüße, 世界", IN_UTF_16, IN_UTF_8, IN_JSON], ids=["str", "text", "bytes", "JSON"])
async def test_a_body_that_was_given_as_a_whole_is_kept(body: object, locks: LockClient) -> None:
    @aiolock.aiohttp.idempotent(None)
    async def greet(request: web.Request) -> web.Response:
        return web.Response(body=body)

    app = application(locks)
    app.router.add_post("/", greet)
    async with serving(app) as session:
        kinds = []
        for replayed in (False, True):
            async with session.post("/", headers=KEY) as response:
                assert await response.text() == "Grüße, 世界"
                assert ("Idempotent-Replayed" in response.headers) is replayed
                kinds.append(response.headers["Content-Type"])
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("make", [web.StreamResponse, web.Response, web.WebSocketResponse])
async def test_a_response_that_a_handler_sends_is_refused_before_it_begins(
    make: Callable[[], web.StreamResponse], locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    reached: list[str] = []

    @aiolock.aiohttp.idempotent(None, required=False)
    async def send(request: web.Request) -> web.StreamResponse:
        response = make()
        await response.prepare(request)
        reached.append("begun")
        await response.write_eof()
        return response

    app, part = application(locks), web.Application()
    part.router.add_get("/send", send)
    app.add_subapp("/part", part)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    more = upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} if make is web.WebSocketResponse else {}
    async with serving(app) as session:
        for _ in range(2):
            with pytest.raises(ServerDisconnectedError):
                await session.get("/part/send", headers=KEY | more)
        assert reached == []
        assert f"its response cannot be kept, because it is a {make.__name__}" in caplog.text
        if make is not web.WebSocketResponse:
            async with session.get("/part/send") as response:
                assert response.status == 200
    assert locks.statistics().held == 0


async def test_a_handler_does_not_take_a_body_that_was_read_for_an_empty_one(
    locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    @aiolock.aiohttp.idempotent(None, required=False)
    async def store(request: web.Request) -> web.Response:
        return web.json_response(len(await request.content.read()))

    @aiolock.aiohttp.idempotent(None)
    async def fill_in(request: web.Request) -> web.Response:
        body = [len(await request.read()), await request.text(), dict(await request.post())]
        return web.json_response([request.body_exists, request.can_read_body, *body])

    app = application(locks)
    app.router.add_post("/store", store)
    app.router.add_post("/fill-in", fill_in)
    async with serving(app) as session:
        async with session.post("/store", data=b"a=b", headers=KEY) as response:
            assert response.status == 500
        assert "`idempotent` has read the body" in caplog.text
        async with session.post("/store", data=b"a=b") as response:
            assert await response.json() == 3
        async with session.post("/store", headers=KEY) as response:
            assert await response.json() == 0
        async with session.post("/fill-in", data={"a": "b"}, headers=KEY) as response:
            assert await response.json() == [True, False, 3, "a=b", {"a": "b"}]


async def test_a_handler_that_returns_no_response_gets_the_error_of_aiohttp(
    locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    @aiolock.aiohttp.idempotent(None)
    async def forgets(request: web.Request) -> Any: ...

    app = application(locks)
    app.router.add_post("/", forgets)
    async with serving(app) as session:
        for _ in range(2):
            async with session.post("/", headers=KEY) as response:
                assert response.status == 500
    assert caplog.text.count("Missing return statement on request handler") == 2
