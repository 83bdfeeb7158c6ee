"""B10, B11: an endpoint of a web service that works under a lock of the request, beside the same one without a lock."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.crew import Worker, hear, say
from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run
from benchmarks.witness import Witness

if TYPE_CHECKING:
    import aiohttp

    from benchmarks.services import Lock

# Each client has a connection of its own, and one request at a time.
CLIENTS = 20


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *keys*: the number of orders that the clients ask for; the service is a process of its own."""
    import aiohttp

    service = await Worker.start(run, 1)
    address = f"http://127.0.0.1:{await service.hear()}"
    begin = time.monotonic() + run.warm_up
    end = begin + run.seconds
    await service.tell([begin, end])
    async with aiohttp.ClientSession(address) as session:
        clients = [_Client(session, number % run.number("keys"), begin, end) for number in range(CLIENTS)]
        await asyncio.gather(*(client.ask() for client in clients))
    told = await service.hear()
    await service.end()
    answers = sum((client.answers for client in clients), Counter[int]())
    requests = answers.pop(200, 0)
    problems = [f"{times} × status {status}" for status, times in answers.items()]
    if told["problem"]:
        problems.append(told["problem"])
    measures = {"requests_per_second": requests / run.seconds, "cpu_per_request": told["cpu"] / max(1, requests)}
    return Outcome(measures, problem="; ".join(problems) or (None if requests else "not one request"))


class _Client:
    """Asks for one order again and again, and counts the answers to requests between *begin* and *end*."""

    def __init__(self, session: "aiohttp.ClientSession", order: int, begin: float, end: float) -> None:
        self._session = session
        self._path = f"/orders/{order}"
        self._begin = begin
        self._end = end
        self.answers = Counter[int]()

    async def ask(self) -> None:
        while (now := time.monotonic()) < self._end:
            async with self._session.post(self._path) as response:
                await response.read()
            if now >= self._begin:
                self.answers[response.status] += 1


async def serve_fastapi(run: Run) -> None:
    """The service of B10."""
    import uvicorn

    from benchmarks.services import fastapi_service

    work = Work(run)
    async with lock_of(run) as lock:
        service = fastapi_service(run, lock, work.handle)
        server = uvicorn.Server(uvicorn.Config(service, log_level="error", ws="none"))
        with _listener() as listener:
            serving = asyncio.create_task(server.serve([listener]))
            await work.measure(listener)
            server.should_exit = True
            await serving


async def serve_aiohttp(run: Run) -> None:
    """The service of B11."""
    from aiohttp import web

    from benchmarks.services import aiohttp_service

    work = Work(run)
    async with lock_of(run) as lock:
        service = aiohttp_service(run, lock, work.handle)
        runner = web.AppRunner(service, access_log=None)
        await runner.setup()
        with _listener() as listener:
            await web.SockSite(runner, listener).start()
            await work.measure(listener)
            await runner.cleanup()


def _listener() -> socket.socket:
    # The socket names TCP, unlike `create_server`: otherwise asyncio lets Nagle's algorithm hold each answer for 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(CLIENTS)
    return listener


@asynccontextmanager
async def lock_of(run: Run) -> "AsyncIterator[Lock | None]":
    """The lock of an order; ``None`` for aiolock, which comes with the service."""
    if run.peer in ("aiolock", "behind"):
        yield None
    elif run.peer == "no-lock":
        yield lambda order: nullcontext()
    else:
        async with peers.make(run.peer, run.url, CLIENTS, 30) as peer:
            yield lambda order: peer.lock(f"order:{order}")


class Work:
    """The work of an endpoint, watched."""

    def __init__(self, run: Run) -> None:
        self._witness = Witness(run.number("keys"))
        self._alone = run.peer != "no-lock" or run.number("keys") >= CLIENTS

    async def handle(self, order: int) -> dict[str, int]:
        self._witness.enter(order + 1, order)
        # The others get a turn, so that a second holder is seen.
        await asyncio.sleep(0)
        self._witness.leave(order + 1, order)
        return {"order": order}

    @property
    def problem(self) -> str | None:
        """What went wrong: two requests worked for one order at a time."""
        return f"{self._witness.overlaps} × two holders at a time" if self._alone and self._witness.overlaps else None

    async def measure(self, listener: socket.socket) -> None:
        """Report the address of the service, and its use of the processor between the times that it receives."""
        say(listener.getsockname()[1])
        begin, end = await hear()
        await asyncio.sleep(begin - time.monotonic())
        cpu = time.process_time()
        await asyncio.sleep(end - time.monotonic())
        cpu = time.process_time() - cpu
        await asyncio.sleep(0.5)
        say({"cpu": cpu, "problem": self.problem})
