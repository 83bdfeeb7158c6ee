"""A job once per fleet and slot: the code of docs/how-to/recipes/periodic-job.md."""

import asyncio
import runpy
import signal
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, Lease, LeaseLostError, LockClient, LockConfig, background
from aiolock._embedded_server import Server
from aiolock.testing import failing_commands, lose
from tests.integrations.recipes.crew import Crew
from tests.integrations.recipes.recipe import recipe
from tests.support.observe import until

PAGE = "recipes/periodic-job.md"
SOON = 30.0  # Seconds; a machine that is busy takes some.
HOUR = 3600

MAIN = """
import os
from pathlib import Path
from aiolock import LockConfig

LEDGER = Path(os.environ["LEDGER"])


def note(what, slot):
    with LEDGER.open("a") as file:
        file.write(f"{what} {slot} {os.getpid()}\\n")


async def job(due, lease):
    for slot in due:
        note("begin", slot)
        while LEDGER.with_suffix(".hold").exists():
            await asyncio.sleep(0.01)
        note("end", slot)


async def main():
    async with Redis.from_url("{url}") as redis, LockClient(redis, config=LockConfig(lease=2)) as locks:
        await run_periodically(locks, redis, "report", 1, job)


asyncio.run(main())
"""


class Ledger:
    """What the jobs wrote: (what, slot, process id)."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "ledger"
        self.path.touch()
        self._hold = self.path.with_suffix(".hold")

    def lines(self) -> list[tuple[str, int, int]]:
        *whole, _ = self.path.read_text().split("\n")
        parts = [line.split() for line in whole]
        return [(what, int(slot), int(pid)) for what, slot, pid in parts]

    def slots(self) -> list[int]:
        """Those that were worked to their end, in this order."""
        return [slot for what, slot, _ in self.lines() if what == "end"]

    async def more(self, count: int) -> None:
        """Wait until so many more slots have been worked."""
        wanted = len(self.slots()) + count
        await until(lambda: len(self.slots()) >= wanted, within=SOON)

    def hold(self) -> None:
        """Let the jobs that begin from now on wait."""
        self._hold.touch()

    def go(self) -> None:
        self._hold.unlink()


def crew(server: Server, directory: Path, count: int) -> Crew:
    code = recipe(PAGE, "async def run_periodically", server.url) + MAIN.replace("{url}", server.url)
    return Crew(directory, code, count, {"LEDGER": str(directory / "ledger")})


async def is_marked(server: Server) -> bool:
    """Whether any slot is marked as done."""
    async with Redis.from_url(server.url) as redis:
        return bool(await redis.exists("slots:done"))


def check_each_slot_once(slots: list[int]) -> None:
    assert slots == list(range(slots[0], slots[0] + len(slots)))


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("watcher")
async def test_each_slot_is_worked_once_by_the_whole_fleet(redis_server: Server, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with crew(redis_server, tmp_path, 4):
        await ledger.more(6)
    check_each_slot_once(ledger.slots())
    assert all(
        (first[0], second[0]) == ("begin", "end") and first[1:] == second[1:]
        for first, second in zip(ledger.lines()[::2], ledger.lines()[1::2], strict=False)
    )


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("watcher")
async def test_a_worker_that_dies_in_the_middle_is_followed_by_another(redis_server: Server, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with crew(redis_server, tmp_path, 3) as workers:
        await ledger.more(1)
        ledger.hold()
        await until(lambda: ledger.lines()[-1][0] == "begin", within=SOON)
        _, slot, pid = ledger.lines()[-1]
        workers.dismiss(pid, signal.SIGKILL)
        ledger.go()
        await until(lambda: slot in ledger.slots(), within=SOON)
        await ledger.more(2)
    check_each_slot_once(ledger.slots())
    (end,) = [line for line in ledger.lines() if line[:2] == ("end", slot)]
    assert end[2] != pid


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("watcher")
async def test_slots_that_nobody_was_there_for_are_due_when_somebody_is(redis_server: Server, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with crew(redis_server, tmp_path, 2):
        await ledger.more(1)
        await until(lambda: is_marked(redis_server), within=SOON)  # Else the next crew's first slot is a new job's.
    before = len(ledger.slots())
    await asyncio.sleep(3)
    with crew(redis_server, tmp_path, 2):
        await ledger.more(4)
    check_each_slot_once(ledger.slots())
    made_up_for = ledger.lines()[2 * before :][:6]
    assert len({pid for _, _, pid in made_up_for}) == 1  # In one run of the job.


# In one process.

Run = Callable[..., Coroutine[Any, Any, None]]


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "job.py").write_text(recipe(PAGE, "async def run_periodically", ""), "utf-8")
    return runpy.run_path(str(tmp_path / "job.py"))


@pytest.fixture
def run(names: dict[str, Any]) -> Run:
    """Run what is due of the job of each hour."""
    return names["run_what_is_due"]  # type: ignore[no-any-return]


class Worked:
    """A job that notes what it was given."""

    def __init__(self) -> None:
        self.due: list[range] = []

    async def __call__(self, due: range, lease: Lease) -> None:
        self.due.append(due)


async def test_those_who_come_while_it_is_worked_find_nothing_left(
    run: Run, locks: LockClient, other: LockClient, redis: Redis
) -> None:
    worked, going_on = Worked(), asyncio.Event()

    async def job(due: range, lease: Lease) -> None:
        await worked(due, lease)
        await going_on.wait()

    first = asyncio.create_task(run(locks, redis, "report", HOUR, job))
    await until(lambda: len(worked.due) == 1)
    second = asyncio.create_task(run(other, redis, "report", HOUR, job))
    await until(lambda: other.statistics().parked == 1)
    going_on.set()
    await asyncio.gather(first, second)
    assert [len(due) for due in worked.due] == [1]


async def test_a_job_that_fails_is_given_to_the_next(run: Run, locks: LockClient, redis: Redis) -> None:
    async def fail(due: range, lease: Lease) -> None:
        raise ZeroDivisionError

    worked = Worked()
    with pytest.raises(ZeroDivisionError):
        await run(locks, redis, "report", HOUR, fail)
    await run(locks, redis, "report", HOUR, worked)
    assert len(worked.due) == 1


async def test_a_job_that_loses_its_lock_does_not_count_as_done(run: Run, locks: LockClient, redis: Redis) -> None:
    began = asyncio.Event()

    async def job(due: range, lease: Lease) -> None:
        began.set()
        await asyncio.sleep(60)

    worked = Worked()
    task = asyncio.create_task(run(locks, redis, "report", HOUR, job))
    await began.wait()
    await lose(locks, "job:report")
    with pytest.raises(LeaseLostError):
        await task
    await run(locks, redis, "report", HOUR, worked)
    assert len(worked.due) == 1


async def test_a_job_that_blocked_until_its_lock_was_lost_does_not_count_as_done(
    names: dict[str, Any], run: Run, redis: Redis
) -> None:
    async def block(due: range, lease: Lease) -> None:
        time.sleep(lease.remaining + 0.1)

    async with LockClient(redis, config=LockConfig(lease=0.5)) as hasty:
        with pytest.raises(LeaseLostError):
            await run(hasty, redis, "report", HOUR, block)
    assert await redis.zscore(names["DONE"], "report") is None


async def test_a_mark_never_goes_back(names: dict[str, Any], run: Run, locks: LockClient, redis: Redis) -> None:
    """A worker was paused between its last check and its mark, for longer than its lease."""

    async def overtaken(due: range, lease: Lease) -> None:
        await redis.zadd(names["DONE"], {"report": due[-1] + 5})
        await worked(due, lease)

    worked = Worked()
    await run(locks, redis, "report", HOUR, overtaken)
    assert await redis.zscore(names["DONE"], "report") == worked.due[0][-1] + 5
    await run(locks, redis, "report", HOUR, worked)
    assert len(worked.due) == 1


async def test_jobs_of_other_names_have_slots_of_their_own(run: Run, locks: LockClient, redis: Redis) -> None:
    worked = Worked()
    await run(locks, redis, "report", HOUR, worked)
    await run(locks, redis, "backup", HOUR, worked)
    assert len(worked.due) == 2


async def test_it_goes_on_when_redis_has_failed(
    names: dict[str, Any], locks: LockClient, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    worked = Worked()
    with failing_commands(locks):
        async with background(names["run_periodically"](locks, redis, "report", 1, worked)):
            await until(lambda: len(worked.due) > 1, within=SOON)
    assert BackendError.__name__ in caplog.text
    assert all(earlier[-1] < later[0] for earlier, later in pairwise(worked.due))


async def test_it_ends_in_the_midst_of_its_first_command(
    names: dict[str, Any], locks: LockClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Python 3.11 redis-py swallows a cancellation that comes at the wrong turn of the loop."""
    monkeypatch.setattr("aiolock._core.background._TO_CLEAN_UP", 0.02)
    for turns in range(40):
        async with asyncio.timeout(SOON), background(names["run_periodically"](locks, redis, "report", 60, Worked())):
            for _ in range(turns):
                await asyncio.sleep(0)
