"""A service for tests, run by uvicorn: REDIS_URL, LEASE and COMMAND_TIMEOUT say how, DIRECTORY where it writes."""

import asyncio
import os
from pathlib import Path
from time import monotonic
from typing import Annotated

from fastapi import FastAPI, Response
from redis.asyncio import Redis

from aiolock import Lease, LockConfig
from aiolock.fastapi import add_exception_handlers, lifespan, lock_for
from tests.processes.store import Store

DIRECTORY = Path(os.environ["DIRECTORY"])
WORK = 0.005
ROLLBACK = 1.0

config = LockConfig(lease=float(os.environ["LEASE"]), command_timeout=float(os.environ["COMMAND_TIMEOUT"]))
app = FastAPI(lifespan=lifespan(os.environ["REDIS_URL"], config=config))
add_exception_handlers(app)


@app.get("/ready")
async def ready() -> int:
    """The process that answers."""
    return os.getpid()


@app.post("/orders/{order_id}/pay", status_code=201, dependencies=[lock_for("order:{order_id}")])
async def pay(order_id: int, response: Response) -> int:
    """Pay once: 201, then 200."""
    paid = DIRECTORY / f"paid-{order_id}"
    if paid.exists():
        response.status_code = 200
    else:
        await asyncio.sleep(WORK)
        paid.open("x").close()
    return os.getpid()


@app.post("/counters/{name}")
async def count(name: str, lease: Annotated[Lease, lock_for("counter:{name}", wait=None)]) -> int:
    """Count in a file, which nothing but the lock protects; the store notes each visitor and the time."""
    entered = monotonic()
    store = Store(DIRECTORY / f"counter-{name}")
    seen = store.read(lease.token, entered)
    await asyncio.sleep(WORK)
    lease.check()
    store.write(lease.token, seen + 1)
    left = monotonic()
    # The lock is still held, so that it was held at *left*.
    lease.check()
    store.left(lease.token, left)
    return os.getpid()


@app.post("/rollback/{name}", dependencies=[lock_for("held:{name}", wait=None)])
async def roll_back(name: str) -> None:
    """Hold until cancelled, and then for a while; make a file at the end if the lock is still held."""
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(ROLLBACK)
        async with Redis.from_url(os.environ["REDIS_URL"]) as redis:
            if await redis.exists(f"held:{name}"):
                (DIRECTORY / f"rolled-back-{name}").touch()


@app.post("/hold/{name}", dependencies=[lock_for("held:{name}", wait=None)])
async def hold(name: str, until: str = "never") -> str:
    """Hold until the file *until* exists."""
    while not (DIRECTORY / until).exists():
        await asyncio.sleep(0.01)
    return "done"
