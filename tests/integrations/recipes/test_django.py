"""The project of docs/how-to/recipes/django.md, served by uvicorn, and what the page warns of."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis
from asgiref.sync import async_to_sync

from aiolock import ClientClosedError, LockClient
from aiolock._embedded_server import Server
from tests.integrations.recipes.recipe import recipe
from tests.integrations.recipes.service import SOON, statuses
from tests.support.asgi import WebProcess, uvicorn_command
from tests.support.inside import redis_of
from tests.support.observe import until

PAGE = "recipes/django.md"
SETTINGS = "ALLOWED_HOSTS = ['*']\nROOT_URLCONF = 'shop.urls'\nDEBUG_PROPAGATE_EXCEPTIONS = True\n"
# The tests' additions: a view that works until there is a file, one that reports that the service is ready.
VIEWS = """

import asyncio, os
from pathlib import Path


@locked("held", wait=60)
async def hold(request):
    while not Path(os.environ["UNTIL"]).exists():
        await asyncio.sleep(0.01)
    return HttpResponse()


async def ready(request):
    return HttpResponse()


urlpatterns += [path("hold", hold), path("ready", ready)]
"""


@contextmanager
def serving(url: str, directory: Path, *options: str) -> Iterator[WebProcess]:
    """The project, with its code in the files of Django's own layout."""
    shop = directory / "shop"
    shop.mkdir()
    (shop / "settings.py").write_text(SETTINGS, "utf-8")
    (shop / "asgi.py").write_text(recipe(PAGE, "async def lifespan", url), "utf-8")
    (shop / "urls.py").write_text(recipe(PAGE, "def locked", url) + VIEWS, "utf-8")
    command = uvicorn_command("shop.asgi:application", "--app-dir", str(directory), *options)
    environment = {"UNTIL": str(directory / "over")}
    with WebProcess(command, directory / "log", ready="/ready", environment=environment) as running:
        yield running


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_one_at_a_time_over_two_workers(redis_server: Server, watcher: LockClient, tmp_path: Path) -> None:
    with serving(redis_server.url, tmp_path, "--workers", "2") as service:
        async with service.client() as client:
            paid = Counter(await statuses(client, *(f"/orders/{number}/payment" for number in range(100))))
            assert paid == {201: 100}
            held = [asyncio.create_task(client.post("/hold")) for _ in range(5)]
            await until(watcher.lock("held").locked, within=SOON)
            async with watcher.lock("order:7"):
                busy = await client.post("/orders/07/payment")
            assert (busy.status_code, busy.json()["title"], busy.headers["retry-after"]) == (409, "Busy", "1")
            assert busy.headers["content-type"] == "application/problem+json"
            (tmp_path / "over").touch()
            assert [(await request).status_code for request in held] == [200] * 5
        await asyncio.to_thread(service.stop)
        assert service.tracebacks() == []
    assert not await watcher.lock("held").locked()


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_client_that_leaves_gives_its_lock_and_its_place_back(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with serving(redis_server.url, tmp_path) as service:
        async with service.client() as client:
            holding = asyncio.create_task(client.post("/hold"))
            await until(watcher.lock("held").locked, within=SOON)
            waiting = asyncio.create_task(client.post("/hold"))
            await until(lambda: waited_for(watcher), within=SOON)
            for request in (waiting, holding):
                request.cancel()
            await asyncio.wait([waiting, holding])
            async with watcher.lock("held").hold(wait=SOON):
                await asyncio.sleep(0)
            assert not await watcher.lock("held").locked()
        assert service.tracebacks() == []


async def waited_for(watcher: LockClient) -> bool:
    return bool(await redis_of(watcher).pubsub_channels("*held*"))


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_lock_that_is_lost_cuts_the_view_short(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with serving(redis_server.url, tmp_path) as service:
        async with service.client() as client:
            holding = asyncio.create_task(client.post("/hold"))
            await until(watcher.lock("held").locked, within=SOON)
            await watcher.lock("held").force_release()
            # Its next renewal finds out after ten seconds.
            lost = await holding
        assert (lost.status_code, lost.json()["title"]) == (503, "Temporarily out of service")


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_forced_shutdown_leaves_nothing_locked(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with serving(redis_server.url, tmp_path, "--timeout-graceful-shutdown", "1") as service:
        async with service.client() as client:
            requests = [asyncio.create_task(client.post("/hold")) for _ in range(5)]
            await until(watcher.lock("held").locked, within=SOON)
            await asyncio.to_thread(service.stop)
            # The lease is 30 seconds, so the lock was released.
            assert not await watcher.lock("held").locked()
            ended = await asyncio.gather(*requests, return_exceptions=True)
        assert not any(isinstance(answer, httpx.Response) and answer.is_success for answer in ended)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_without_redis_the_service_starts_and_answers_503(tmp_path: Path) -> None:
    with serving("redis://127.0.0.1:1", tmp_path) as service:
        async with service.client() as client:
            assert await statuses(client, "/orders/7/payment") == [503]


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_server_that_runs_no_lifespan_has_no_client(redis_server: Server, tmp_path: Path) -> None:
    with serving(redis_server.url, tmp_path, "--lifespan", "off") as service:
        async with service.client() as client:
            assert await statuses(client, "/orders/7/payment") == [500]
        assert "KeyError: 'locks'" in service.output


# Sync code.


def in_a_thread(function: Callable[[], None]) -> None:
    """Run it where no event loop is near, as a worker of WSGI does."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(function).result()


def locked(server: Server, name: str) -> bool:
    with redis.Redis.from_url(server.url) as client:
        return bool(client.exists(name))


def test_a_client_in_a_module_fails_from_its_second_event_loop_on(server: Server) -> None:
    locks = LockClient.from_url(server.url)

    async def work() -> None:
        async with locks.lock("orders"):
            pass

    def calls() -> None:
        async_to_sync(work)()
        with pytest.raises(ClientClosedError):
            async_to_sync(work)()

    in_a_thread(calls)


def test_a_lock_does_not_outlive_the_call_that_took_it(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    locks = LockClient.from_url(server.url)

    async def take() -> None:
        await locks.lock("orders").acquire()

    def calls() -> None:
        with pytest.raises(RuntimeError, match="runs in another"):
            async_to_sync(locks.lock("orders").acquire)()
        async_to_sync(take)()
        assert not locked(server, "orders")

    in_a_thread(calls)
    assert "ended while it held the lock" in caplog.text
