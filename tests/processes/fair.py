"""
A process of the test: told a number on stdin, a task stands in line for the lock, and notes when it has it.

If the process stood still, or had no answer from the server, it notes its numbers with a minus: it may have given no
sign of life in its turn, and then others go first.
"""

import asyncio
import os
import sys
from time import monotonic

from redis.asyncio import Redis

from aiolock import LockClient, background

NAME = "counter"
# A waiter gives a sign of life every 0.25 s, and counts as alive for 0.7 s after each.
STILL = 0.3


async def take_turn(locks: LockClient, number: int, file: int, work: float) -> None:
    async with locks.fair_lock(NAME):
        entered = monotonic()
        await asyncio.sleep(work)
        os.write(file, f"{number} {entered} {monotonic()}\n".encode())


async def note_when_it_stands_still(url: str, numbers: list[int], file: int) -> None:
    async with Redis.from_url(url) as redis:
        alive = monotonic()
        while True:
            await redis.ping()
            before, alive = alive, monotonic()
            if alive > before + STILL:
                os.write(file, "".join(f"-{number} {before} {alive}\n" for number in numbers).encode())
            await asyncio.sleep(0.02)


async def main(url: str, path: str, work: float) -> None:
    asyncio.get_running_loop().slow_callback_duration = 60
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    numbers: list[int] = []
    still = note_when_it_stands_still(url, numbers, file)
    async with LockClient.from_url(url) as locks, background(still), asyncio.TaskGroup() as group:
        while line := await lines.readline():
            for number in map(int, line.split()):
                numbers.append(number)
                group.create_task(take_turn(locks, number, file, work))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
