"""The pages of a service for its operators: whether it can use its locks, and the holders and waiters."""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from aiohttp import web
from fastapi import Depends, FastAPI, Header, HTTPException
from redis.asyncio import Redis

import aiolock.aiohttp
import aiolock.fastapi
from aiolock import AsyncRLock, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._identity import random_part
from aiolock._web import page
from aiolock.testing import failing_commands
from tests.support.asgi import http_client, served
from tests.support.browser import dom_of, picture_of
from tests.support.inside import client_id_of
from tests.support.observe import answered, until
from tests.support.serving import serving

Service = Callable[[Redis], AbstractAsyncContextManager[tuple[httpx.AsyncClient, LockClient]]]

SETTINGS = LockConfig(client_name="shop")


async def operators_only(password: Annotated[str | None, Header()] = None) -> None:
    if password != "open sesame":
        raise HTTPException(401)


@asynccontextmanager
async def with_fastapi(redis: Redis) -> AsyncIterator[tuple[httpx.AsyncClient, LockClient]]:
    app = FastAPI(lifespan=aiolock.fastapi.lifespan(redis, config=SETTINGS))
    app.add_api_route("/healthz", aiolock.fastapi.healthz)
    app.add_api_route("/locks", aiolock.fastapi.locks_page, dependencies=[Depends(operators_only)])
    found: list[LockClient] = []

    @app.get("/client")
    async def client(locks: aiolock.fastapi.Locks) -> None:
        found.append(locks)

    async with served(app) as http:
        await http.get("/client")
        yield http, found[0]


@asynccontextmanager
async def with_aiohttp(redis: Redis) -> AsyncIterator[tuple[httpx.AsyncClient, LockClient]]:
    app = web.Application()
    aiolock.aiohttp.setup(app, redis, config=SETTINGS)

    async def guarded(request: web.Request) -> web.Response:
        if request.headers.get("password") != "open sesame":
            raise web.HTTPUnauthorized
        return await aiolock.aiohttp.locks_page(request)

    app.router.add_get("/healthz", aiolock.aiohttp.healthz)
    app.router.add_get("/locks", guarded)
    async with serving(app) as session, http_client(str(session._base_url)) as http:
        yield http, app[aiolock.aiohttp.LOCKS]


BOTH = pytest.mark.parametrize("service", [with_fastapi, with_aiohttp])
OPERATOR = {"password": "open sesame"}


# Health.


@BOTH
async def test_a_service_whose_redis_answers_is_healthy(service: Service, redis: Redis) -> None:
    async with service(redis) as (http, _):
        answer = await http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer.headers["cache-control"] == "no-store"


@BOTH
async def test_a_service_whose_redis_is_gone_names_redis_as_the_fault(service: Service, own: Server) -> None:
    async with Redis.from_url(own.url) as redis, service(redis) as (http, locks):
        await locks.ping()
        own.stop()
        answer = await http.get("/healthz")
    document = answer.json()
    assert (answer.status_code, document["status"]) == (503, 503)
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.headers["cache-control"] == "no-store"
    assert "Redis" in document["detail"]


@BOTH
async def test_a_service_whose_redis_is_silent_reports_it_within_a_second(service: Service, own: Server) -> None:
    async with Redis.from_url(own.url) as redis, service(redis) as (http, locks):
        await locks.ping()
        own.pause()
        try:
            answer = await http.get("/healthz", timeout=10)
        finally:
            own.resume()
    assert answer.status_code == 503
    assert answer.json()["detail"] == "Redis has not answered within 0.9 s."


@BOTH
async def test_an_error_of_redis_is_reported_in_words(service: Service, redis: Redis) -> None:
    async with service(redis) as (http, locks):
        with failing_commands(locks, most=None):
            answer = await http.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("Redis does not answer as it should: ping failed")


@BOTH
async def test_a_wrong_password_is_reported_in_one_sentence(service: Service, own: Server) -> None:
    async with Redis.from_url(own.url.replace("//", "//nobody:sesame@")) as redis, service(redis) as (http, _):
        answer = await http.get("/healthz")
    detail = answer.json()["detail"]
    assert answer.status_code == 503
    assert "invalid username-password pair" in detail
    assert detail.endswith("disabled.")
    assert not detail.endswith("..")
    assert "sesame" not in detail


@BOTH
async def test_a_client_that_is_closed_is_a_service_that_shuts_down(service: Service, redis: Redis) -> None:
    async with service(redis) as (http, locks):
        await locks.aclose()
        answer = await http.get("/healthz")
    assert (answer.status_code, answer.json()["detail"]) == (
        503,
        "The client is closed: the service is shutting down.",
    )


# The page.


async def wait_for(lock: AsyncRLock) -> None:
    async with lock:
        pass


class Reader(HTMLParser):
    """The text of a page, cell by cell, and its tags, which must be closed in order."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.cells: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self._open:
            self.cells[-1] += data


@BOTH
async def test_the_page_is_for_users_that_the_service_lets_in(service: Service, redis: Redis) -> None:
    async with service(redis) as (http, _):
        assert (await http.get("/locks")).status_code == 401
        answer = await http.get("/locks", headers=OPERATOR)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "Nobody holds or waits." in answer.text
    assert re.search(r'<meta http-equiv="refresh" content="\d+">', answer.text)


@BOTH
async def test_the_page_shows_holders_and_waiters_and_their_times(
    service: Service, redis: Redis, other: LockClient
) -> None:
    async with service(redis) as (http, locks), other.lock("elsewhere"), locks.lock("orders:42"):
        waiting = [
            asyncio.create_task(locks.lock("orders:42", owner="job-17").try_lock(30)),
            asyncio.create_task(wait_for(locks.lock("elsewhere")), name="importer"),
        ]
        await until(lambda: locks.statistics().parked == 2)
        await answered(locks)
        text = (await http.get("/locks", headers=OPERATOR)).text
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    cells = Reader(text).cells
    rows = {cells[at]: cells[at + 1 : at + 4] for at in range(0, len(cells), 4)}
    held, number, who = rows["orders:42lock"]
    assert re.fullmatch(r"task .+ for \d+\.\d s, (29|30)\.\d s of the lease left", held)
    assert number == "1"
    assert re.fullmatch(r"owner job-17 for \d+\.\d s", who)
    held, _, who = rows["elsewherelock"]
    assert re.fullmatch(r"elsewhere: \S+ \d+, \d+\.\d s of the lease left", held)
    assert re.fullmatch(r"task importer for \d+\.\d s", who)
    assert "1 held, 2 waiting, 0 lost since the start" in text
    assert [client for client in map(client_id_of, (locks, other)) if random_part(client or "") in text] == []


HOSTILE = "<script>document.title='mine'</script>&\"'"


async def test_nothing_on_the_page_is_taken_for_html(redis: Redis) -> None:
    config = LockConfig(client_name="<b>shop</b>")
    async with (
        LockClient(redis, config=config) as locks,
        LockClient(redis, config=config) as other,
        locks.lock(HOSTILE, owner=HOSTILE),
        other.lock("a"),
    ):
        waiting = [
            asyncio.create_task(wait_for(locks.lock(HOSTILE)), name=HOSTILE),
            asyncio.create_task(wait_for(locks.lock("a"))),
        ]
        await until(lambda: locks.statistics().parked == 2)
        await answered(locks)
        read = Reader(await page.page_of(locks))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    assert "script" not in read.tags
    assert "b" not in read.tags
    text = "\n".join(read.cells)
    assert text.count(HOSTILE) == 3
    assert "<b>shop</b>" in text


async def test_the_holder_of_a_lock_is_not_shown_as_running_the_once_of_its_name(redis: Redis) -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async with (
        LockClient(redis) as locks,
        LockClient(redis) as other,
        other.lock("report"),
        other.once("report", keep=60),
    ):
        waiting = [
            asyncio.create_task(wait_for(locks.lock("report"))),
            asyncio.create_task(locks.once("report", keep=60).run(never)),
        ]
        await until(lambda: locks.statistics().parked == 2)
        await answered(other)
        text = await page.page_of(locks)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    assert text.count("elsewhere: ") == 1
    assert text.count("somebody elsewhere, or nobody") == 1


async def test_an_unknown_holder_is_left_open(own: Server) -> None:
    async with (
        Redis.from_url(own.url) as redis,
        LockClient(redis) as locks,
        LockClient(redis) as other,
        other.lock("a"),
    ):
        waiting = asyncio.create_task(wait_for(locks.lock("a")))
        await until(lambda: locks.statistics().parked == 1)
        await answered(locks)
        with failing_commands(locks, most=None):
            text = await page.page_of(locks)
        waiting.cancel()
        await asyncio.wait([waiting])
    assert "somebody elsewhere, or nobody" in text


async def test_the_page_of_a_great_many_locks_is_short(locks: LockClient) -> None:
    await asyncio.gather(*(locks.lock(f"n{number}", owner="all").acquire() for number in range(300)))
    waiting = [asyncio.create_task(wait_for(locks.lock("n299"))) for _ in range(40)]
    await until(lambda: locks.statistics().parked == 40)
    text = await page.page_of(locks)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    assert text.count("<tr>") == 1 + 200
    assert "Shown are 200 of 300 names." in text
    assert "and 30 more" in text
    assert "<strong><bdi>n299</bdi></strong>" in text, "a lock with waiters comes first"


async def test_the_page_says_which_process_and_which_server_it_shows(own: Server) -> None:
    config = LockConfig(client_name="<i>shop</i>")
    async with LockClient.from_url(own.url.replace("//", "//default:sesame@"), config=config) as locks:
        text = await page.page_of(locks)
    assert "<title>Locks of &lt;i&gt;shop&lt;/i&gt;</title>" in text
    assert "<h1>Locks of <bdi>&lt;i&gt;shop&lt;/i&gt;</bdi></h1>" in text
    assert f"Process {os.getpid()} on <bdi>{socket.gethostname()}</bdi>, server <bdi>{own.url}/0</bdi>, at 20" in text
    assert "sesame" not in text


async def page_of_long_names(locks: LockClient) -> str:
    """One lock of a long name, which somebody of a long name holds, and another waits for."""
    name, task = "orders:" + "x" * 900, "t" * 900
    async with locks.lock(name, owner="o" * 900), locks.lock("a\N{RIGHT-TO-LEFT OVERRIDE}b"):
        waiting = asyncio.create_task(wait_for(locks.lock(name)), name=task)
        await until(lambda: locks.statistics().parked == 1)
        text = await page.page_of(locks)
        waiting.cancel()
        await asyncio.wait([waiting])
    return text


async def test_long_names_are_cut_and_no_name_reverses_the_text_beside_it(locks: LockClient) -> None:
    text = await page_of_long_names(locks)
    for letter, front in {"x": "orders:", "o": "owner ", "t": "task "}.items():
        assert f"<bdi>{front}{letter * (255 - len(front))}…</bdi>" in text
    assert "<bdi>a\N{RIGHT-TO-LEFT OVERRIDE}b</bdi>" in text


# In a browser.


@pytest.mark.slow
@pytest.mark.parametrize("width", [1200, 600, 500])
async def test_no_name_pushes_the_page_off_the_screen(width: int, locks: LockClient, tmp_path: Path) -> None:
    measures = "document.title = document.documentElement.scrollWidth + ' of ' + innerWidth"
    path = tmp_path / "page.html"
    path.write_text(f"{await page_of_long_names(locks)}<script>{measures}</script>")
    title = re.search(r"<title>(\d+) of (\d+)</title>", await dom_of(path.as_uri(), width=width))
    assert title is not None
    assert int(title[1]) <= int(title[2]) == width


@pytest.mark.slow
async def test_a_browser_shows_the_page_and_runs_nothing_of_it(redis: Redis, tmp_path: Path) -> None:
    app = web.Application()
    aiolock.aiohttp.setup(app, redis)
    app.router.add_get("/locks", aiolock.aiohttp.locks_page)
    async with serving(app) as session:
        locks, url = app[aiolock.aiohttp.LOCKS], str(session._build_url("/locks"))
        empty = await picture_of(url, tmp_path / "empty.png")
        async with locks.lock(HOSTILE), locks.lock("orders:42"):
            waiting = asyncio.create_task(locks.lock("orders:42", owner="job-17").try_lock(300))
            await until(lambda: locks.statistics().parked == 1)
            dom = await dom_of(url)
            picture = await picture_of(url, tmp_path / "page.png")
            waiting.cancel()
            await asyncio.wait([waiting])
    assert "<title>Locks</title>" in dom
    assert "<strong><bdi>orders:42</bdi></strong>" in dom
    assert "<bdi>owner job-17</bdi> for" in dom
    assert "&lt;script&gt;" in dom
    assert "<script>" not in dom
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > len(empty) > 1000
