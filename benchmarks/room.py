"""Sections that several tasks may be in at a time, entered and left as fast as they can be."""

import asyncio
import time
from collections.abc import Callable

from benchmarks import peers
from benchmarks.peers.adapter import Lock, Peer
from benchmarks.run import Outcome, Run


async def share(run: Run, lock_of: Callable[[Peer], Lock], most: int | None) -> Outcome:
    """Parameter *tasks*: the number of tasks that share a room, each with a lock; *most* may be inside at once."""
    tasks = run.number("tasks")
    async with peers.make(run.peer, run.url, tasks, 30) as peer:
        locks = [lock_of(peer) for _ in range(tasks)]
        room = _Room(turns=most is not None)
        await room.enter_until(locks, time.monotonic() + run.warm_up)
        room.sections = 0
        cpu, started = time.process_time(), time.monotonic()
        await room.enter_until(locks, started + run.seconds)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    return Outcome(
        {
            "sections_per_second": room.sections / seconds,
            "seconds_per_section": seconds / room.sections,
            "cpu_per_section": cpu / room.sections,
        },
        problem=f"{room.most} were inside at once" if most is not None and room.most > most else None,
    )


class _Room:
    """Counts the tasks inside; with *turns*, the others get a turn, so that one too many is seen."""

    def __init__(self, *, turns: bool) -> None:
        self.sections = 0
        self.most = 0
        self._inside = 0
        self._turns = turns

    async def enter_until(self, locks: list[Lock], end: float) -> None:
        async with asyncio.TaskGroup() as group:
            for lock in locks:
                group.create_task(self._enter_until(lock, end))

    async def _enter_until(self, lock: Lock, end: float) -> None:
        while time.monotonic() < end:
            async with lock:
                self._inside += 1
                self.most = max(self.most, self._inside)
                if self._turns:
                    await asyncio.sleep(0)
                self._inside -= 1
                self.sections += 1
