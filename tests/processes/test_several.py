"""
Many processes take several locks at once, in any order, and one of them dies: nobody waits for ever, and one task at a
time has each name.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from redis.asyncio import Redis

from aiolock._embedded_server import Server
from tests.processes.crew import check_waits, let_work
from tests.processes.several import NAMES
from tests.support.observe import freed

PROCESSES, TASKS, TIMES = 4, 8, 60


@dataclass(frozen=True)
class Section:
    """A task's visits under its locks; times are on the monotonic clock, which all processes share."""

    task: str
    asked: float
    entered: float
    left: float
    tokens: dict[str, int]

    @classmethod
    def parse(cls, line: str) -> "Section":
        task, asked, entered, left, tokens = line.split()
        pairs = (pair.split("=") for pair in tokens.split(","))
        return cls(task, float(asked), float(entered), float(left), {name: int(token) for name, token in pairs})


async def test_everyone_gets_any_of_several_locks_in_any_order(server: Server, redis: Redis, tmp_path: Path) -> None:
    lines, victim = await let_work(
        "tests.processes.several", server.url, tmp_path / "sections", processes=PROCESSES, tasks=TASKS, times=TIMES
    )
    sections = [Section.parse(line) for line in lines]
    served = Counter(section.task for section in sections if not section.task.startswith(f"{victim}-"))
    assert (len(served), set(served.values())) == (PROCESSES * TASKS, {TIMES})
    for name in NAMES:
        turns = sorted((section for section in sections if name in section.tokens), key=lambda one: one.entered)
        for one, other in pairwise(turns):
            assert one.left <= other.entered, f"two had {name} at once"
            assert one.tokens[name] < other.tokens[name]
        check_waits(f"for some names, {name} among them", turns, turns, share=0.4)
    for name in NAMES:
        await freed(redis, name)
