"""What a process of the tests is made of: tasks that do the same so and so often, and write down when they did it."""

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from aiolock import LockClient, LockConfig
from tests.support.observe import until

FOR_EVER = 1_000_000

Section = Callable[[LockClient, random.Random], Awaitable[str]]
"""One section: what happened in it, in words that are numbers, most of them."""


async def serve(url: str, path: str, tasks: int, times: int, section: Section) -> None:
    """Do so many sections in each of so many tasks; each is a line of the file."""
    asyncio.get_running_loop().slow_callback_duration = 60  # On a busy machine asyncio's debug mode would complain.
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def work(task: int) -> None:
        choose = random.Random(f"{os.getpid()} {task}")
        for _ in range(times):
            # One line, written as a whole, also beside other processes.
            os.write(file, f"{os.getpid()}-{task} {await section(locks, choose)}\n".encode())

    async with LockClient.from_url(url, config=LockConfig(lease=5)) as locks, asyncio.TaskGroup() as group:
        for task in range(tasks):
            group.create_task(work(task))


def main(section: Section) -> None:
    """The program: url, path, tasks, times."""
    _, url, path, tasks, times = sys.argv
    asyncio.run(serve(url, path, int(tasks), int(times), section))


async def let_work(
    module: str, url: str, path: Path, *, processes: int, tasks: int, times: int
) -> tuple[list[str], int]:
    """Let so many processes do their work, beside one that is killed; all lines, and the process id of that one."""
    path.touch()

    async def start(times: int) -> asyncio.subprocess.Process:
        arguments = ["-m", module, url, str(path), str(tasks), str(times)]
        return await asyncio.create_subprocess_exec(sys.executable, *arguments)

    victim = await start(FOR_EVER)
    workers = [await start(times) for _ in range(processes)]
    try:
        await until(lambda: f"{victim.pid}-" in path.read_text(), within=60)
        victim.kill()
        assert await asyncio.gather(*(worker.wait() for worker in workers)) == [0] * processes
    finally:
        for process in (victim, *workers):
            if process.returncode is None:
                process.kill()
            await process.wait()
    return path.read_text().splitlines(), victim.pid


def most_at_once(visits: Iterable[tuple[float, float, int]]) -> int:
    """The greatest sum of numbers that were there at a time; each visit is from when, until when, and its number."""
    changes = [change for entered, left, number in visits for change in ((entered, number), (left, -number))]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
