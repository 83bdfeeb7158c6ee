"""A process of the tests: some tasks that count in a file under a lock of a quorum, until they are told to end."""

import asyncio
import sys
from pathlib import Path

from redis.asyncio import Redis

from aiolock import LockClient, LockConfig
from tests.processes.store import Store
from tests.processes.worker import count


async def main(urls: str, path: Path, over: Path, tasks: int, lease: float) -> None:
    asyncio.get_running_loop().slow_callback_duration = 60
    redises = [Redis.from_url(url) for url in urls.split(",")]
    store, config = Store(path), LockConfig(lease=lease, command_timeout=1.5)
    locks = LockClient.redlock(redises, config=config, longest_lease=lease)
    async with locks, asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(count(locks, store, over))
    for redis in redises:
        await redis.aclose()


if __name__ == "__main__":
    _, urls, path, over, tasks, lease = sys.argv
    asyncio.run(main(urls, Path(path), Path(over), int(tasks), float(lease)))
