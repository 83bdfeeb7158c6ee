"""The parts of a process of the tests: tasks that repeat an act, and write down the times."""

import asyncio
import os
import random
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from aiolock import LockClient, LockConfig
from tests.support.observe import until

_ROOT = Path(__file__).parents[2]
FOR_EVER = 1_000_000
# Seconds for which nobody else gets the locks of a killed process.
LEASE = 5.0
# Seconds that a busy machine adds to a wait, where an idle one needs some tenths.
BUSY = 15.0

Section = Callable[[LockClient, random.Random, tuple[int, int]], Awaitable[str]]
"""A section by *who*, the numbers of a process and its task; the result tells what happened, mostly in numbers."""


async def serve(url: str, path: str, section: Section, *, process: int, tasks: int, times: int) -> None:
    """Let each of the tasks do the section that many times; each result is a line of the file."""
    # On a busy machine asyncio's debug mode would complain.
    asyncio.get_running_loop().slow_callback_duration = 60
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def work(task: int) -> None:
        choose = random.Random(f"{os.getpid()} {task}")
        for _ in range(times):
            # The system writes a line as a whole, also beside other processes.
            os.write(file, f"{os.getpid()}-{task} {await section(locks, choose, (process, task))}\n".encode())

    async with LockClient.from_url(url, config=LockConfig(lease=LEASE)) as locks, asyncio.TaskGroup() as group:
        for task in range(tasks):
            group.create_task(work(task))


def main(section: Section) -> None:
    """The program: url, path, number, tasks, times."""
    _, url, path, process, tasks, times = sys.argv
    asyncio.run(serve(url, path, section, process=int(process), tasks=int(tasks), times=int(times)))


async def let_work(
    module: str, url: str, path: Path, *, processes: int, tasks: int, times: int, roots: Sequence[Path] = (_ROOT,)
) -> tuple[list[str], int]:
    """
    Let that many processes work, and one more that is killed; return all lines, and the id of the killed process.

    The processes use the *roots*, the folders with the package, in turn; the killed process uses the first.
    """
    path.touch()

    async def start(number: int, times: int) -> asyncio.subprocess.Process:
        arguments = ["-P", "-m", module, url, str(path), str(number), str(tasks), str(times)]
        places = os.pathsep.join(map(str, (roots[number % len(roots)], _ROOT)))
        return await asyncio.create_subprocess_exec(sys.executable, *arguments, env=os.environ | {"PYTHONPATH": places})

    victim = await start(processes, FOR_EVER)
    workers = [await start(number, times) for number in range(processes)]
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
    """The greatest sum of the numbers of simultaneous visits; a visit is its begin, its end, and its number."""
    changes = [change for entered, left, number in visits for change in ((entered, number), (left, -number))]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


class Waited(Protocol):
    """A request that was granted; times are on the monotonic clock."""

    @property
    def asked(self) -> float: ...

    @property
    def entered(self) -> float: ...


def check_waits(who: str, waits: Sequence[Waited], rivals: Iterable[Waited], share: float) -> None:
    """
    Check that nobody waited for long, not counting the time for which the killed process kept all others out. While
    anybody waited, fewer than that *share* of the *rivals* entered, which are all requests that may be in the way; the
    speed of the machine does not matter for that.
    """
    entered = sorted(rival.entered for rival in rivals)
    longest = busy = 0.0
    overtaken = 0
    for each in waits:
        meanwhile = entered[bisect_right(entered, each.asked) : bisect_left(entered, each.entered)]
        silence = max(after - before for before, after in pairwise((each.asked, *meanwhile, each.entered)))
        longest = max(longest, each.entered - each.asked)
        busy = max(busy, each.entered - each.asked - silence)
        overtaken = max(overtaken, len(meanwhile))
    print(f"{who}: at most {longest:.2f} s; {busy:.2f} s, and {overtaken} of {len(entered)} others, while any entered")
    assert longest < LEASE + BUSY
    assert busy < BUSY
    assert overtaken < share * len(entered)
