"""`examples/seats`, run as it is."""

import asyncio
import os
import runpy
import signal
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession, web

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.docs.pages import ROOT
from tests.support.asgi import WebProcess
from tests.support.observe import until

FOLDER = ROOT / "examples/seats"
PATIENCE = 30.0


@asynccontextmanager
async def running(directory: Path, count: int, **environment: str) -> AsyncIterator[list[WebProcess]]:
    """The same number of seats."""
    command = [str(FOLDER / "main.py"), "{port}"]
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                WebProcess(command, directory / f"log{number}", ready="/seats", environment=environment)
            )
            for number in range(count)
        ]


async def buy(session: ClientSession, process: WebProcess, seat: str, buyer: str) -> int:
    async with session.post(f"{process.url}/seats/{seat}?buyer={buyer}") as response:
        return response.status


async def sold(session: ClientSession, process: WebProcess) -> Any:
    async with session.get(f"{process.url}/seats") as response:
        return await response.json()


@pytest.mark.slow
async def test_it_starts_by_itself_and_sells_each_seat_once(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as (process,), ClientSession() as session:
        buyers = [(f"{row}A", f"buyer{number}") for row in range(1, 6) for number in range(10)]
        statuses = await asyncio.gather(*(buy(session, process, *buyer) for buyer in buyers))
        assert Counter(statuses) == Counter({201: 5, 409: 45})
        winners = {seat: buyer for (seat, buyer), status in zip(buyers, statuses, strict=True) if status == 201}
        assert await sold(session, process) == winners
        assert await buy(session, process, "01A", "ada") == 404, "one spelling for each seat"
        assert await buy(session, process, "9A", "") == 400
        process.stop()
        assert process.running.returncode == 0, process.output


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_process_that_is_paused_sells_nothing_that_is_anothers(tmp_path: Path) -> None:
    """The process has the lock and charges a card; when it wakes up, another process has sold the seat."""
    with Server() as server:
        shared = {"REDIS_URL": server.url, "DATABASE": str(tmp_path / "seats.db"), "CHARGE_SECONDS": "3"}
        async with (
            running(tmp_path, 2, **shared) as (paused, other),
            ClientSession() as session,
            LockClient.from_url(server.url) as outside,
        ):
            late = asyncio.create_task(buy(session, paused, "1A", "late"))
            await until(lambda: charges(tmp_path / "seats.db", "1A"), within=PATIENCE)
            assert await outside.lock("seat:1A").locked()
            os.kill(paused.running.pid, signal.SIGSTOP)
            assert await until_sold(session, other, "1A", "ada") == 201
            os.kill(paused.running.pid, signal.SIGCONT)
            assert await late == 503
            assert await sold(session, paused) == await sold(session, other) == {"1A": "ada"}


@pytest.mark.slow
async def test_a_sale_that_is_cut_short_while_it_is_written_keeps_its_lock(server: Server, other: LockClient) -> None:
    """The application ends, its handler is cancelled, and the thread that writes goes on under the lock."""
    names = runpy.run_path(str(FOLDER / "main.py"))
    app = names["application"](server.url, ":memory:")
    hall, began, go_on = app[names["HALL"]], threading.Event(), threading.Event()
    sell, written = hall.sell, []

    def slow(*sale: object) -> None:
        began.set()
        go_on.wait(PATIENCE)
        sell(*sale)
        written.append(hall.sold())

    hall.sell = slow
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as session:
        sale = asyncio.create_task(session.post("/seats/1A?buyer=ada").__aenter__())
        await until(began.is_set, within=PATIENCE)
        ending = asyncio.create_task(runner.cleanup())
        # A release that comes too early would come in this second.
        await asyncio.wait([ending], timeout=1)
        locked = await other.lock("seat:1A").locked()
        go_on.set()
        await ending
        assert locked
        with pytest.raises(ClientError):
            await sale
    assert written == [{"1A": "ada"}]
    assert not await other.lock("seat:1A").locked()


def charges(database: Path, seat: str) -> bool:
    """Whether the seat has seen a token and nobody writes: a process that is paused as it writes blocks all others."""
    connection = sqlite3.connect(database, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN EXCLUSIVE")
        return bool(connection.execute("SELECT 1 FROM seats WHERE seat = ? AND token > 0", (seat,)).fetchall())
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()


async def until_sold(session: ClientSession, process: WebProcess, seat: str, buyer: str) -> int:
    """Try again and again, as a buyer does who is told to come again."""
    async with asyncio.timeout(PATIENCE):
        while (status := await buy(session, process, seat, buyer)) == 409:
            assert (await sold(session, process)).get(seat) is None
    return status


def test_the_database_refuses_a_sale_that_comes_too_late() -> None:
    """The database refuses late writes by itself, also without the lock."""
    names = runpy.run_path(str(FOLDER / "main.py"))
    hall, too_late = names["Hall"](":memory:"), names["TooLateError"]
    assert hall.buyer("1A", 1) is None
    assert hall.buyer("1A", 2) is None
    with pytest.raises(too_late):
        hall.sell("1A", "late", 1)
    hall.sell("1A", "ada", 2)
    with pytest.raises(too_late):
        hall.buyer("1A", 1)
    assert hall.buyer("1A", 3) == "ada"
    assert hall.sold() == {"1A": "ada"}
    hall.close()
