"""
A service as a process of its own: `python -m tests.integrations.aiohttp_service REDIS LEDGER CANCELLATION PORT`.

Its handlers note in the ledger, a file that all processes share, when they enter and leave.
"""

import asyncio
import os
import sys
from pathlib import Path

from aiohttp import web

from aiolock import LockConfig
from aiolock.aiohttp import locks_from, setup, synchronized

LEASE = 3.0
SHUTDOWN = 2.0
LEDGER = web.AppKey("LEDGER", Path)


def note(request: web.Request, *what: str) -> None:
    """Append a line, which is so short that it is written as a whole."""
    with request.app[LEDGER].open("ab", buffering=0) as file:
        file.write(f"{' '.join(what)} {os.getpid()}\n".encode())


def noted(request: web.Request, *what: str) -> bool:
    return " ".join(what) + " " in request.app[LEDGER].read_text()


async def pay(request: web.Request) -> web.Response:
    """Pay an order that is not paid yet: look, take a while, write."""
    order = request.match_info["order"]
    note(request, "enter", order)
    try:
        if noted(request, "paid", order):
            return web.Response(status=410)
        await asyncio.sleep(0.005)
        note(request, "paid", order)
        return web.Response(status=201)
    finally:
        note(request, "leave", order)


async def stay(request: web.Request) -> web.Response:
    """Stay until the ledger says that this one may go."""
    name = request.match_info["name"]
    try:
        while not noted(request, "go", name):
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        note(request, "cancelled", name)
        raise
    note(request, "done", name)
    return web.Response()


async def statistics(request: web.Request) -> web.Response:
    now = locks_from(request).statistics()
    return web.json_response({"held": now.held, "parked": now.parked, "pending": now.pending})


def application(redis: str, ledger: Path) -> web.Application:
    app = web.Application()
    app[LEDGER] = ledger
    setup(app, redis, config=LockConfig(lease=LEASE, command_timeout=2, release_timeout=2))
    app.router.add_post("/orders/{order}/pay", synchronized("order:{order}", wait=60)(pay))
    app.router.add_post("/orders/{order}/try", synchronized("order:{order}")(pay))
    app.router.add_post("/stay/{name}", synchronized("stay:{name}", wait=60)(stay))
    app.router.add_get("/statistics", statistics)
    return app


if __name__ == "__main__":
    redis, ledger, cancellation, port = sys.argv[1:]
    web.run_app(
        application(redis, Path(ledger)),
        host="127.0.0.1",
        port=int(port),
        handler_cancellation=cancellation == "on",
        shutdown_timeout=SHUTDOWN,
    )
