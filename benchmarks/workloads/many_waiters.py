"""B8: many tasks of one process wait for one name: the cost of waiting, and the time until the next one has it."""

import asyncio
import random
import time
from statistics import median

from benchmarks import peers
from benchmarks.memory import resident
from benchmarks.observer import Observer
from benchmarks.peers.adapter import Lock, Peer
from benchmarks.run import Measures, Outcome, Run
from benchmarks.sections import described
from benchmarks.statistic import percentile
from benchmarks.witness import Witness

NAME = "wanted"
_MOMENT = 0.005
_IDLE = 2.0
# Enough waiters to tell their memory from noise.
_MANY = 1000


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *waiters*: their number; they all wait, and their number is the same after each hand-off."""
    waiters = run.number("waiters")
    async with peers.make(run.peer, run.url, waiters, 30) as peer:
        async with peer.lock("warm"):
            before = resident()
        with Witness() as witness:
            queue = _Queue(peer, witness)
            async with peer.lock(NAME):
                tasks = await _arrive(queue, waiters, run.warm_up)
                measures = await _idle(observer, run, waiters)
                if waiters >= _MANY:
                    measures["bytes_per_waiter"] = (resident() - before) / waiters
                queue.released = time.monotonic()
            await asyncio.wait(tasks, timeout=run.seconds, return_when=asyncio.FIRST_EXCEPTION)
            problem = await _stop(tasks)
        if queue.samples:
            measures["median"], measures["p99"] = median(queue.samples), percentile(queue.samples, 0.99)
            measures["hand_offs"] = len(queue.samples)
        else:
            problem = problem or f"no hand-off within {run.seconds:g} s"
    return Outcome(measures, problem=f"{witness.overlaps} × two holders at a time" if witness.overlaps else problem)


async def _arrive(queue: "_Queue", waiters: int, seconds: float) -> list["asyncio.Task[None]"]:
    """Let that many waiters come within *seconds*: otherwise those that poll would do so at the same times for ever."""
    tasks = []
    for number in range(waiters):
        tasks.append(asyncio.create_task(queue.wait(number + 1)))
        if number % 100 == 0:
            await asyncio.sleep(seconds * min(100, waiters) / waiters)
    return tasks


async def _idle(observer: Observer, run: Run, waiters: int) -> Measures:
    """Let all waiters settle, then count the commands while nothing happens."""
    await asyncio.sleep(run.warm_up * 2 + waiters / 5000)
    cpu, sent = time.process_time(), await observer.executed()
    await asyncio.sleep(_IDLE)
    sent, cpu = await observer.executed() - sent, time.process_time() - cpu
    connections = await observer.connections()
    return {"idle_commands": sent, "idle_cpu_share": cpu / _IDLE, "connections": connections}


async def _stop(tasks: list["asyncio.Task[None]"]) -> str | None:
    """Cancel all tasks, and once more those whose cancellation a peer swallowed."""
    failed = [error for task in tasks if task.done() and (error := task.exception()) is not None]
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=3)
    return f"{len(failed)} × {described(failed[0])}" if failed else None


class _Queue:
    """
    Tasks that hand one lock on; a task waits again when the next one has it, so their number stays.

    Each keeps the lock for a moment, so that the task before it is sure to wait again by the time the lock is free.
    """

    def __init__(self, peer: Peer, witness: Witness) -> None:
        self._peer = peer
        self._witness = witness
        self._left: asyncio.Event | None = None
        self.released = 0.0
        self.samples: list[float] = []

    async def wait(self, who: int) -> None:
        lock: Lock = self._peer.lock(NAME)
        while True:
            async with lock:
                self.samples.append(time.monotonic() - self.released)
                left = await self._stay(who)
            await left.wait()

    async def _stay(self, who: int) -> asyncio.Event:
        self._witness.enter(who)
        try:
            if self._left is not None:
                self._left.set()
            self._left = asyncio.Event()
            await asyncio.sleep(random.uniform(_MOMENT, 2 * _MOMENT))
            return self._left
        finally:
            self._witness.leave(who)
            self.released = time.monotonic()
