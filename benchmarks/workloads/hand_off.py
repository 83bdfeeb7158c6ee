"""
B4: a lock goes back and forth between two processes, one of which always waits for it.

The time of a hand-off is from just before the holder releases until the waiter is inside. Both processes have one
clock: on Linux the monotonic clock is the system's. The two exchange messages through a socket.
"""

import asyncio
import os
import random
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks import peers
from benchmarks.crew import Worker, say
from benchmarks.observer import Observer
from benchmarks.peers.adapter import Lock
from benchmarks.run import Outcome, Run
from benchmarks.statistic import percentile, quantiles
from benchmarks.witness import Witness

NAME = "handed"
_GO, _STOP = 0, -1
_WORD = struct.Struct("q")
_PARKED = 0.005


async def run(run: Run, observer: Observer) -> Outcome:
    """No parameters."""
    Witness.create(Path(run.witness))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.set_inheritable(theirs.fileno(), True)
        told = replace(run, parameters={**run.parameters, "socket": theirs.fileno()})
        worker = await Worker.start(told, 1, [theirs.fileno()])
        await worker.hear()
        samples, overlaps = await _play(run, ours, time.monotonic() + run.warm_up + run.seconds)
        result = await worker.hear()
        await worker.end()
    warm = round(len(samples) * run.warm_up / (run.warm_up + run.seconds))
    samples = sorted(samples[warm:] + result["samples"][warm:])
    overlaps += result["overlaps"]
    measures = {"median": median(samples), "p95": percentile(samples, 0.95), "p99": percentile(samples, 0.99)}
    measures["hand_offs"] = len(samples)
    problem = f"{overlaps} × two holders at a time" if overlaps else None
    return Outcome(measures, quantiles(samples), problem)


async def work(run: Run) -> None:
    """The part of the second process."""
    with socket.socket(fileno=run.number("socket")) as channel:
        say("ready")
        samples, overlaps = await _play(run, channel, None)
    say({"samples": samples, "overlaps": overlaps})


async def _play(run: Run, channel: socket.socket, until: float | None) -> tuple[list[float], int]:
    """Take turns; the process with *until* begins, and ends the game then."""
    channel.setblocking(False)
    async with peers.make(run.peer, run.url, 1, 30) as peer:
        with Witness(path=run.witness) as witness:
            # A turn may last a whole interval of a polling waiter, so that its attempts come at other points each time.
            player = _Player(peer.lock(NAME), _Channel(channel), witness, run.worker + 1, peer.poll or _PARKED)
            await player.play(until)
            return player.samples, witness.overlaps


class _Channel:
    """Words to the other process."""

    def __init__(self, channel: socket.socket) -> None:
        self._socket = channel
        self._loop = asyncio.get_running_loop()

    async def send(self, word: int) -> None:
        await self._loop.sock_sendall(self._socket, _WORD.pack(word))

    async def receive(self) -> int:
        data = await self._loop.sock_recv(self._socket, _WORD.size)
        if len(data) != _WORD.size:
            raise RuntimeError("the other process has gone")
        return int(_WORD.unpack(data)[0])


class _Player:
    def __init__(self, lock: Lock, channel: _Channel, witness: Witness, who: int, longest: float) -> None:
        self._lock = lock
        self._channel = channel
        self._witness = witness
        self._who = who
        self._longest = longest
        self.samples: list[float] = []

    async def play(self, until: float | None) -> None:
        if until is not None:
            await self._turn(None)
        while await self._channel.receive() == _GO:
            if not await self._turn(until, waiting=True):
                break

    async def _turn(self, until: float | None, *, waiting: bool = False) -> bool:
        """Wait for the lock, tell the other process to do so, keep it for a moment, release it and report the time."""
        async with self._lock:
            acquired = time.monotonic_ns()
            self._witness.enter(self._who)
            if waiting:
                self.samples.append((acquired - await self._channel.receive()) / 1e9)
            going_on = until is None or time.monotonic() < until
            await self._channel.send(_GO if going_on else _STOP)
            await asyncio.sleep(_PARKED + random.uniform(0, self._longest))
            self._witness.leave(self._who)
            released = time.monotonic_ns()
        if going_on:
            await self._channel.send(released)
        return going_on
