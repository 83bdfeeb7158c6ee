"""Threads of Java and tasks of Python count together, and none is inside while another is."""

import asyncio
from collections import Counter
from pathlib import Path

from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.interop.service import Redisson
from tests.interop.visits import Visits
from tests.support.observe import freed, until

NAME = "counter"
EACH = 4
# The least visits of each side: no side starves.
LEAST = 100


async def test_threads_and_tasks_that_share_a_lock_count_right(
    server: Server, redis: Redis, redisson: Redisson, tmp_path: Path
) -> None:
    visits = Visits(tmp_path)

    def enough() -> bool:
        had = Counter(visit.who for visit in visits.all())
        return had["java"] >= LEAST and had["python"] >= LEAST

    async with LockClient.from_url(server.url) as locks, asyncio.TaskGroup() as group:
        lock = locks.lock(NAME)
        tasks = [group.create_task(visits.visit_until_over(lock)) for _ in range(EACH)]
        threads = [redisson.post("visit", NAME, thread=number, directory=str(tmp_path)) for number in range(EACH)]
        try:
            await until(enough, within=60)
        finally:
            visits.end()
        had = [(await thread).value for thread in threads] + [await task for task in tasks]
    assert visits.check() == sum(had)
    await freed(redis, NAME)
