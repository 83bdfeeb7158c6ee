"""uvicorn with two workers: many requests, clients that leave, workers that stop or die, and a Redis that dies."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic

import httpx
import pytest

from aiolock import AsyncRLock, LockClient
from aiolock._embedded_server import Server
from tests.processes.store import Store
from tests.support.asgi import WebProcess, uvicorn_command
from tests.support.inside import redis_of
from tests.support.observe import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LONG, SHORT = 60.0, 3.0
SOON = 30.0


@contextmanager
def service(
    redis: Server, path: Path, *options: str, workers: int = 2, lease: float = LONG, patience: float = 10
) -> Iterator[WebProcess]:
    settings = {"REDIS_URL": redis.url, "DIRECTORY": str(path), "LEASE": str(lease), "COMMAND_TIMEOUT": str(patience)}
    command = uvicorn_command("tests.integrations.fastapi.service:app", "--workers", str(workers), *options)
    with WebProcess(command, path / "log", ready="/ready", environment=settings) as running:
        yield running


async def nothing_locked(watcher: LockClient) -> bool:
    """Whether none of the service's locks is held."""
    return not [key for kind in ("order", "counter", "held") for key in await redis_of(watcher).keys(f"{kind}:*")]


def check_alone(path: Path) -> int:
    """Check that nobody who counted in the file met another, and return how many have counted."""
    entries = Store(path).entries()
    counts = [entry.count for entry in entries if entry.kind == "write"]
    assert counts == list(range(1, len(counts) + 1))
    entered = sorted((entry for entry in entries if entry.kind == "read"), key=lambda entry: entry.at)
    left = {entry.token: entry.at for entry in entries if entry.kind == "left"}
    assert all(left[earlier.token] < later.at for earlier, later in pairwise(entered))
    assert all(earlier.token < later.token for earlier, later in pairwise(entered))
    return len(counts)


async def test_hundreds_of_requests_at_once(redis_server: Server, watcher: LockClient, tmp_path: Path) -> None:
    orders, each = 30, 10
    same, different = 150, 150
    with service(redis_server, tmp_path) as running:
        async with running.client() as client:
            payments = [client.post(f"/orders/{number % orders}/pay") for number in range(orders * each)]
            counting = [client.post("/counters/same") for _ in range(same)]
            counting += [client.post(f"/counters/{number}") for number in range(different)]
            answers = await asyncio.gather(*payments, *counting)
        paid, counted = answers[: len(payments)], answers[len(payments) :]
        assert Counter(answer.status_code for answer in counted) == {200: same + different}
        assert {answer.status_code for answer in paid} <= {200, 201, 409}
        successes = Counter(answer.url.path for answer in paid if answer.status_code == 201)
        assert successes == {f"/orders/{number}/pay": 1 for number in range(orders)}
        assert check_alone(tmp_path / "counter-same") == same
        assert all(check_alone(tmp_path / f"counter-{number}") == 1 for number in range(different))
        assert len({answer.json() for answer in counted}) == 2
        assert running.tracebacks() == []
    assert await nothing_locked(watcher)


async def test_clients_that_leave_in_the_middle(redis_server: Server, watcher: LockClient, tmp_path: Path) -> None:
    with service(redis_server, tmp_path) as running:
        async with running.client() as client:
            held = asyncio.create_task(client.post("/hold/it"))
            await until(watcher.lock("held:it").locked, within=SOON)
            others = [asyncio.create_task(client.post("/hold/it", params={"until": "over"})) for _ in range(20)]
            counting = [asyncio.create_task(client.post("/counters/same")) for _ in range(100)]
            await until(lambda: sum(task.done() for task in counting) > 10, within=SOON)
            leaving = [*counting[::2], *others[::2], held]
            for task in leaving:
                task.cancel()
            await asyncio.wait(leaving)
            (tmp_path / "never").touch()
            (tmp_path / "over").touch()
            staying = await asyncio.gather(*counting[1::2], *others[1::2])
            assert {answer.status_code for answer in staying} == {200}
            await until(lambda: nothing_locked(watcher), within=SOON)
        assert check_alone(tmp_path / "counter-same") >= 50
        assert running.tracebacks() == []


async def test_a_worker_that_is_killed_holds_for_one_lease_at_most(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    lock = watcher.lock("held:it")
    with service(redis_server, tmp_path, lease=SHORT) as running:
        async with running.client() as client:
            held = asyncio.create_task(client.post("/hold/it"))
            os.kill(await pid_of_holder(lock), signal.SIGKILL)
            killed = monotonic()
            with pytest.raises(httpx.TransportError):
                await held
            (tmp_path / "never").touch()
            async with lock.hold(wait=SOON):
                # A busy machine may take much of the five seconds.
                assert monotonic() - killed < SHORT + 5
            assert (await client.post("/hold/it")).is_success


async def pid_of_holder(lock: AsyncRLock) -> int:
    while (holder := await lock.holder()) is None or holder.pid is None:
        await asyncio.sleep(0.01)
    return holder.pid


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_forced_shutdown_lets_handlers_roll_back_under_their_locks_and_leaves_nothing_locked(
    workers: int, redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with service(redis_server, tmp_path, "--timeout-graceful-shutdown", "1", workers=workers) as running:
        async with running.client() as client:
            requests = [asyncio.create_task(client.post(f"/rollback/{number % 10}")) for number in range(40)]
            await until(lambda: held_and_waited_for(watcher, 10), within=SOON)
            await asyncio.to_thread(running.stop)
            assert len(list(tmp_path.glob("rolled-back-*"))) == 10
            assert await nothing_locked(watcher)
            ended = await asyncio.gather(*requests, return_exceptions=True)
        # uvicorn answers so.
        assert {answer.status_code for answer in ended if isinstance(answer, httpx.Response)} == {500}


async def test_a_second_ctrl_c_leaves_nothing_locked(redis_server: Server, watcher: LockClient, tmp_path: Path) -> None:
    """After a second Ctrl-C, uvicorn does not even end the lifespan."""
    with service(redis_server, tmp_path, workers=1) as running:
        async with running.client() as client:
            requests = [asyncio.create_task(client.post(f"/hold/{number % 10}")) for number in range(40)]
            await until(lambda: held_and_waited_for(watcher, 10), within=SOON)
            running.running.send_signal(signal.SIGINT)
            await until(lambda: "Waiting for connections to close" in running.output, within=SOON)
            await asyncio.to_thread(running.stop, signal.SIGINT)
            assert await nothing_locked(watcher)
            await asyncio.gather(*requests, return_exceptions=True)


async def held_and_waited_for(watcher: LockClient, count: int) -> bool:
    """Whether that many locks are held, and each has a waiter for messages."""
    channels = await redis_of(watcher).pubsub_channels("*held:*")
    return len(channels) == len(await redis_of(watcher).keys("held:*")) == count


async def test_a_graceful_shutdown_lets_handlers_finish(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with service(redis_server, tmp_path) as running:
        async with running.client() as client:
            answer = asyncio.create_task(client.post("/hold/it"))
            await until(watcher.lock("held:it").locked, within=SOON)
            stopping = asyncio.create_task(asyncio.to_thread(running.stop))
            await until(lambda: "Waiting for connections to close" in running.output, within=SOON)
            (tmp_path / "never").touch()
            assert (await answer).status_code == 200
            await stopping
        assert running.running.returncode == 0
        assert running.tracebacks() == []
        assert await nothing_locked(watcher)


async def test_redis_stops_and_starts_under_load(tmp_path: Path) -> None:
    statuses: Counter[int] = Counter()
    with Server() as redis, service(redis, tmp_path, patience=1) as running:
        async with running.client() as client:
            load = [asyncio.create_task(keep_paying(client, number, statuses)) for number in range(20)]
            await until(lambda: statuses[201] > 50, within=SOON)
            redis.stop()
            await until(lambda: statuses[503] > 20, within=SOON)
            redis.start()
            paid = statuses[201]
            await until(lambda: statuses[201] > paid + 50, within=SOON)
            for task in load:
                task.cancel()
            await asyncio.wait(load)
        assert statuses.keys() <= {201, 503}
        assert running.output.count("Started server process") == 2


async def keep_paying(client: httpx.AsyncClient, number: int, statuses: Counter[int]) -> None:
    """Pay orders that no other client pays, one after the other."""
    while True:
        answer = await client.post(f"/orders/{number}/pay")
        number += 1000
        statuses[answer.status_code] += 1


async def test_a_handler_whose_lock_is_lost_is_cut_short(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with service(redis_server, tmp_path, lease=SHORT) as running:
        async with running.client() as client:
            answer = asyncio.create_task(client.post("/hold/it"))
            await until(watcher.lock("held:it").locked, within=SOON)
            await redis_of(watcher).delete("held:it")
            lost = await answer
        assert (lost.status_code, lost.headers["retry-after"]) == (503, "1")
        assert "half done" in lost.json()["detail"]
        assert running.tracebacks() == []


async def test_a_redis_that_is_gone_for_good_cuts_a_handler_short(tmp_path: Path) -> None:
    with Server() as redis, service(redis, tmp_path, lease=SHORT, patience=1) as running:
        async with running.client() as client:
            answer = asyncio.create_task(client.post("/hold/it"))
            async with LockClient.from_url(redis.url) as watcher:
                await until(watcher.lock("held:it").locked, within=SOON)
            redis.stop()
            assert (await answer).status_code == 503
