"""Two processes of aiohttp behind two ports, under load, disconnects, signals, and a Redis that comes and goes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from aiohttp import ClientError, ClientSession, TCPConnector

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.integrations.aiohttp_service import LEASE
from tests.support.asgi import WebProcess
from tests.support.observe import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PATIENCE = 30.0


class Fleet:
    """Two processes of the service, their ledger, and a client of each."""

    def __init__(self, server: Server, directory: Path, cancellation: str = "off") -> None:
        self._ledger = directory / "ledger"
        self._ledger.touch()
        command = ("-m", "tests.integrations.aiohttp_service", server.url, str(self._ledger), cancellation, "{port}")
        self.processes = [
            WebProcess(command, directory / f"log{number}", ready="/statistics", environment={}) for number in range(2)
        ]
        self.sessions: list[ClientSession] = []

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(asyncio.to_thread(process.__enter__) for process in self.processes))
        self.sessions = [ClientSession(process.url, connector=TCPConnector(limit=0)) for process in self.processes]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self.sessions:
            await session.close()
        for process in self.processes:
            process.__exit__(kind, error, trace)

    async def ended(self, number: int) -> int:
        """Wait until a process has ended; its status."""
        process = self.processes[number].running
        await until(lambda: process.poll() is not None, within=PATIENCE)
        return process.returncode

    async def post(self, number: int, path: str) -> int:
        """The status; 0 when the connection was closed or refused."""
        try:
            async with self.sessions[number % 2].post(path) as response:
                return response.status
        except ClientError:
            return 0

    async def until_statistics(self, number: int, **wanted: int) -> None:
        async def are_so() -> bool:
            async with self.sessions[number].get("/statistics") as response:
                now = await response.json()
            return all(now[name] == count for name, count in wanted.items())

        await until(are_so, within=PATIENCE)

    def entries(self) -> list[tuple[str, str]]:
        """The notes, in order, each with its order."""
        return [(line.split()[0], line.split()[1]) for line in self._ledger.read_text().splitlines()]

    def let_go(self, name: str) -> None:
        with self._ledger.open("a") as file:
            file.write(f"go {name} \n")


@pytest.fixture
async def outside(redis_server: Server) -> AsyncIterator[LockClient]:
    """A third party."""
    async with LockClient.from_url(redis_server.url) as client:
        yield client


def assert_no_overlap(entries: list[tuple[str, str]]) -> None:
    """Seen outside of Redis: nobody enters before the last one has left."""
    inside: set[str] = set()
    for what, order in entries:
        if what == "enter":
            assert order not in inside, f"two at once in {order}"
            inside.add(order)
        elif what == "leave":
            inside.remove(order)
    assert not inside


async def test_hundreds_of_requests_and_one_success_per_order(redis_server: Server, tmp_path: Path) -> None:
    async with Fleet(redis_server, tmp_path) as fleet:
        orders = [f"many{number}" for number in range(20)]
        many = [fleet.post(number, f"/orders/{order}/pay") for order in orders for number in range(10)]
        one = [fleet.post(number, "/orders/one/pay") for number in range(100)]
        trying = [fleet.post(number, "/orders/tried/try") for number in range(100)]
        statuses = await asyncio.gather(*many, *one, *trying)
        entries = fleet.entries()
    by_order = [Counter(statuses[start : start + 10]) for start in range(0, 200, 10)]
    assert by_order == [Counter({201: 1, 410: 9})] * 20
    assert Counter(statuses[200:300]) == Counter({201: 1, 410: 99})
    tried = Counter(statuses[300:])
    assert tried[201] == 1
    assert tried[409] > 0
    assert tried[409] + tried[410] == 99
    assert Counter(order for what, order in entries if what == "paid") == Counter([*orders, "one", "tried"])
    assert_no_overlap(entries)


@pytest.mark.parametrize("cancellation", ["on", "off"])
async def test_clients_that_disconnect(
    redis_server: Server, outside: LockClient, tmp_path: Path, cancellation: str
) -> None:
    names = [f"{cancellation}{number}" for number in range(20)]
    async with Fleet(redis_server, tmp_path, cancellation) as fleet:
        holding = [asyncio.create_task(fleet.post(0, f"/stay/{name}")) for name in names]
        await fleet.until_statistics(0, held=20)
        waiting = [asyncio.create_task(fleet.post(1, f"/stay/{name}")) for name in names]
        await fleet.until_statistics(1, parked=20)
        for request in (*holding, *waiting):
            request.cancel()
        await asyncio.wait([*holding, *waiting])
        if cancellation == "off":
            await fleet.until_statistics(0, held=20, parked=0)
            await fleet.until_statistics(1, held=0, parked=20)
            for name in names:
                fleet.let_go(name)
        for number in range(2):
            await fleet.until_statistics(number, held=0, parked=0, pending=0)
        done = Counter(what for what, _ in fleet.entries())
    # A waiter may have come in before its own client was missed.
    if cancellation == "on":
        assert done["done"] == 0
        assert 20 <= done["cancelled"] <= 40
    else:
        assert (done["done"], done["cancelled"]) == (40, 0)
    assert not any([await outside.lock(f"stay:{name}").locked() for name in names])


async def test_sigterm_while_handlers_hold_and_wait(redis_server: Server, outside: LockClient, tmp_path: Path) -> None:
    async with Fleet(redis_server, tmp_path) as fleet:
        requests = [asyncio.create_task(fleet.post(0, f"/stay/term{number // 2}")) for number in range(20)]
        requests += [asyncio.create_task(fleet.post(0, "/stay/ends"))]
        await fleet.until_statistics(0, held=11, parked=10)
        other = asyncio.create_task(fleet.post(1, "/stay/term0"))
        await fleet.until_statistics(1, parked=1)
        fleet.processes[0].running.terminate()
        fleet.let_go("ends")
        assert await fleet.ended(0) == 0, fleet.processes[0].output
        locked = [await outside.lock(f"stay:term{number}").locked() for number in range(1, 10)]
        assert not any(locked), "at the end of the process every lock is free"
        await fleet.until_statistics(1, held=1)
        fleet.let_go("term0")
        assert await other == 200
        statuses = Counter(await asyncio.gather(*requests))
    assert statuses[200] == 1, "what ended in time is told"
    assert statuses[0] + statuses[503] == 20


async def test_a_process_that_is_killed_keeps_its_locks_for_one_lease(
    redis_server: Server, outside: LockClient, tmp_path: Path
) -> None:
    async with Fleet(redis_server, tmp_path) as fleet:
        names = [f"kill{number}" for number in range(10)]
        dying = [asyncio.create_task(fleet.post(0, f"/stay/{name}")) for name in names]
        await fleet.until_statistics(0, held=10)
        waiting = [asyncio.create_task(fleet.post(1, f"/stay/{name}")) for name in names]
        await fleet.until_statistics(1, parked=10)
        fleet.processes[0].running.kill()
        await fleet.ended(0)
        left = [await outside.lock(f"stay:{name}").remaining() for name in names]
        assert all(remaining is None or remaining <= LEASE for remaining in left)
        for name in names:
            fleet.let_go(name)
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*waiting) == [200] * 10
        assert await asyncio.gather(*dying) == [0] * 10


async def test_redis_is_stopped_and_started_under_load(tmp_path: Path) -> None:
    with Server() as server:
        async with Fleet(server, tmp_path) as fleet:
            seen: list[set[int]] = [set(), set()]
            load = [asyncio.create_task(keep_trying(fleet, number, seen[number % 2])) for number in range(20)]
            await until(lambda: all(201 in statuses for statuses in seen), within=PATIENCE)
            server.stop()
            await until(lambda: all(503 in statuses for statuses in seen), within=PATIENCE)
            server.start()
            for statuses in seen:
                statuses.clear()
            await until(lambda: all(201 in statuses for statuses in seen), within=PATIENCE)
            for statuses in seen:
                statuses.clear()
            await until(lambda: all(201 in statuses for statuses in seen), within=PATIENCE)
            assert all(statuses <= {201, 409, 503} for statuses in seen)
            for task in load:
                task.cancel()
            await asyncio.wait(load)
            assert not any(process.tracebacks() for process in fleet.processes)


async def keep_trying(fleet: Fleet, number: int, statuses: set[int]) -> None:
    """Pay one order after the other."""
    order = 0
    while True:
        order += 1
        statuses.add(await fleet.post(number, f"/orders/load{number}-{order}/try"))
