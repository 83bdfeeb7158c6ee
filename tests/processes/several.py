"""A process of the test: tasks that take some of six names at once, in any order, each so and so often."""

import asyncio
import os
import random
import sys
from time import monotonic

from aiolock import LockClient

NAMES = [f"account:{number}" for number in range(6)]


async def transfer(locks: LockClient, file: int, task: int, times: int) -> None:
    choose = random.Random(f"{os.getpid()} {task}")
    for _ in range(times):
        names = choose.sample(NAMES, choose.randint(1, 4))
        asked = monotonic()
        async with locks.multi(*names) as lease:
            entered = monotonic()
            await asyncio.sleep(0.001)
            lease.check()
            left = monotonic()
        tokens = ",".join(f"{name}={token}" for name, token in lease.tokens.items())
        # One line, written as a whole, also beside other processes.
        os.write(file, f"{os.getpid()}-{task} {asked} {entered} {left} {tokens}\n".encode())


async def main(url: str, path: str, tasks: int, times: int) -> None:
    asyncio.get_running_loop().slow_callback_duration = 60  # On a busy machine asyncio's debug mode would complain.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with LockClient.from_url(url) as locks, asyncio.TaskGroup() as group:
        for task in range(tasks):
            group.create_task(transfer(locks, file, task, times))


if __name__ == "__main__":
    _, url, path, tasks, times = sys.argv
    asyncio.run(main(url, path, int(tasks), int(times)))
