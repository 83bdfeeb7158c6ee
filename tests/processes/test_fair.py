"""A fair lock over processes, some of which are killed: the order, seen from outside of Redis, and its cost."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiolock import Lease, LockClient
from aiolock._embedded_server import Server
from tests.processes.fair import NAME
from tests.support.observe import until

TOKENS = f"aiolock_token:{{{NAME}}}"
PROCESSES = 8


@asynccontextmanager
async def crew(url: str, path: Path, work: float) -> AsyncIterator[Sequence[Process]]:
    path.touch()
    arguments = ["-m", "tests.processes.fair", url, str(path), str(work)]
    processes = [await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE) for _ in range(PROCESSES)]
    try:
        yield processes
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def stand(redis: Redis, process: Process, numbers: Sequence[int], standing: int) -> None:
    """Let the tasks of these numbers stand in line, behind that many others."""
    assert process.stdin is not None
    process.stdin.write(" ".join(map(str, numbers)).encode() + b"\n")

    async def all_stand() -> bool:
        return await in_line(redis) == standing + len(numbers)

    await until(all_stand, within=120)


async def in_line(redis: Redis) -> int:
    return await redis.zcount(TOKENS, "-inf", -1_000_000_000_000_001)


def turns(path: Path) -> list[tuple[int, float, float]]:
    """The holders by number, with the times of begin and end on the clock that all processes share."""
    # A process may be writing its line, which is complete once it ends.
    rows = (line.split() for line in path.read_text().splitlines(keepends=True) if line[0] != "-" and line[-1] == "\n")
    return [(int(number), float(entered), float(left)) for number, entered, left in rows]


def of_who_stood_still(path: Path) -> set[int]:
    """The numbers of processes that stood still meanwhile, or had no answer from the server."""
    return {-int(line.split()[0]) for line in path.read_text().splitlines() if line.startswith("-")}


async def release_and_wait(lease: Lease, path: Path, count: int) -> list[tuple[int, float, float]]:
    await lease.release()
    await until(lambda: len(turns(path)) == count, within=120)
    had = turns(path)
    assert all(left <= entered for (_, _, left), (_, entered, _) in pairwise(had)), "two at a time"
    return had


async def test_the_order_is_that_of_arrival_also_when_processes_die(
    server: Server, redis: Redis, tmp_path: Path
) -> None:
    path, choose = tmp_path / "turns", random.Random(15)
    async with LockClient(redis) as locks, crew(server.url, path, 0.002) as processes:
        lease = await locks.fair_lock(NAME).acquire()
        of: list[Process] = []
        for number in range(80):
            of.append(choose.choice(processes))
            await stand(redis, of[-1], [number], number)
        killed, stopped = of[0], next(process for process in of if process is not of[0])
        killed.kill()
        await killed.wait()
        living = [number for number in range(80) if of[number] is not killed]
        had = await release_and_wait(lease, path, len(living))
        order, still = [number for number, _, _ in had], of_who_stood_still(path)
        assert sorted(order) == living
        assert [each for each in order if each not in still] == [each for each in living if each not in still]
        assert stopped.returncode is None
        assert await in_line(redis) == 0


@pytest.mark.timeout(240)
async def test_ten_thousand_waiters_cost_no_more_than_a_few(own: Server, tmp_path: Path) -> None:
    """Each waiter costs a release and an acquire, beside the heartbeats."""
    path, some, waiters = tmp_path / "turns", 25, 10_000
    async with Redis.from_url(own.url) as redis, crew(own.url, path, 0) as processes:
        async with LockClient(redis) as locks:
            lease = await locks.fair_lock(NAME).acquire()
            for place, first in enumerate(range(0, waiters, some)):
                await stand(redis, processes[place % PROCESSES], range(first, first + some), first)
            await redis.config_resetstat()
            had = await release_and_wait(lease, path, waiters)
        scripts = (await redis.info("commandstats"))["cmdstat_evalsha"]
        took = had[-1][2] - had[0][1]
        assert scripts["calls"] <= 2.2 * waiters + PROCESSES * took / 0.25 + 100
        each = f"{took / waiters * 1e3:.2f} ms, {scripts['calls'] / waiters:.2f} scripts"
        print(f"{each} of {scripts['usec_per_call']:.0f} microseconds for each of {waiters:,} waiters")
