"""A process of the test: some tasks that count in a file under one lock, until they are told that it is over."""

import asyncio
import sys
from pathlib import Path
from time import monotonic

from aiolock import BackendError, LeaseLostError, LockClient, LockConfig
from tests.processes.store import StaleTokenError, Store

NAME = "counter"
WORK = 0.002


async def count(locks: LockClient, store: Store, over: Path) -> None:
    while not over.exists():
        try:
            await count_once(locks, store)
        except (LeaseLostError, StaleTokenError, BackendError):
            # Another task had the lock, or may have had it, so the count was not written.
            await asyncio.sleep(0)


async def count_once(locks: LockClient, store: Store) -> None:
    async with locks.lock(NAME) as lease:
        entered = monotonic()
        lease.check()
        seen = store.read(lease.token, entered)
        await asyncio.sleep(WORK)
        store.write(lease.token, seen + 1)
        left = monotonic()
        # The lock is still held, so that it was held at *left*.
        lease.check()
        store.left(lease.token, left)


async def main(url: str, path: Path, over: Path, tasks: int, lease: float) -> None:
    asyncio.get_running_loop().slow_callback_duration = 60
    store = Store(path)
    async with LockClient.from_url(url, config=LockConfig(lease=lease)) as locks, asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(count(locks, store, over))


if __name__ == "__main__":
    _, url, path, over, tasks, lease = sys.argv
    asyncio.run(main(url, Path(path), Path(over), int(tasks), float(lease)))
