"""Many processes share three permits that nobody owns, and count their sections down while others wait for that."""

import asyncio
import sys
from collections import Counter
from pathlib import Path

from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.processes.counted import LATCH, NAME, PERMITS
from tests.processes.crew import most_at_once
from tests.processes.test_permits import Section

PROCESSES, TASKS, TIMES = 4, 6, 8


async def test_never_more_than_there_are_permits_and_all_sections_are_counted(
    server: Server, redis: Redis, tmp_path: Path
) -> None:
    path = tmp_path / "sections"
    command = (sys.executable, "-m", "tests.processes.counted", server.url, str(path), str(TASKS), str(TIMES))
    async with LockClient(redis) as locks, asyncio.timeout(60):
        latch = locks.count_down_latch(LATCH)
        assert await latch.try_set_count(PROCESSES * TASKS * TIMES)
        waiting = [asyncio.create_task(locks.count_down_latch(LATCH).wait()) for _ in range(10)]
        workers = [await asyncio.create_subprocess_exec(*command) for _ in range(PROCESSES)]
        assert await asyncio.gather(*(worker.wait() for worker in workers)) == [0] * PROCESSES
        assert await asyncio.gather(*waiting) == [True] * 10
        assert (await latch.count(), await locks.semaphore(NAME).available()) == (0, PERMITS)
    sections = [Section.parse(line) for line in path.read_text().splitlines()]
    served = Counter(section.task for section in sections)
    assert (len(served), set(served.values())) == (PROCESSES * TASKS, {TIMES})
    assert most_at_once((each.entered, each.left, each.permits) for each in sections) == PERMITS
