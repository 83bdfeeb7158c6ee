"""Many processes read and write, and one of them dies: a writer is alone, and all are served."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.processes.crew import check_waits, let_work, most_at_once
from tests.processes.read_write import NAME

PROCESSES, TASKS, TIMES = 4, 6, 80


@dataclass(frozen=True)
class Section:
    """A task's visits to the lock; times are on the monotonic clock, which all processes share."""

    task: str
    writes: bool
    token: int
    asked: float
    entered: float
    left: float

    @classmethod
    def parse(cls, line: str) -> "Section":
        task, writes, token, *times = line.split()
        asked, entered, left = map(float, times)
        return cls(task, writes == "1", int(token), asked, entered, left)


def overlap(sections: list[Section]) -> list[tuple[Section, Section]]:
    """The pairs of simultaneous visits of which one wrote."""
    together: list[tuple[Section, Section]] = []
    under_way: list[Section] = []
    for section in sorted(sections, key=lambda section: section.entered):
        under_way = [each for each in under_way if each.left > section.entered]
        together += [(each, section) for each in under_way if each.writes or section.writes]
        under_way.append(section)
    return together


def longest_stream(readers: list[Section], writers: list[Section]) -> int:
    """The longest row of readers that came in while the same writer waited and none wrote."""
    entered = [section.entered for section in readers]
    waits = ((max(before.left, writer.asked), writer.entered) for before, writer in pairwise(writers))
    return max(sum(begin < each < end for each in entered) for begin, end in waits)


async def test_a_writer_is_alone_and_everyone_is_served(server: Server, redis: Redis, tmp_path: Path) -> None:
    lines, victim = await let_work(
        "tests.processes.read_write", server.url, tmp_path / "sections", processes=PROCESSES, tasks=TASKS, times=TIMES
    )
    sections = [Section.parse(line) for line in lines]
    served = Counter(section.task for section in sections if not section.task.startswith(f"{victim}-"))
    assert (len(served), set(served.values())) == (PROCESSES * TASKS, {TIMES})
    assert overlap(sections) == []
    assert most_at_once((each.entered, each.left, 1) for each in sections) > 1
    writers = sorted((section for section in sections if section.writes), key=lambda section: section.entered)
    assert [section.token for section in writers] == sorted(section.token for section in writers)
    readers = [section for section in sections if not section.writes]
    stream = longest_stream(readers, writers)
    print(f"at most {stream} of {len(readers)} readers in a row while a writer waited")
    # If the next writer was killed, readers go on for 0.1 s: 400 at most.
    assert stream < len(readers) / 2
    # Chance decides which writer is next.
    check_waits("writers, behind all", writers, sections, share=1)
    check_waits("readers, behind writers", readers, writers, share=0.1)
    async with LockClient(redis) as locks:
        assert await locks.read_write_lock(NAME).write.try_lock(wait=20) is not None
