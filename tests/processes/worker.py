"""A process of the test: some tasks that count in a file under one lock, until the time is up."""

import asyncio
import sys
from pathlib import Path
from time import monotonic

from aiolock import BackendError, LeaseLostError, LockClient, LockConfig
from tests.processes.store import StaleTokenError, Store

NAME = "counter"
WORK = 0.002


async def count(locks: LockClient, store: Store, until: float) -> None:
    while monotonic() < until:
        try:
            await count_once(locks, store)
        except (LeaseLostError, StaleTokenError, BackendError):
            await asyncio.sleep(0)  # Not counted: another had the lock, or may have had.


async def count_once(locks: LockClient, store: Store) -> None:
    async with locks.lock(NAME) as lease:
        entered = monotonic()
        lease.check()
        seen = store.read(lease.token, entered)
        await asyncio.sleep(WORK)
        store.write(lease.token, seen + 1)
        left = monotonic()
        lease.check()  # Passed: at *left* the lock was held.
        store.left(lease.token, left)


async def main(url: str, path: str, tasks: int, lease: float, until: float) -> None:
    asyncio.get_running_loop().slow_callback_duration = 60  # On a busy machine asyncio's debug mode would complain.
    store = Store(Path(path))
    async with LockClient.from_url(url, config=LockConfig(lease=lease)) as locks, asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(count(locks, store, until))


if __name__ == "__main__":
    _, url, path, tasks, lease, until = sys.argv
    asyncio.run(main(url, path, int(tasks), float(lease), float(until)))
