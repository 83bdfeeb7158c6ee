"""
The processes. Each has one client of aiolock and some workers; these use locks in every way, and are cancelled often.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import aiolock
from aiolock._types import BlockRelease
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.checks import Checks
    from tests.simulation.faults import Faults
    from tests.simulation.topologies.base import Replicas, Topology

Act = Callable[["Member"], Coroutine[Any, Any, None]]

# Errors that are right while something is wrong.
_EXPECTED = (aiolock.LeaseLostError, aiolock.BackendError, aiolock.ReplicationError)
# Seconds of the longest pause between two acts, and seconds by which this pause grows with each act.
_PAUSE, _SLOWER = 0.3, 0.02
# The share of the processes that have a lease of their own, a task factory that begins each task at once, and a client
# whose blocks leave their releases behind.
_OWN_LEASE, _EAGER, _BEHIND = 0.3, 0.2, 0.2


@dataclass(frozen=True)
class Settings:
    """The settings that all processes of a seed have in common."""

    acts: list[Act]
    # The lease of most clients, and the leases from which the others choose.
    lease: float
    leases: list[float]
    horizon: float
    replicas: "Replicas" = None
    # The share of the acts that are cancelled, and the number of arrivals after which an act is cancelled.
    cancelled: float = 0.1
    cancelled_on_arrival: float = 0.02
    # Whether each process begins its tasks at once, and not only some of them.
    eager: bool = False


@dataclass
class Shared:
    """The knowledge that the acts of all processes share."""

    permits_granted: int = 0
    # The holds that were detached, and may be adopted.
    detached: list[Any] = field(default_factory=list)
    # The end of a body that runs once, by name.
    done: dict[str, float] = field(default_factory=dict)
    # The number and the end of the last run whose result was stored, by name; and the number of runs.
    results: dict[str, tuple[int, float]] = field(default_factory=dict)
    runs: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    # The number of acts that have ended.
    ended: int = 0


class Fleet:
    checks: "Checks"
    faults: "Faults"

    def __init__(self, topology: "Topology", settings: Settings) -> None:
        self.topology, self.network, self.settings = topology, topology.network, settings
        self.world = topology.world
        self.members: dict[Process, Member] = {}
        self.shared = Shared()
        self._draw = self.world.generator("fleet")

    def start(self) -> None:
        """Start one more process, while there are acts to do for it."""
        if self.world.now > self.topology.horizon:
            return
        name = f"p{len(self.members) + 1}"
        offset, rate = self._draw.uniform(0, 1e5), 1 + self._draw.uniform(-0.001, 0.001)
        process = Process(self.network, name, offset, rate)
        self.members[process] = Member(self, process)

    def kill(self, process: Process) -> None:
        process.kill()
        for link in list(self.network.links):
            if link.process is process:
                link.finish()
        self.checks.holders.forget(process)

    def alive(self) -> "list[Member]":
        return [member for process, member in self.members.items() if not process.killed]

    def is_at_work(self) -> bool:
        """Whether any process has acts to do yet."""
        return any(member.is_working and not process.killed for process, member in self.members.items())

    def is_in_use(self, acquisition: bytes) -> bool:
        """Whether the client that made the acquisition is still at work."""
        maker = acquisition.decode().split(":")[0]
        in_use = [member.client_id for member in self.alive() if not member.is_shutting_down]
        return any(client is not None and client.startswith(maker) for client in in_use)


class Member:
    """A process, and its client and tasks."""

    locks: aiolock.LockClient

    def __init__(self, fleet: Fleet, process: Process) -> None:
        self.fleet, self.process, self.world = fleet, process, fleet.world
        self.draw = random.Random(f"{fleet.world.seed} {process.name}")
        self.is_working = True
        self.is_closed = False
        self.is_shutting_down = False
        self.over = asyncio.Event()
        self.acting: dict[asyncio.Task[None], None] = {}
        settings = fleet.settings
        self.lease = self.draw.choice(settings.leases) if self.draw.random() < _OWN_LEASE else settings.lease
        if self.draw.random() < _EAGER or settings.eager:
            process.begin_tasks_at_once()
        self.release: BlockRelease = "behind" if self.draw.random() < _BEHIND else "answered"
        process.on_arrival = self._cancel_on_arrival
        self.main = process.start(self._main(), "main")

    @property
    def client_id(self) -> str | None:
        from tests.support.inside import client_id_of

        return client_id_of(self.locks) if hasattr(self, "locks") else None

    def pending(self) -> int:
        """The number of commands without an answer."""
        return self.locks.statistics().pending

    def _heard(self, event: aiolock.LockEvent) -> None:
        self.fleet.checks.heard(self.process, event)

    def make_client(self) -> aiolock.LockClient:
        replicas = self.fleet.settings.replicas
        config = aiolock.LockConfig(
            lease=self.lease, client_name=self.process.name, release=self.release, on_event=self._heard
        )
        if replicas is not None:
            config = replace(config, replicas=replicas, replicas_timeout=min(0.5, self.lease / 4))
        return self.fleet.topology.client(config)

    async def _main(self) -> None:
        self.locks = self.make_client()
        async with self.locks:
            workers = [asyncio.create_task(self._work()) for _ in range(self.draw.randint(1, 4))]
            await asyncio.wait(workers)
            self.is_working = False
            await self.over.wait()
        self.is_closed = True

    async def _work(self) -> None:
        loop, settings, longest = asyncio.get_running_loop(), self.fleet.settings, _PAUSE
        while self.world.now < settings.horizon and not self.is_shutting_down:
            await asyncio.sleep(self.draw.choice((0, 0.001, 0.02, longest)) * self.draw.random())
            # A worker slows down, since a seed of many short acts costs as much as ten others and finds no more.
            longest += _SLOWER
            act = self.draw.choice(settings.acts)
            task = loop.create_task(self._do(act), name=act.__name__)
            self.acting[task] = None
            task.add_done_callback(self.acting.pop)
            cut = None
            if self.draw.random() < settings.cancelled:
                when = self.draw.choice((0.0, 0.002, 0.02, 0.5, 3)) * self.draw.random()
                cut = loop.call_later(when, self.cancel, task)
            await asyncio.wait([task])
            self.fleet.shared.ended += 1
            if cut is not None:
                cut.cancel()

    async def _do(self, act: Act) -> None:
        checks, started, counts = self.fleet.checks, self.world.now, self.fleet.shared.counts
        counts[act.__name__] = counts.get(act.__name__, 0) + 1
        try:
            await act(self)
        except asyncio.CancelledError:
            if not getattr(asyncio.current_task(), "was_cancelled_by_us", False):
                self.world.violation("stray cancel", f"{self.process.name} {act.__name__} was cancelled by nobody")
        except _EXPECTED as error:
            checks.failed(self.process, act.__name__, error, started, fixed_lease=_has_fixed_lease())
        except aiolock.LockTimeoutError:
            pass
        except (aiolock.ClientClosedError, aiolock.NotHeldError) as error:
            if not self.is_shutting_down:
                self.world.violation("strange", f"{self.process.name} {act.__name__}: {error!r}")
        except Exception as error:
            self.world.violation("strange", f"{self.process.name} {act.__name__}: {error!r} {error.__cause__!r}")

    # Cancellation.

    def cancel(self, task: "asyncio.Task[None]") -> None:
        self.world.trace(self.process.name, f"cancels {task.get_name()}")
        mark_as_cancelled(task)
        task.cancel()

    def _cancel_on_arrival(self) -> None:
        """A reply or a message has arrived: cancel an act before it is read, after it, or some turns later."""
        if self.acting and self.draw.random() < self.fleet.settings.cancelled_on_arrival:
            tasks = list(self.acting)
            self._cancel_in(self.draw.choice((0, 0, 1, 1, 2, 3, 4, 5)), tasks[int(self.draw.random() * len(tasks))])

    def _cancel_in(self, turns: int, task: "asyncio.Task[None]") -> None:
        if turns:
            self.process.call_soon(self._cancel_in, turns - 1, task, context=self.process.root)
        elif not task.done():
            self.cancel(task)


def mark_as_cancelled(task: "asyncio.Task[Any]") -> None:
    task.was_cancelled_by_us = True  # type: ignore[attr-defined]


def use_fixed_lease() -> None:
    """The act's lease is not renewed, so that it may end within the act."""
    asyncio.current_task().has_fixed_lease = True  # type: ignore[union-attr]


def _has_fixed_lease() -> bool:
    return getattr(asyncio.current_task(), "has_fixed_lease", False)
