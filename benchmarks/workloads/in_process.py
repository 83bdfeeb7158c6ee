"""B18, B19: the services of B10 and B11 without a network and a web server: the processor time of a request."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run
from benchmarks.workloads.endpoint import CLIENTS, Work, lock_of

if TYPE_CHECKING:
    from aiohttp import web
    from fastapi import FastAPI

Ask = Callable[[], Awaitable[None]]
"""Sends a request and waits for its answer; an answer that is not a success is an error."""


async def fastapi(run: Run, observer: Observer) -> Outcome:
    """Parameter *keys*: the number of orders; as many requests as `endpoint` has clients are there at once."""
    from benchmarks.services import fastapi_service

    work = Work(run)
    async with AsyncExitStack() as stack:
        service = fastapi_service(run, await stack.enter_async_context(lock_of(run)), work.handle)
        state = await stack.enter_async_context(service.router.lifespan_context(service))
        asks = [_by_asgi(service, dict(state or {}), order) for order in _orders(run)]
        return await _measure(run, work, asks)


async def aiohttp(run: Run, observer: Observer) -> Outcome:
    """The same with aiohttp, which gets the bytes of a request, and parses them."""
    from aiohttp import web

    from benchmarks.services import aiohttp_service

    work = Work(run)
    async with AsyncExitStack() as stack:
        service = aiohttp_service(run, await stack.enter_async_context(lock_of(run)), work.handle)
        runner = web.AppRunner(service, access_log=None)
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        asks = [_Connection(runner, order).ask for order in _orders(run)]
        return await _measure(run, work, asks)


def _orders(run: Run) -> list[int]:
    return [number % run.number("keys") for number in range(CLIENTS)]


async def _measure(run: Run, work: Work, asks: Sequence[Ask]) -> Outcome:
    begin = time.monotonic() + run.warm_up
    await asyncio.gather(*(_ask_until(begin, ask) for ask in asks))
    cpu, started = time.process_time(), time.monotonic()
    requests = sum(await asyncio.gather(*(_ask_until(started + run.seconds, ask) for ask in asks)))
    cpu, seconds = time.process_time() - cpu, time.monotonic() - started
    return Outcome({"requests_per_second": requests / seconds, "cpu_per_request": cpu / requests}, problem=work.problem)


async def _ask_until(end: float, ask: Ask) -> int:
    requests = 0
    while time.monotonic() < end:
        await ask()
        requests += 1
    return requests


def _by_asgi(service: "FastAPI", state: dict[str, Any], order: int) -> Ask:
    path = f"/orders/{order}"
    scope: dict[str, Any] = {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"},
        **{"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": []},
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message.get("status", 200) != 200:
            raise RuntimeError(f"status {message['status']}")

    async def ask() -> None:
        await service({**scope, "state": dict(state)}, receive, send)

    return ask


class _Connection(asyncio.Transport):
    """A connection to a service of aiohttp whose other end is this process."""

    def __init__(self, runner: "web.AppRunner", order: int) -> None:
        super().__init__()
        assert runner.server is not None
        self._protocol = runner.server()
        self._request = f"POST /orders/{order} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()
        self._answer: asyncio.Future[bytes]
        self._open = True
        self._protocol.connection_made(self)

    async def ask(self) -> None:
        self._answer = asyncio.get_running_loop().create_future()
        self._protocol.data_received(self._request)
        if not (answer := await self._answer).startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(answer.partition(b"\r\n")[0].decode())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """The service answers, with the head and the body in one piece."""
        if not self._answer.done():
            self._answer.set_result(bytes(data))

    def is_closing(self) -> bool:
        return not self._open

    def close(self) -> None:
        if self._open:
            self._open = False
            self._protocol.connection_lost(None)
