"""
Two services whose payments are carried out once: `app` is FastAPI's, `python -m tests.integrations.idempotent_services
PORT` serves that of aiohttp. REDIS_URL and LEASE say how; in DIRECTORY each payment leaves a file.
"""

import asyncio
import os
import sys
from pathlib import Path

from aiohttp import web
from fastapi import FastAPI

import aiolock.aiohttp
from aiolock import LockConfig
from aiolock.fastapi import IdempotentRoute, add_exception_handlers, idempotent, lifespan

DIRECTORY = Path(os.environ["DIRECTORY"])
REDIS, CONFIG = os.environ["REDIS_URL"], LockConfig(lease=float(os.environ["LEASE"]))

app = FastAPI(lifespan=lifespan(REDIS, config=CONFIG))
app.router.route_class = IdempotentRoute
add_exception_handlers(app)


async def pay(name: str) -> dict[str, object]:
    """Note that it has begun, and pay as soon as it may."""
    (DIRECTORY / f"{name}-begun-{os.getpid()}").touch()
    while not (DIRECTORY / f"{name}-go").exists():
        await asyncio.sleep(0.01)
    (DIRECTORY / f"{name}-paid-{os.getpid()}").open("x").close()
    return {"paid": name, "by": os.getpid()}


@app.get("/ready")
async def ready() -> None: ...


@app.post("/payments/{name}", status_code=201, dependencies=[idempotent(None)])
async def payment(name: str) -> dict[str, object]:
    return await pay(name)


@aiolock.aiohttp.idempotent(None)
async def payment_of_aiohttp(request: web.Request) -> web.Response:
    return web.json_response(await pay(request.match_info["name"]), status=201)


async def ready_of_aiohttp(request: web.Request) -> web.Response:
    return web.Response()


def main(port: str) -> None:
    service = web.Application()
    aiolock.aiohttp.setup(service, REDIS, config=CONFIG)
    service.router.add_post("/payments/{name}", payment_of_aiohttp)
    service.router.add_get("/ready", ready_of_aiohttp)
    web.run_app(service, host="127.0.0.1", port=int(port), print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
