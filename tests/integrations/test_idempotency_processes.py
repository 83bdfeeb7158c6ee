"""Real services are killed and stopped in the middle of a request with an `Idempotency-Key`, or get many at once."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from aiolock._embedded_server import Server
from tests.support.asgi import WebProcess, uvicorn_command
from tests.support.observe import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

KEY = {"Idempotency-Key": '"8e03978e-40d5-43dd-bc93-6894a57f9324"'}
SOON = 30.0
COMMANDS = {
    "fastapi": uvicorn_command("tests.integrations.idempotent_services:app"),
    "aiohttp": ["-m", "tests.integrations.idempotent_services", "{port}"],
}

Start = Callable[..., AbstractContextManager[WebProcess]]


@pytest.fixture(params=COMMANDS)
def start(request: pytest.FixtureRequest, server: Server, tmp_path: Path, redis: object) -> Start:
    def web_process(log: str, lease: float = 30.0) -> WebProcess:
        settings = {"REDIS_URL": server.url, "DIRECTORY": str(tmp_path), "LEASE": str(lease)}
        return WebProcess(COMMANDS[request.param], tmp_path / log, ready="/ready", environment=settings)

    return web_process


def files(path: Path, kind: str) -> list[str]:
    return sorted(each.name for each in path.glob(f"card-{kind}*"))


async def post(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/payments/card", headers=KEY, json={"amount": 1})


async def test_a_killed_process_leaves_its_request_to_another_one(start: Start, tmp_path: Path) -> None:
    with start("one", lease=2.0) as one, start("two") as two:
        async with one.client() as first, two.client() as second:
            lost = asyncio.create_task(post(first))
            await until(lambda: bool(files(tmp_path, "begun")), within=SOON)
            assert (await post(second)).status_code == 409
            os.killpg(one.running.pid, signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                await lost
            (tmp_path / "card-go").touch()
            while (answer := await post(second)).status_code == 409:
                assert not files(tmp_path, "paid")
            again = await post(second)
    assert (answer.status_code, answer.json()["paid"]) == (201, "card")
    assert (again.status_code, again.content, again.headers["idempotent-replayed"]) == (201, answer.content, "true")
    assert len(files(tmp_path, "paid")) == 1


async def test_a_client_that_leaves_finds_the_answer_in_another_process(start: Start, tmp_path: Path) -> None:
    with start("one") as one, start("two") as two:
        async with two.client() as second:
            async with one.client() as first:
                left = asyncio.create_task(post(first))
                await until(lambda: bool(files(tmp_path, "begun")), within=SOON)
                left.cancel()
                await asyncio.wait([left])
            (tmp_path / "card-go").touch()
            while (answer := await post(second)).status_code == 409:
                await asyncio.sleep(0.01)
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
    assert len(files(tmp_path, "paid")) == 1


async def test_many_requests_to_two_processes_are_one_payment(start: Start, tmp_path: Path) -> None:
    (tmp_path / "card-go").touch()
    with start("one") as one, start("two") as two:
        async with one.client() as first, two.client() as second:
            answers = await asyncio.gather(*(post(client) for client in (first, second) for _ in range(50)))
        assert one.tracebacks() + two.tracebacks() == []
    assert set(Counter(each.status_code for each in answers)) <= {201, 409}
    assert len({each.content for each in answers if each.status_code == 201}) == 1
    assert len(files(tmp_path, "paid")) == 1
