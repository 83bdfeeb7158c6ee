"""Both services of docs/how-to/recipes/starlette-and-litestar.md, served by uvicorn, and what the page warns of."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar, get
from litestar.di import NamedDependency, Provide
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Mount, Route

from aiolock import Lease, LockClient
from aiolock._embedded_server import Server
from tests.integrations.recipes.recipe import recipe
from tests.integrations.recipes.service import SOON, serving, statuses
from tests.support.asgi import served
from tests.support.observe import connected, until, until_connected

PAGE = "recipes/starlette-and-litestar.md"

# The tests' additions: an endpoint that works until there is a file, one that reports that the service is ready.
STARLETTE = """

import asyncio, os
from pathlib import Path


async def hold(request):
    async with request.state.locks.lock("held").hold(wait=float(request.query_params.get("wait", 0))):
        while not Path(os.environ["UNTIL"]).exists():
            await asyncio.sleep(0.01)
        return Response()


async def ready(request):
    return Response()


app.router.routes += [Route("/hold", hold, methods=["POST"]), Route("/ready", ready)]
"""
LITESTAR = """

import asyncio, os
from pathlib import Path
from litestar import get
from litestar.params import FromQuery


@post("/hold", status_code=200)
async def hold(locks: NamedDependency[LockClient], wait: FromQuery[float] = 0) -> None:
    async with locks.lock("held").hold(wait=wait):
        while not Path(os.environ["UNTIL"]).exists():
            await asyncio.sleep(0.01)


@get("/ready")
async def ready() -> None: ...


app.register(hold)
app.register(ready)
"""


@pytest.fixture(params=["starlette", "litestar"])
def service_of(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The code of the service with a server of that URL."""
    containing, more = {"starlette": ("app = Starlette(", STARLETTE), "litestar": ("app = Litestar(", LITESTAR)}[
        request.param
    ]
    return lambda url: recipe(PAGE, containing, url) + more


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"UNTIL": str(tmp_path / "over")}


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_one_at_a_time_over_two_workers(
    service_of: Callable[[str], str],
    redis_server: Server,
    watcher: LockClient,
    tmp_path: Path,
    environment: dict[str, str],
) -> None:
    code = service_of(redis_server.url)
    with serving(tmp_path, code, "--workers", "2", ready="/ready", environment=environment) as service:
        async with service.client() as client:
            paid = Counter(await statuses(client, *(f"/orders/{number}/payment" for number in range(100))))
            assert paid == {201: 100}
            held = asyncio.create_task(client.post("/hold"))
            await until(watcher.lock("held").locked, within=SOON)
            assert Counter(await statuses(client, *["/hold"] * 50)) == {409: 50}
            waiting = asyncio.create_task(client.post("/hold", params={"wait": SOON}))
            Path(environment["UNTIL"]).touch()
            assert [(await request).status_code for request in (held, waiting)] == [200, 200]
        await asyncio.to_thread(service.stop)
        assert service.tracebacks() == []
    assert not await watcher.lock("held").locked()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_answers_to_clients(
    service_of: Callable[[str], str],
    redis_server: Server,
    watcher: LockClient,
    tmp_path: Path,
    environment: dict[str, str],
) -> None:
    with serving(tmp_path, service_of(redis_server.url), ready="/ready", environment=environment) as service:
        async with service.client() as client:
            async with watcher.lock("order:7"):
                busy = await client.post("/orders/07/payment")
            assert (busy.status_code, busy.json()["title"], busy.headers["retry-after"]) == (409, "Busy", "1")
            assert busy.headers["content-type"].startswith("application/problem+json")
            holding = asyncio.create_task(client.post("/hold"))
            await until(watcher.lock("held").locked, within=SOON)
            await watcher.lock("held").force_release()
            # Its next renewal finds out after ten seconds.
            lost = await holding
            assert (lost.status_code, lost.json()["title"]) == (503, "Temporarily out of service")
        assert service.tracebacks() == []


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_without_redis_the_service_starts_and_answers_503(
    service_of: Callable[[str], str], tmp_path: Path, environment: dict[str, str]
) -> None:
    code = service_of("redis://127.0.0.1:1")
    with serving(tmp_path, code, ready="/ready", environment=environment) as service:
        async with service.client() as client:
            assert await statuses(client, "/orders/7/payment", "/hold") == [503, 503]
            assert (await client.get("/ready")).is_success


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_forced_shutdown_leaves_nothing_locked(
    service_of: Callable[[str], str],
    redis_server: Server,
    watcher: LockClient,
    tmp_path: Path,
    environment: dict[str, str],
) -> None:
    options = ("--timeout-graceful-shutdown", "1")
    with serving(tmp_path, service_of(redis_server.url), *options, ready="/ready", environment=environment) as service:
        async with service.client() as client:
            requests = [asyncio.create_task(client.post("/hold", params={"wait": SOON})) for _ in range(5)]
            await until(watcher.lock("held").locked, within=SOON)
            await asyncio.to_thread(service.stop)
            # The lease is 30 seconds, so the lock was released.
            assert not await watcher.lock("held").locked()
            ended = await asyncio.gather(*requests, return_exceptions=True)
        assert not any(isinstance(answer, httpx.Response) and answer.is_success for answer in ended)


# In one process.


async def test_a_mounted_application_has_the_client_and_runs_no_lifespan_of_its_own(
    server: Server, redis: Redis, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(recipe(PAGE, "app = Starlette(", server.url), names)
    ran: list[str] = []

    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        ran.append("own")
        yield

    async def locked(request: Request) -> JSONResponse:
        return JSONResponse(await request.state.locks.lock("orders").locked())

    mounted = Starlette(routes=[Route("/locked", locked)], lifespan=asynccontextmanager(lifespan))
    app = Starlette(routes=[Mount("/sub", mounted)], lifespan=names["lifespan"])
    before = await connected(redis)
    async with served(app) as client:
        assert (await client.get("/sub/locked")).json() is False
        assert await connected(redis) > before
    await until_connected(redis, before)
    assert ran == []


async def test_a_streamed_body_is_sent_when_the_lock_of_the_handler_is_gone(locks: LockClient) -> None:
    async def rows() -> AsyncIterator[str]:
        yield str(await locks.lock("export").locked())

    async def outside(request: Request) -> StreamingResponse:
        async with locks.lock("export"):
            return StreamingResponse(rows())

    async def inside(request: Request) -> StreamingResponse:
        async def locked_rows() -> AsyncIterator[str]:
            async with locks.lock("export"):
                async for row in rows():
                    yield row

        return StreamingResponse(locked_rows())

    async with served(Starlette(routes=[Route("/outside", outside), Route("/inside", inside)])) as client:
        assert (await client.get("/outside")).text == "False"
        assert (await client.get("/inside")).text == "True"
    assert not await locks.lock("export").locked()


async def test_a_lock_taken_in_a_dependency_of_litestar_may_be_gone_in_the_handler(
    locks: LockClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def held() -> AsyncIterator[Lease]:
        lease = await locks.lock("orders").acquire()
        yield lease

    async def other() -> int:
        await until(lambda: locks.statistics().held == 0)
        return 1

    @get("/", dependencies={"held": Provide(held), "other": Provide(other)})
    async def endpoint(held: NamedDependency[Lease], other: NamedDependency[int]) -> bool:
        return await locks.lock("orders").locked()

    with caplog.at_level(logging.WARNING, "aiolock"):
        async with served(Litestar([endpoint], logging_config=None)) as client:
            assert (await client.get("/")).json() is False
    assert "ended while it held the lock" in caplog.text
