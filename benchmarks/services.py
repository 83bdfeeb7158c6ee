"""Web services with one endpoint, which works under a lock of the order or without one."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from aiohttp import web
from fastapi import FastAPI

import aiolock.aiohttp
import aiolock.fastapi
from aiolock import LockConfig
from benchmarks.run import Run

Handle = Callable[[int], Awaitable[dict[str, int]]]
Lock = Callable[[int], AbstractAsyncContextManager[object]]

_NAME = "order:{order_id}"
_PATIENCE = 30.0


def fastapi_service(run: Run, lock: Lock | None, handle: Handle) -> FastAPI:
    """The service of a run; without a *lock* it has that of aiolock."""
    return fastapi_with_aiolock(run.url, handle, _config(run)) if lock is None else fastapi_with(lock, handle)


def aiohttp_service(run: Run, lock: Lock | None, handle: Handle) -> web.Application:
    """The same with aiohttp."""
    return aiohttp_with_aiolock(run.url, handle, _config(run)) if lock is None else aiohttp_with(lock, handle)


def _config(run: Run) -> LockConfig:
    return LockConfig(release="behind" if run.peer == "behind" else "answered")


def fastapi_with_aiolock(url: str, handle: Handle, config: LockConfig) -> FastAPI:
    """The service as the documentation of `aiolock.fastapi` writes it."""
    service = FastAPI(lifespan=aiolock.fastapi.lifespan(url, config=config))

    @service.post("/orders/{order_id}", dependencies=[aiolock.fastapi.lock_for(_NAME, wait=_PATIENCE)])
    async def pay(order_id: int) -> dict[str, int]:
        return await handle(order_id)

    return service


def fastapi_with(lock: Lock, handle: Handle) -> FastAPI:
    """With a lock around the work."""
    service = FastAPI()

    @service.post("/orders/{order_id}")
    async def pay(order_id: int) -> dict[str, int]:
        async with lock(order_id):
            return await handle(order_id)

    return service


def aiohttp_with_aiolock(url: str, handle: Handle, config: LockConfig) -> web.Application:
    """The service as the documentation of `aiolock.aiohttp` writes it."""

    @aiolock.aiohttp.synchronized(_NAME, wait=_PATIENCE)
    async def pay(request: web.Request) -> web.Response:
        return web.json_response(await handle(int(request.match_info["order_id"])))

    service = web.Application()
    aiolock.aiohttp.setup(service, url, config=config)
    service.router.add_post("/orders/{order_id}", pay)
    return service


def aiohttp_with(lock: Lock, handle: Handle) -> web.Application:
    """With a lock around the work."""

    async def pay(request: web.Request) -> web.Response:
        order_id = int(request.match_info["order_id"])
        async with lock(order_id):
            return web.json_response(await handle(order_id))

    service = web.Application()
    service.router.add_post("/orders/{order_id}", pay)
    return service
