"""A process of the test: told a number on stdin, a task stands in line for the lock, and notes when it has it."""

import asyncio
import os
import sys
from time import monotonic

from aiolock import LockClient

NAME = "counter"


async def take_turn(locks: LockClient, number: int, file: int, work: float) -> None:
    async with locks.fair_lock(NAME):
        entered = monotonic()
        await asyncio.sleep(work)
        os.write(file, f"{number} {entered} {monotonic()}\n".encode())


async def main(url: str, path: str, work: float) -> None:
    asyncio.get_running_loop().slow_callback_duration = 60  # On a busy machine asyncio's debug mode would complain.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with LockClient.from_url(url) as locks, asyncio.TaskGroup() as group:
        while line := await lines.readline():  # One or several numbers, whose order does not matter.
            for number in line.split():
                group.create_task(take_turn(locks, int(number), file, work))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
