"""
The properties that must hold under all faults. The checks look from outside, where the servers' data and every clock
are known.

    holders     exclusion, timely news of a loss, fencing, hold counts: from the holders' view (P1, P2, P3, P11)
    effects     the effect of each script on each server (P5, P9)
    family      the same for read-write locks, permits, semaphores, latches and bodies that run once
    losses      losses that nothing explains (P3, P5)
    load        the number of commands on the servers (P6)
    counted     the permits of a counting semaphore that a server forgot (P1)
    waits       wake-ups, the length of waits, the order of a fair lock (P6)
    leftovers   traces that are left at the end (P4, P8, P9)

An error is right only while something is wrong, or shortly after (P5).
"""

from typing import Any

from aiolock import LeaseLostError, LockClient, LockEvent, LockTimeoutError
from tests.simulation.checks.effects import Effects
from tests.simulation.checks.family import Family
from tests.simulation.checks.holders import Holders
from tests.simulation.checks.leftovers import check_gone
from tests.simulation.checks.load import Load
from tests.simulation.checks.losses import Losses
from tests.simulation.checks.waits import Waits
from tests.simulation.faults import COSTS_NO_LOCK, HARMLESS, Faults
from tests.simulation.process import Process
from tests.simulation.script_calls import Ran
from tests.simulation.server import Server

# Seconds between two looks at everything.
_INTERVAL = 0.25
# Seconds after which the servers have received all commands that a client sent before it was closed.
_HEARD = 0.5
# Faults that delay a release, or send it elsewhere; and the seconds after which it may fail by them.
_ONLY_DELAYS = (*COSTS_NO_LOCK, "refuse")
_RELEASE_FAILS = 4.0
_ENDS_BY_ITSELF = ("expired", "unreachable", "taken")


class Checks:
    """All checks of one seed; it watches the servers."""

    def __init__(self, faults: Faults, capacity: dict[str, int], most_latency: float) -> None:
        self.faults, self.world = faults, faults.world
        self.topology = faults.topology
        self.holders = Holders(self.world, faults, capacity)
        self.waits = Waits(self.world, faults, most_latency)
        self.losses = Losses(self.world, faults, self.holders, most_latency)
        self.load = Load(self.world, faults.fleet.settings.lease)
        self.effects = Effects(self.world)
        self.family = Family(self.world, capacity)
        # Acquisitions whose ends a server may have forgotten: a later copy of their acquire is granted.
        self.forgotten_ends: set[bytes] = set()
        for server in self.topology.servers:
            server.watcher = self

    def look(self) -> None:
        """Look at everything, now and then."""
        truths = self.topology.truths
        if truths and all(server.is_up and not server.is_stalled for server in truths):
            for server in truths:
                server.tick()
            self.holders.compare()
            self.waits.look(self.holders.grants)
        self.world.after(_INTERVAL, self.look)

    def script_ran(self, server: Server, ran: Ran) -> None:
        self.load.scripts += not ran.is_refused
        self.losses.script_ran(ran)
        self.family.judge(server, ran)
        self.holders.note_grant(ran.family_call)
        self.holders.counted.script_ran(server, ran)
        freed = self.effects.judge(server, ran)
        truths = self.topology.truths
        if server in truths:
            if ran.script.endswith("force_release"):
                self.holders.forced[ran.args[0].decode()] = self.world.now
            self.holders.look_for_grants(server)
            self.waits.script_ran(ran, freed)
        elif truths:
            self.holders.judge_stale(server, ran.lock_calls)

    def moved(self, key: bytes, source: Server, target: Server) -> None:
        """A key has moved from one server to another."""
        self.effects.move(key, source, target)
        self.family.move(source, target)

    def heard(self, process: Process, event: LockEvent) -> None:
        """The client of a process had an event."""
        self.load.heard(event)
        self.losses.heard(process, event)

    def closed(self, locks: LockClient) -> None:
        """A client was closed by an act, or by the end of its process."""
        self.world.after(_HEARD, check_gone, self.faults.fleet, locks)

    def judge_load(self) -> None:
        """Judge the number of commands, at the end."""
        fleet, struck = self.faults.fleet, sum(self.faults.struck.values())
        copies = 1 if self.topology.truths else len(self.topology.servers)
        self.load.judge(self.topology.servers, copies, len(fleet.members), sum(fleet.shared.counts.values()), struck)

    def restarted(self, server: Server, *, lost: bool) -> None:
        if lost:
            self.forgotten_ends |= self.effects.forget(server) | self.family.forget(server)
            self.holders.start_over()

    def refused_alone(self, process: Process, began: float, since: float, error: LockTimeoutError) -> None:
        """
        A task that *began* to use a lock of its own got a refusal: only its own release can have been in the way.

        A release that is refused for seconds fails, and leaves the lock to its lease.
        """
        faults, now = self.faults, self.world.now
        quick = now - since < _RELEASE_FAILS and not faults.refused_for_good
        if quick and process.froze_last < began and not faults.disturbed(began, now, harmless=_ONLY_DELAYS):
            self.world.violation("overtaken", f"{process.name}: {error!r}")

    def failed(self, process: Process, act: str, error: BaseException, started: float, *, fixed_lease: bool) -> None:
        """An act failed, with an error that is right only while something is wrong."""
        self.world.trace(process.name, f"{act}: {error!r}")
        if fixed_lease and getattr(error, "reason", None) in _ENDS_BY_ITSELF:
            return
        # Another act has freed the lock by force.
        if isinstance(error, LeaseLostError) and started <= max(self.holders.forced.values(), default=0.0):
            return
        harmless = COSTS_NO_LOCK if isinstance(error, LeaseLostError) else HARMLESS
        if not self.faults.disturbed(started, self.world.now, harmless=harmless):
            notes: Any = getattr(error, "__notes__", "")
            self.world.violation("false error", f"{process.name} {act}: {error!r} {notes}")
