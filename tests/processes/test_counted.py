"""
Many processes share four permits that nobody owns, one of them dies with a permit that never comes back by itself, and
the others count their sections down while somebody waits for that.
"""

import asyncio
from collections import Counter
from pathlib import Path

from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.processes.counted import LATCH, NAME, PERMITS
from tests.processes.crew import let_work, most_at_once
from tests.processes.test_permits import Section

PROCESSES, TASKS, TIMES = 4, 6, 12


async def test_a_permit_dies_with_its_process_and_all_sections_are_counted(
    server: Server, redis: Redis, tmp_path: Path
) -> None:
    async with LockClient(redis) as locks, asyncio.timeout(60):
        latch, semaphore = locks.count_down_latch(LATCH), locks.counting_semaphore(NAME)
        assert await latch.try_set_count(PROCESSES * TASKS * TIMES)
        waiting = [asyncio.create_task(locks.count_down_latch(LATCH).wait()) for _ in range(10)]
        lines, victim = await let_work(
            "tests.processes.counted", server.url, tmp_path / "sections", processes=PROCESSES, tasks=TASKS, times=TIMES
        )
        assert await asyncio.gather(*waiting) == [True] * 10
        assert await latch.count() == 0
        assert await semaphore.available() == PERMITS - 1
        await semaphore.add_permits(1)
        assert await semaphore.drain() == PERMITS
    sections = [Section.parse(line) for line in lines]
    served = Counter(section.task for section in sections if not section.task.startswith(f"{victim}-"))
    assert (len(served), set(served.values())) == (PROCESSES * TASKS, {TIMES})
    assert most_at_once((each.entered, each.left, each.permits) for each in sections) == PERMITS
    print(f"waited for {max(each.entered - each.asked for each in sections):.2f} s at most")
