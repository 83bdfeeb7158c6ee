"""examples/payments, run as it is: an order is paid once, for any number of requests and deaths of workers."""

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.support.asgi import WebProcess
from tests.support.observe import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MAIN = Path(__file__).parents[2] / "examples/payments/main.py"
ORDERS, EACH = 10, 20


@pytest.fixture
def payments(tmp_path: Path) -> Iterator[WebProcess]:
    settings = {"DATABASE": str(tmp_path / "payments.db")}
    with WebProcess([str(MAIN)], tmp_path / "log", ready="/openapi.json", environment=settings) as running:
        yield running


def charges(tmp_path: Path) -> Counter[int]:
    """How often each order was charged, by the database."""
    connection = sqlite3.connect(tmp_path / "payments.db")
    try:
        return Counter(order for (order,) in connection.execute("SELECT customer_order FROM charges"))
    finally:
        connection.close()


async def test_every_order_is_paid_once(payments: WebProcess, tmp_path: Path) -> None:
    async with payments.client() as client:
        assert (await client.get("/orders/0/payment")).status_code == 404
        answers = await asyncio.gather(
            *(client.post(f"/orders/{n % ORDERS}/payment", json={"cents": 100}) for n in range(ORDERS * EACH))
        )
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses[201] == ORDERS
        assert statuses.keys() <= {200, 201, 409}
        assert charges(tmp_path) == dict.fromkeys(range(ORDERS), 1)
        again = await client.post("/orders/07/payment", json={"cents": 100})
        assert (again.status_code, again.json()) == (200, (await client.get("/orders/7/payment")).json())
    await asyncio.to_thread(payments.stop)
    assert payments.tracebacks() == []
    assert charges(tmp_path) == dict.fromkeys(range(ORDERS), 1)


async def test_the_schema_tells_of_every_answer(payments: WebProcess) -> None:
    async with payments.client() as client:
        schema = (await client.get("/openapi.json")).json()
    answers = schema["paths"]["/orders/{order_id}/payment"]["post"]["responses"]
    assert answers.keys() == {"200", "201", "409", "422", "503"}


async def test_ctrl_c_ends_it(payments: WebProcess) -> None:
    # A worker that is still starting is told of the interrupt by uvicorn in other ways.
    await until(lambda: payments.output.count("Application startup complete") == 2, within=30)
    # A terminal, too, sends the signal to all processes.
    os.killpg(payments.running.pid, signal.SIGINT)
    await until(lambda: payments.running.poll() is not None, within=30)
    await until(lambda: not alive(payments.running.pid), within=30)
    assert set(payments.tracebacks()) <= {"KeyboardInterrupt"}


async def nobody_else_writes(directory: Path, order: int) -> sqlite3.Connection:
    """Wait until the order is being paid, and, before the payment is stored, keep all others from writing."""
    somebody = sqlite3.connect(directory / "payments.db", timeout=0, isolation_level=None)

    def registered() -> bool:
        try:
            somebody.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        if somebody.execute("SELECT 1 FROM fences WHERE customer_order = ?", (order,)).fetchall():
            return True
        somebody.execute("ROLLBACK")
        return False

    await until(registered, within=30)
    assert charges(directory) == {}
    return somebody


async def test_a_payment_that_is_cut_short_while_it_is_written_stays_locked(server: Server, tmp_path: Path) -> None:
    settings = {"DATABASE": str(tmp_path / "payments.db"), "REDIS_URL": server.url, "CHARGE_SECONDS": "3"}
    with WebProcess([str(MAIN)], tmp_path / "log", ready="/openapi.json", environment=settings) as payments:
        async with LockClient.from_url(server.url) as watcher, payments.client() as client:
            lock = watcher.lock("order:42")
            answer = asyncio.create_task(client.post("/orders/42/payment", json={"cents": 100}))
            somebody = await nobody_else_writes(tmp_path, 42)
            assert await lock.locked()
            stopping = asyncio.create_task(asyncio.to_thread(payments.stop))
            await until(lambda: "timeout graceful shutdown exceeded" in payments.output, within=60)
            # A release that comes too early would come in this second.
            await asyncio.sleep(1)
            assert await lock.locked()
            assert charges(tmp_path) == {}
            somebody.execute("ROLLBACK")
            await stopping
            await asyncio.wait([answer])
            assert charges(tmp_path) == {42: 1}
            assert not await lock.locked()
        somebody.close()


async def test_a_payment_of_a_process_that_was_paused_is_not_stored(server: Server, tmp_path: Path) -> None:
    """Its lock was freed by force meanwhile, so that the clock tells the process nothing; only its token is old."""
    settings = {"DATABASE": str(tmp_path / "payments.db"), "REDIS_URL": server.url, "CHARGE_SECONDS": "3"}
    one = WebProcess([str(MAIN)], tmp_path / "one", ready="/openapi.json", environment=settings)
    two = WebProcess([str(MAIN)], tmp_path / "two", ready="/openapi.json", environment=settings)
    async with LockClient.from_url(server.url) as watcher:
        lock = watcher.lock("order:42")
        with one, two:
            async with one.client() as client, two.client() as others:
                late = asyncio.create_task(client.post("/orders/42/payment", json={"cents": 1}))
                somebody = await nobody_else_writes(tmp_path, 42)
                os.killpg(one.running.pid, signal.SIGSTOP)
                somebody.close()
                await lock.force_release()
                assert (await others.post("/orders/42/payment", json={"cents": 2})).status_code == 201
                os.killpg(one.running.pid, signal.SIGCONT)
                assert (await late).status_code == 503
                assert charges(tmp_path) == {42: 1}
                assert (await client.get("/orders/42/payment")).json()["cents"] == 2


async def test_a_late_request_is_told_to_come_again(payments: WebProcess, tmp_path: Path) -> None:
    """The request is late, as the database has seen a newer token; nothing else tells so."""
    with closing(sqlite3.connect(tmp_path / "payments.db")) as database, database:
        database.execute("INSERT INTO fences VALUES (42, ?)", (2**62,))
    async with payments.client() as client:
        answer = await client.post("/orders/42/payment", json={"cents": 100})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert charges(tmp_path) == {}


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
