"""One leader among N processes: the code of docs/how-to/recipes/leader.md."""

import asyncio
import os
import runpy
import signal
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

from aiolock import LockClient, Term, background
from aiolock._embedded_server import Server
from tests.integrations.recipes.crew import Crew
from tests.integrations.recipes.recipe import recipe
from tests.processes.store import Entry, Store
from tests.support.asgi import WebProcess, uvicorn_command
from tests.support.inside import redis_of
from tests.support.observe import until

PAGE = "recipes/leader.md"
NAME = "leader:reports"
LONG, SHORT = 60.0, 3.0
SOON = 30.0

REPORT = """
import asyncio, os
from pathlib import Path
from time import monotonic
from tests.processes.store import Store


async def report(term):
    store, count = Store(Path(os.environ["STORE"])), 0
    store.read(term.token, monotonic())
    try:
        while True:
            count += 1
            store.write(term.token, count)
            await asyncio.sleep(0.05)
    finally:
        store.left(term.token, monotonic())
"""

MAIN = """
import signal
from aiolock import LockConfig


async def main():
    leading = asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leading.cancel)
    async with LockClient.from_url("{url}", config=LockConfig(lease=float(os.environ["LEASE"]))) as locks:
        await lead(locks)


asyncio.run(main())
"""


def crew(server: Server, directory: Path, lease: float) -> Crew:
    code = recipe(PAGE, "async def lead(", server.url) + REPORT + MAIN.replace("{url}", server.url)
    return Crew(directory, code, 3, {"STORE": str(directory / "store"), "LEASE": str(lease)})


def entries(directory: Path) -> list[Entry]:
    return Store(directory / "store").entries() if (directory / "store").exists() else []


def terms(directory: Path) -> list[Entry]:
    """One entry for each time that somebody became the leader."""
    return [entry for entry in entries(directory) if entry.kind == "read"]


async def led_again(directory: Path, count: int, within: float = SOON) -> Entry:
    """Wait until that many have become leader, one after the other, and the last has written; returns the last."""

    def written() -> bool:
        begun = terms(directory)
        last = [entry for entry in entries(directory) if entry.kind == "write"][-1:]
        return len(begun) >= count and [entry.token for entry in last] == [begun[-1].token]

    await until(written, within)
    return terms(directory)[-1]


def check_one_at_a_time(directory: Path) -> None:
    """Every leader wrote with its token only before the next one did, and tokens grew."""
    begun = terms(directory)
    assert all(earlier.token < later.token for earlier, later in pairwise(begun))
    written = [entry.token for entry in entries(directory) if entry.kind in ("read", "write")]
    assert written == sorted(written)
    ends = {entry.token: entry.at for entry in entries(directory) if entry.kind == "left"}
    assert all(ends.get(earlier.token, 0) <= later.at for earlier, later in pairwise(begun))


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_leader_that_is_stopped_hands_over_at_once(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with crew(redis_server, tmp_path, LONG) as workers:
        for term in (1, 2):
            leader = await led_again(tmp_path, term)
            await all_stand(watcher)
            workers.dismiss(leader.pid)
            workers.hire()
        await led_again(tmp_path, 3, within=SOON)
    check_one_at_a_time(tmp_path)


async def all_stand(watcher: LockClient) -> None:
    """Wait until a candidate waits to be the next."""

    async def waited_for() -> bool:
        return bool(await redis_of(watcher).pubsub_channels(f"*{NAME}*"))

    await until(waited_for, within=SOON)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_leader_that_is_killed_is_followed_after_one_lease_at_most(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    with crew(redis_server, tmp_path, SHORT) as workers:
        leader = await led_again(tmp_path, 1)
        await all_stand(watcher)
        workers.dismiss(leader.pid, signal.SIGKILL)
        killed = monotonic()
        following = await led_again(tmp_path, 2)
        assert following.pid != leader.pid
        # A busy machine may take much of the five seconds.
        assert following.at - killed < SHORT + 5
    check_one_at_a_time(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_leader_that_was_paused_writes_nothing_more(redis_server: Server, tmp_path: Path) -> None:
    with crew(redis_server, tmp_path, SHORT):
        leader = await led_again(tmp_path, 1)
        os.kill(leader.pid, signal.SIGSTOP)
        following = await led_again(tmp_path, 2)
        assert following.pid != leader.pid
        os.kill(leader.pid, signal.SIGCONT)
        await until(lambda: left(tmp_path, leader.token), within=SOON)
        assert terms(tmp_path)[-1].pid == following.pid
    written = [entry.token for entry in entries(tmp_path) if entry.kind == "write"]
    assert written == sorted(written)


def left(directory: Path, token: int) -> bool:
    return any(entry.kind == "left" and entry.token == token for entry in entries(directory))


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_the_workers_of_a_web_service_have_one_leader(
    redis_server: Server, watcher: LockClient, tmp_path: Path
) -> None:
    web = recipe(PAGE, "app = FastAPI(lifespan=start)", redis_server.url) + READY
    (tmp_path / "service.py").write_text(recipe(PAGE, "async def lead(", redis_server.url) + REPORT + web)
    command = uvicorn_command("service:app", "--workers", "3", "--app-dir", str(tmp_path))
    environment = {"STORE": str(tmp_path / "store")}
    with WebProcess(command, tmp_path / "log", ready="/ready", environment=environment) as service:
        leader = await led_again(tmp_path, 1)
        await all_stand(watcher)
        os.kill(leader.pid, signal.SIGTERM)
        following = await led_again(tmp_path, 2, within=15)
        assert following.pid != leader.pid
        await asyncio.to_thread(service.stop)
        assert service.tracebacks() == []
    assert await watcher.lock(NAME).holder() is None
    check_one_at_a_time(tmp_path)


READY = """

@app.get("/ready")
async def ready() -> None: ...
"""


# In one process; what a leader promises is tested in tests/test_leader.py.


async def test_work_that_fails_lets_another_lead_and_stands_again(
    locks: LockClient, other: LockClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "leader.py").write_text(recipe(PAGE, "async def lead(", ""), "utf-8")
    terms: list[Term] = []
    fail = asyncio.Event()

    async def report(term: Term) -> None:
        terms.append(term)
        await fail.wait()
        raise ZeroDivisionError

    names = runpy.run_path(str(tmp_path / "leader.py"), {"report": report})
    async with background(names["lead"](locks)):
        await until(lambda: len(terms) == 1)
        waiting = asyncio.ensure_future(other.lock(NAME, owner="other").acquire())
        await until(lambda: other.statistics().parked == 1)
        fail.set()
        lease = await waiting
        fail.clear()
        await until(lambda: locks.statistics().parked == 1)
        await lease.release()
        await until(lambda: len(terms) == 2)
    assert "ZeroDivisionError" in caplog.text
    assert not await other.lock(NAME).locked()
