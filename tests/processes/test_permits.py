"""Many processes share three permits, and one of them dies: never more than three at once, and all are served."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.processes.crew import check_waits, let_work, most_at_once
from tests.processes.permits import NAME, PERMITS

PROCESSES, TASKS, TIMES = 4, 6, 60


@dataclass(frozen=True)
class Section:
    """A task's visits with its permits; times are on the monotonic clock, which all processes share."""

    task: str
    permits: int
    asked: float
    entered: float
    left: float

    @classmethod
    def parse(cls, line: str) -> "Section":
        task, permits, *times = line.split()
        asked, entered, left = map(float, times)
        return cls(task, int(permits), asked, entered, left)


async def test_never_more_than_there_are_permits_and_everyone_is_served(
    server: Server, redis: Redis, tmp_path: Path
) -> None:
    lines, victim = await let_work(
        "tests.processes.permits", server.url, tmp_path / "sections", processes=PROCESSES, tasks=TASKS, times=TIMES
    )
    sections = [Section.parse(line) for line in lines]
    served = Counter(section.task for section in sections if not section.task.startswith(f"{victim}-"))
    assert (len(served), set(served.values())) == (PROCESSES * TASKS, {TIMES})
    assert most_at_once((each.entered, each.left, each.permits) for each in sections) == PERMITS
    for permits in (1, PERMITS):
        waits = [section for section in sections if section.permits == permits]
        check_waits(f"for {permits} of {PERMITS} permits", waits, sections, share=0.4)
    async with LockClient(redis) as locks:
        semaphore = locks.semaphore(NAME)
        assert await semaphore.try_acquire(permits=PERMITS, wait=20) is not None
