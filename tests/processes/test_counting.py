"""Many processes count in a file under one lock, while others of them are killed and paused."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.processes.store import Entry, Store
from tests.processes.worker import NAME
from tests.support.observe import until

PROCESSES, TASKS = 8, 16
LEASE = 1.0
# The machine has few cores and is busy.
MARGIN = 1.5


class Crew:
    """The worker processes: as many as there should be, also after one was killed."""

    def __init__(self, url: str, path: Path, lease: float) -> None:
        self._over = path.with_suffix(".over")
        self._command = [sys.executable, "-m", "tests.processes.worker", url, str(path), str(self._over)]
        self._command += [str(TASKS), str(lease)]
        self._errors = path.with_suffix(".stderr").open("wb")
        self.workers: list[subprocess.Popen[bytes]] = []

    def hire(self, count: int) -> None:
        for _ in range(count):
            self.workers.append(subprocess.Popen(self._command, stderr=self._errors))

    def kill(self, pid: int) -> None:
        worker = next(worker for worker in self.workers if worker.pid == pid)
        self.workers.remove(worker)
        worker.kill()
        worker.wait()
        self.hire(1)

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self.workers]

    async def finish(self) -> None:
        """Tell the workers to end, and wait until each has ended by itself without an error."""
        self._over.touch()
        await until(lambda: all(worker.poll() is not None for worker in self.workers), within=20)
        assert [worker.returncode for worker in self.workers] == [0] * len(self.workers)

    def stop(self) -> None:
        self._errors.close()
        for worker in self.workers:
            worker.kill()
            worker.wait()


@contextmanager
def crew(url: str, path: Path, lease: float) -> Iterator[Crew]:
    path.touch()
    working = Crew(url, path, lease)
    try:
        working.hire(PROCESSES)
        yield working
    finally:
        working.stop()


class Killer:
    """Sends signals to random workers, half of the time to the worker that holds the lock."""

    def __init__(self, crew: Crew, locks: LockClient, chance: random.Random) -> None:
        self._crew = crew
        self._lock = locks.lock(NAME)
        self._chance = chance
        self.killed = 0
        self.paused = 0

    async def strike(self) -> None:
        pid = await self._victim()
        if self._chance.random() < 0.5:
            self._crew.kill(pid)
            self.killed += 1
            await asyncio.sleep(0.3)
        else:
            self.paused += 1
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(self._chance.choice((0.3 * LEASE, 1.5 * LEASE)))
            finally:
                os.kill(pid, signal.SIGCONT)

    async def _victim(self) -> int:
        holder = await self._lock.holder()
        if holder is not None and holder.pid in self._crew.pids and self._chance.random() < 0.5:
            return holder.pid
        return self._chance.choice(self._crew.pids)


class Watch:
    """Looks at the lock all the time, and notes for how long each grant lasted, and the lock was free in between."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.longest_grant = self.longest_free = 0.0
        self.tokens: list[int] = []
        self.over = False

    async def look(self) -> None:
        last: bytes | str = b""
        since = monotonic()
        while not self.over:
            asked = monotonic()
            token = await self._redis.hget(NAME, "aiolock:token") or b""
            if token != last:
                last, since = token, monotonic()
                if token:
                    self.tokens.append(int(token))
            elif token:
                self.longest_grant = max(self.longest_grant, asked - since)
            elif self.tokens:
                self.longest_free = max(self.longest_free, asked - since)
            await asyncio.sleep(0.005)


def check(entries: list[Entry]) -> int:
    """Check the entries; return the number of counts."""
    counts = [entry.count for entry in entries if entry.kind == "write"]
    assert counts == list(range(1, len(counts) + 1))
    entered = sorted((entry for entry in entries if entry.kind == "read"), key=lambda entry: entry.at)
    assert all(earlier.token < later.token for earlier, later in pairwise(entered))
    left = {entry.token: entry.at for entry in entries if entry.kind == "left"}
    assert all(left.get(earlier.token, 0) < later.at for earlier, later in pairwise(entered))
    return len(counts)


def enough(entries: list[Entry]) -> bool:
    """Whether each process had the lock a few times, so that none starves."""
    had = Counter(entry.pid for entry in entries if entry.kind == "left")
    return len(had) == PROCESSES and min(had.values()) >= 20


async def test_processes_that_share_a_lock_count_right(server: Server, redis: Redis, tmp_path: Path) -> None:
    path = tmp_path / "counter"
    watch = Watch(redis)
    with crew(server.url, path, lease=30) as working:
        watching = asyncio.create_task(watch.look())
        await until(lambda: enough(Store(path).entries()), within=40)
        await working.finish()
        watch.over = True
        await watching
    entries = Store(path).entries()
    counted = check(entries)
    assert counted == sum(entry.kind == "left" for entry in entries)
    assert watch.tokens == sorted(set(watch.tokens))
    assert path.with_suffix(".stderr").read_text() == ""
    assert await redis.exists(NAME) == 0


@pytest.mark.slow
async def test_processes_that_are_killed_and_paused_neither_miscount_nor_get_stuck(
    server: Server, redis: Redis, tmp_path: Path
) -> None:
    path = tmp_path / "counter"
    watch = Watch(redis)
    with crew(server.url, path, LEASE) as working:
        async with LockClient(redis) as locks:
            await until(lambda: len(Store(path).entries()) > 50, within=20)
            watching = asyncio.create_task(watch.look())
            killer = Killer(working, locks, random.Random(4))
            ends = monotonic() + 8
            while monotonic() < ends:
                await killer.strike()
            watch.over = True
            await watching
        await working.finish()
    counted = check(Store(path).entries())
    assert counted > 100
    assert killer.killed > 0 < killer.paused
    assert watch.tokens == sorted(set(watch.tokens))
    assert watch.longest_grant < LEASE + MARGIN
    assert watch.longest_free < MARGIN
    assert "Traceback" not in path.with_suffix(".stderr").read_text()
