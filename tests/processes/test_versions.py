"""A fleet in which half of the processes run an earlier version: both versions share every primitive."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from aiolock import LockClient
from aiolock._embedded_server import Server
from benchmarks import older
from tests.processes.crew import BUSY, LEASE, let_work, most_at_once
from tests.processes.versions import KIND, LATCH, MOST
from tests.support.history import needs_commit
from tests.support.trees import PACKAGE

# A fleet may still run this version; after the first release, it is the release before.
EARLIER = "86abb29"
PROCESSES, TASKS, TIMES = 4, 3, 15
pytestmark = needs_commit(EARLIER)


class Visit(NamedTuple):
    """A line of the file, as the processes write it."""

    task: str
    version: str
    amount: str
    asked: str
    entered: str
    left: str


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of that version."""
    found = older.find(EARLIER, tmp_path_factory.mktemp("earlier"))
    assert isinstance(found, Path), found
    return found


async def work_of_both(earlier: Path, server: Server, folder: Path) -> tuple[list[str], int]:
    """The lines that processes of both versions write, and the process id of an earlier one that was killed."""
    return await let_work(
        "tests.processes.versions",
        server.url,
        folder / "sections",
        processes=PROCESSES,
        tasks=TASKS,
        times=TIMES,
        roots=(earlier, PACKAGE.parent),
    )


@pytest.mark.parametrize("kind", MOST)
async def test_two_versions_exclude_each_other_and_go_on(
    kind: str, earlier: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KIND, kind)
    async with LockClient.from_url(server.url) as locks:
        await locks.count_down_latch(LATCH).try_set_count(PROCESSES * TASKS * TIMES)
        lines, victim = await work_of_both(earlier, server, tmp_path)
        # The killed process has counted down, too.
        assert await locks.count_down_latch(LATCH).wait(BUSY)
    visits = [Visit(*line.split()) for line in lines]
    served = Counter((each.task, each.version) for each in visits if not each.task.startswith(f"{victim}-"))
    assert (len(served), set(served.values())) == (PROCESSES * TASKS, {TIMES})
    assert Counter(version for _, version in served) == {
        version: PROCESSES * TASKS / 2 for version in ("earlier", "ours")
    }
    assert 1 <= most_at_once((float(each.entered), float(each.left), int(each.amount)) for each in visits) <= MOST[kind]
    assert max(float(each.entered) - float(each.asked) for each in visits) < LEASE + BUSY


async def test_two_versions_run_the_body_of_a_once_one_time(
    earlier: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KIND, "once")
    lines, _ = await work_of_both(earlier, server, tmp_path)
    did: defaultdict[str, set[str]] = defaultdict(set)
    for _, _, key, who in map(str.split, lines):
        did[key].add(who)
    assert [key for key, processes in did.items() if len(processes) > 1] == []
