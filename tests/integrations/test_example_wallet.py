"""examples/wallet, run as it is: no money appears or vanishes, although clients, workers and Redis fail."""

import asyncio
import os
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.support.asgi import WebProcess
from tests.support.observe import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MAIN = Path(__file__).parents[2] / "examples/wallet/main.py"
ACCOUNTS = ("ada", "bob", "cyd", "dan")
TOTAL = 40_000
PAIRS = [(source, target) for source in ACCOUNTS for target in ACCOUNTS if source != target]


@pytest.fixture
def redis_server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def wallet(redis_server: Server, tmp_path: Path) -> Iterator[WebProcess]:
    settings = {"DIRECTORY": str(tmp_path), "REDIS_URL": redis_server.url, "CHECK_SECONDS": "0.02"}
    settings |= {"LEASE": "3", "WAIT": "60"}
    with WebProcess([str(MAIN)], tmp_path / "log", ready="/openapi.json", environment=settings) as running:
        yield running


def books(directory: Path) -> tuple[dict[str, int], list[tuple[str, str, str, int]]]:
    """The balance of each account, and every transfer."""
    with closing(sqlite3.connect(directory / "wallet.db", timeout=30)) as database:
        accounts = dict(database.execute("SELECT name, cents FROM accounts"))
        return accounts, database.execute("SELECT id, source, target, cents FROM transfers").fetchall()


def check_books(directory: Path) -> int:
    """Check that the accounts agree with the transfers, and return the number of transfers."""
    accounts, transfers = books(directory)
    expected = Counter(dict.fromkeys(ACCOUNTS, TOTAL // len(ACCOUNTS)))
    for _, source, target, cents in transfers:
        expected[source] -= cents
        expected[target] += cents
    assert accounts == expected
    assert sum(accounts.values()) == TOTAL
    assert min(accounts.values()) >= 0
    return len(transfers)


async def move(client: httpx.AsyncClient, source: str, target: str, cents: int, id: str | None = None) -> int:
    """The status; 0 when the connection was closed or refused."""
    body = {"id": id or str(uuid4()), "cents": cents}
    try:
        return (await client.post(f"/accounts/{source}/transfers/{target}", json=body)).status_code
    except httpx.TransportError:
        return 0


async def move_until_done(client: httpx.AsyncClient, choose: random.Random) -> int:
    """Ask as often as it takes, always for the same transfer; 201 or 200."""
    (source, target), cents, id = choose.choice(PAIRS), choose.randint(1, 300), str(uuid4())
    while (status := await move(client, source, target, cents, id)) not in {200, 201, 402}:
        await asyncio.sleep(0.1)
    return status


async def test_all_at_once_and_in_every_direction(wallet: WebProcess, tmp_path: Path) -> None:
    async with wallet.client() as client:
        statuses = await asyncio.gather(*(move(client, *PAIRS[number % 12], 1 + number) for number in range(120)))
        assert set(statuses) == {201}
        assert check_books(tmp_path) == 120
        id = str(uuid4())
        assert [await move(client, "ada", "bob", 1, id) for _ in range(3)] == [201, 200, 200]
        assert await move(client, "ada", "bob", 10 * TOTAL) == 402
        assert await move(client, "ada", "ada", 1) == 400
        assert check_books(tmp_path) == 121
    assert wallet.tracebacks() == []


async def test_a_balance_stays_as_it_was_read_until_it_is_moved(wallet: WebProcess, tmp_path: Path) -> None:
    """Nobody takes the money of a transfer that has found enough."""
    async with wallet.client() as client:
        statuses = await asyncio.gather(*(move(client, "ada", ACCOUNTS[1 + n % 3], 1000) for n in range(30)))
    assert Counter(statuses) == {201: 10, 402: 20}
    assert check_books(tmp_path) == 10


async def test_the_report_is_never_read_in_the_middle(wallet: WebProcess) -> None:
    async with wallet.client() as client:
        assert (await client.get("/report")).status_code == 404
        assert (await client.post("/report")).status_code == 201
        writing = [client.post("/report") for _ in range(20)]
        reading = [client.get("/report") for _ in range(200)]
        moving = [client.post("/accounts/ada/transfers/bob", json={"id": str(uuid4()), "cents": 1}) for _ in range(20)]
        answers = await asyncio.gather(*writing, *reading, *moving)
        assert Counter(answer.status_code for answer in answers) == {201: 40, 200: 200}
        for answer in answers[20:220]:
            assert answer.json().keys() == set(ACCOUNTS)
            assert sum(answer.json().values()) == TOTAL


async def test_no_more_print_than_there_are_printers(wallet: WebProcess) -> None:
    async with wallet.client() as client:
        answers = await asyncio.gather(*(client.post(f"/accounts/{ACCOUNTS[n % 4]}/statements") for n in range(100)))
        assert Counter(answer.status_code for answer in answers) == {201: 100}


async def test_no_money_is_lost_when_clients_workers_and_redis_fail(
    wallet: WebProcess, redis_server: Server, tmp_path: Path
) -> None:
    """Clients that leave, a worker that is killed while it has two accounts, and a Redis that comes back empty."""
    choose = random.Random(1)
    async with wallet.client() as client, LockClient.from_url(redis_server.url) as watcher:
        leaving = [asyncio.create_task(move(client, *choose.choice(PAIRS), 10)) for _ in range(40)]
        staying = [asyncio.create_task(move_until_done(client, choose)) for _ in range(80)]
        await until(lambda: len(books(tmp_path)[1]) >= 10, within=30)
        for task in leaving:
            task.cancel()
        os.kill(await worker_that_holds(watcher), signal.SIGKILL)
        done = len(books(tmp_path)[1])
        await until(lambda: len(books(tmp_path)[1]) >= done + 10, within=60)
        redis_server.stop()
        redis_server.start()
        statuses = Counter(await asyncio.gather(*staying))
        await asyncio.wait(leaving)
    assert statuses.keys() <= {200, 201, 402}
    moved = statuses[200] + statuses[201]
    assert moved <= check_books(tmp_path) <= moved + len(leaving)


async def worker_that_holds(watcher: LockClient) -> int:
    """The process that holds the lock of an account."""
    while True:
        for name in ACCOUNTS:
            holder = await watcher.lock(f"account:{name}").holder()
            if holder is not None and holder.pid is not None:
                return holder.pid
