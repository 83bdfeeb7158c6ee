"""
The world of one seed: the true time, and everything that happens, in order.

Only the world knows the true time. A process reads a clock of its own, which may be ahead, behind, faster or slower.
Nothing here may depend on the machine: no set of objects is iterated, and each random draw is from a generator with a
name of its own, so that one more draw in one place changes nothing in another.
"""

import heapq
import importlib.metadata
import os
import random
import secrets
import socket
import struct
import time
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol
from zlib import crc32

EPOCH = 1_800_000_000.0
NEVER = float("inf")

real_time = time.time
_real_monotonic, _real_uuid4, _real_secret = time.monotonic, uuid.uuid4, secrets.token_bytes
_real_getpid, _real_gethostname, _real_version = os.getpid, socket.gethostname, importlib.metadata.version
_pack = struct.Struct("dq").pack


class HangError(Exception):
    """Nothing is left to happen, or the time for it is over."""


class Runnable(Protocol):
    """A process, as the world sees it."""

    name: str
    number: int

    due: float
    """The true time at which the process has something to do."""

    def turn(self) -> None:
        """Run one turn of its event loop."""

    def clock(self) -> float:
        """The time as the code that runs in the process reads it."""


class World:
    here: "World | None" = None
    """The world that code under test lives in at the moment: its clocks are read there."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.now = 0.0
        self.processes: list[Any] = []
        self.running: Any = None
        self.violations: list[str] = []
        self.lines: list[str] | None = [] if tracing else None
        self.turns = 0
        self.ids = self.generator("ids")
        self._order = self.generator("order")
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0
        # The events, by number, with their times.
        self._happened = bytearray()
        World.here = self
        # The code under test draws from the module's own generator.
        random.seed(seed)

    @property
    def digest(self) -> int:
        """A checksum of all that happened."""
        return crc32(self._happened)

    def generator(self, name: str) -> random.Random:
        """A random generator of this seed that nothing else draws from."""
        return random.Random(f"{self.seed} {name}")

    def at(self, when: float, what: Callable[..., object], *args: Any) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(when, self.now), self._number, what, args))

    def after(self, seconds: float, what: Callable[..., object], *args: Any) -> None:
        self.at(self.now + seconds, what, *args)

    def run(self, over: Callable[[], bool], until: float) -> None:
        """Let things happen until it is *over*; raises `HangError` at the time *until*."""
        while not over():
            if self.now > until or not self._step(until):
                raise HangError

    def leave_alone(self, process: Runnable) -> None:
        """Let nothing happen any more but the turns of *process*."""
        self.processes = [process]
        self._events.clear()

    def run_until(self, when: float) -> None:
        while self.now < when and self._step(when):
            pass
        self.now = max(self.now, when)

    def _step(self, until: float) -> bool:
        """Run due events and a turn of a process, or pass the time until there is one; ``False`` if there is none."""
        now, events = self.now, self._events
        while events and events[0][0] <= now:
            _, number, what, args = heapq.heappop(events)
            self._happened += _pack(now, number)
            what(*args)
        when = events[0][0] if events else NEVER
        ready = []
        for process in self.processes:
            due = process.due
            if due <= now:
                ready.append(process)
            elif due < when:
                when = due
        if ready:
            process = ready[0] if len(ready) == 1 else ready[int(self._order.random() * len(ready))]
            process.turn()
            self.turns += 1
            # A turn takes between one and thirty-one microseconds.
            self.now += 1e-6 + 3e-5 * self._order.random()
            self._happened += _pack(self.now, process.number)
            return True
        if when == NEVER:
            return False
        self.now = max(now, min(when, until + 1e-9))
        return True

    def trace(self, who: str, text: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.now:10.6f} {who:<8} {text}")

    def violation(self, kind: str, text: str) -> None:
        self.violations.append(f"{kind}: {text}")
        self.trace("!!!", f"{kind}: {text}")


def _monotonic() -> float:
    world = World.here
    if world is None:
        return _real_monotonic()
    running = world.running
    return world.now if running is None else running.clock()


def _time() -> float:
    return EPOCH + (0.0 if World.here is None else World.here.now)


def _uuid4() -> uuid.UUID:
    source = random if World.here is None else World.here.ids
    return uuid.UUID(int=source.getrandbits(128), version=4)


def _secret(nbytes: int | None = None) -> bytes:
    return _real_secret(nbytes) if World.here is None else World.here.ids.randbytes(nbytes or 32)


def install() -> None:
    """
    Replace the clocks, the ids and secrets, and the names of this machine.

    aiolock and redis-py take these functions by name when they are imported, so this has to come first.
    """
    time.monotonic = _monotonic
    time.time = _time
    uuid.uuid4 = _uuid4
    secrets.token_bytes = _secret
    os.getpid = lambda: 4242
    socket.gethostname = lambda: "host"
    # redis-py reads its version from a file for each connection, which takes a twentieth of the time of a seed.
    importlib.metadata.version = cache(_real_version)


def uninstall() -> None:
    """Undo `install`, for all modules that are imported or called from now on."""
    time.monotonic, time.time = _real_monotonic, real_time
    uuid.uuid4, secrets.token_bytes = _real_uuid4, _real_secret
    os.getpid, socket.gethostname = _real_getpid, _real_gethostname
    importlib.metadata.version = _real_version
