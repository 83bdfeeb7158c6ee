"""Many processes take several locks at once, in whatever order: nobody waits for ever, and each name is one task's."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from redis.asyncio import Redis

from aiolock._embedded_server import Server
from tests.processes.several import NAMES

PROCESSES, TASKS, TIMES = 4, 8, 20


@dataclass(frozen=True)
class Section:
    """What a task did under its locks; times are on the monotonic clock, which all processes share."""

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


async def test_everyone_gets_any_of_several_locks_in_any_order(
    server: Server, redis: Redis, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "sections"
    arguments = ["-m", "tests.processes.several", server.url, str(path), str(TASKS), str(TIMES)]
    workers = [await asyncio.create_subprocess_exec(sys.executable, *arguments) for _ in range(PROCESSES)]
    try:
        assert await asyncio.gather(*(worker.wait() for worker in workers)) == [0] * PROCESSES
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
    sections = [Section.parse(line) for line in path.read_text().splitlines()]
    served = Counter(section.task for section in sections)
    assert (len(served), set(served.values())) == (PROCESSES * TASKS, {TIMES})
    for name in NAMES:
        turns = sorted((section for section in sections if name in section.tokens), key=lambda one: one.entered)
        for one, other in pairwise(turns):
            assert one.left <= other.entered, f"two had {name} at once"
            assert one.tokens[name] < other.tokens[name]
    record_property("longest wait", max(section.entered - section.asked for section in sections))
    assert not await redis.exists(*NAMES)
