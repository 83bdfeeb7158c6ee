"""Applications of aiohttp that serve over TCP, in the loop of the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession, web

from aiolock import LockClient
from aiolock.aiohttp import LOCKS, setup

_HOST = "127.0.0.1"


def application(locks: LockClient) -> web.Application:
    """An application whose locks are of the client *locks*."""
    app = web.Application()
    setup(app, "redis://127.0.0.1:1")
    app[LOCKS] = locks
    return app


@asynccontextmanager
async def serving(
    app: web.Application, *, handler_cancellation: bool = False, shutdown_timeout: float = 0.1
) -> AsyncIterator[ClientSession]:
    """Serve *app* as `web.run_app` does; gives a session for its address."""
    runner = web.AppRunner(app, handler_cancellation=handler_cancellation, shutdown_timeout=shutdown_timeout)
    await runner.setup()
    try:
        await web.TCPSite(runner, _HOST, 0).start()
        async with ClientSession(f"http://{_HOST}:{runner.addresses[0][1]}") as session:
            yield session
    finally:
        await runner.cleanup()
