"""A job once per fleet and slot: the code of docs/how-to/recipes/periodic-job.md."""

import asyncio
import runpy
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from aiolock import BackendError, LockClient, Slot, background
from aiolock._embedded_server import Server
from aiolock.testing import failing_commands
from tests.integrations.recipes.crew import Crew
from tests.integrations.recipes.recipe import recipe
from tests.support.observe import until

PAGE = "recipes/periodic-job.md"
SOON = 30.0
HOUR = 3600

MAIN = """
import os
from pathlib import Path
from aiolock import LockConfig

LEDGER = Path(os.environ["LEDGER"])


def note(what, slot):
    with LEDGER.open("a") as file:
        file.write(f"{what} {slot} {os.getpid()}\\n")


async def job(slot):
    note("begin", slot.number)
    while LEDGER.with_suffix(".hold").exists():
        await asyncio.sleep(0.01)
    note("end", slot.number)


async def main():
    async with LockClient.from_url("{url}", config=LockConfig(lease=2)) as locks:
        await run_periodically(locks, "report", 1, job)


asyncio.run(main())
"""


class Ledger:
    """The jobs' entries: (text, slot, process id)."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "ledger"
        self.path.touch()
        self._hold = self.path.with_suffix(".hold")

    def lines(self) -> list[tuple[str, int, int]]:
        *whole, _ = self.path.read_text().split("\n")
        parts = [line.split() for line in whole]
        return [(what, int(slot), int(pid)) for what, slot, pid in parts]

    def slots(self) -> list[int]:
        """The slots that were worked to their end, in this order."""
        return [slot for what, slot, _ in self.lines() if what == "end"]

    async def more(self, count: int) -> None:
        """Wait until that many more slots have been worked."""
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


def check_each_slot_once(slots: list[int]) -> None:
    """In order; a busy machine may miss one."""
    assert slots == sorted(set(slots))


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


# In one process.

Run = Callable[..., Coroutine[Any, Any, None]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "job.py").write_text(recipe(PAGE, "async def run_periodically", ""), "utf-8")
    return runpy.run_path(str(tmp_path / "job.py"))["run_periodically"]  # type: ignore[no-any-return]


class Worked:
    """A job that notes what it was given."""

    def __init__(self, *errors: Exception) -> None:
        self.slots: list[int] = []
        self.go = asyncio.Event()
        self._errors = list(errors)

    async def __call__(self, slot: Slot) -> None:
        self.slots.append(slot.number)
        await self.go.wait()
        if self._errors:
            raise self._errors.pop()


async def test_workers_that_come_while_the_job_runs_find_it_done(
    run: Run, locks: LockClient, other: LockClient
) -> None:
    worked = Worked()
    async with background(*(run(client, "report", HOUR, worked) for client in (locks, other))):
        await until(lambda: locks.statistics().parked + other.statistics().parked == 1)
        worked.go.set()
        await until(lambda: locks.statistics().held + other.statistics().held + other.statistics().parked == 0)
    assert len(worked.slots) == len(set(worked.slots))


async def test_a_job_that_fails_is_given_to_the_next(run: Run, locks: LockClient, other: LockClient) -> None:
    worked = Worked(ZeroDivisionError())
    async with background(*(run(client, "report", HOUR, worked) for client in (locks, other))):
        await until(lambda: locks.statistics().parked + other.statistics().parked == 1)
        worked.go.set()
        await until(lambda: len(worked.slots) >= 2)


async def test_jobs_of_other_names_have_slots_of_their_own(run: Run, locks: LockClient) -> None:
    worked = Worked()
    async with background(*(run(locks, name, HOUR, worked) for name in ("report", "backup"))):
        await until(lambda: len(worked.slots) == 2)


async def test_it_goes_on_when_redis_has_failed(run: Run, locks: LockClient, caplog: pytest.LogCaptureFixture) -> None:
    worked = Worked()
    worked.go.set()
    with failing_commands(locks):
        async with background(run(locks, "report", 1, worked)):
            await until(lambda: len(worked.slots) > 1, within=SOON)
    assert BackendError.__name__ in caplog.text
    assert worked.slots == sorted(set(worked.slots))


async def test_it_ends_in_the_midst_of_its_first_command(
    run: Run, locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Python 3.11 redis-py swallows a cancellation that comes at the wrong turn of the loop."""
    monkeypatch.setattr("aiolock._helpers.background._TO_CLEAN_UP", 0.02)
    for turns in range(40):
        async with asyncio.timeout(SOON), background(run(locks, "report", 60, Worked())):
            for _ in range(turns):
                await asyncio.sleep(0)
