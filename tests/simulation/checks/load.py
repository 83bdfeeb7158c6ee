"""
The load of the servers.

    load   the number of scripts is bounded by the number of events: no polling, no squares (P6)

A command that a server refuses is sent again after a while, and does not count.
"""

from collections.abc import Sequence

from aiolock import Acquired, LockEvent, Lost, NotAcquired, Released
from tests.simulation.server import Server
from tests.simulation.world import World

# Scripts that each of these may cause. A latch is set, counted down and asked in one act.
PER_ACT = 3
PER_EVENT = 1
PER_MESSAGE = 1
PER_FAULT = 5
# For each second of a wait: a waiter in a line, or in a turn, asks again and again, as others may have died.
PER_SECOND, PER_SECOND_IN_LINE = 1.5, 8
_WITH_A_LINE = ("fair_lock", "read_lock", "write_lock", "semaphore")
# For each lease's length of holding: a lease is renewed three times.
PER_LEASE = 4
# For each process: it connects, and looks around.
PER_PROCESS = 20


class Load:
    def __init__(self, world: World, lease: float) -> None:
        self.world, self.lease = world, lease
        self.scripts = self.events = 0
        self.probes = self.held = 0.0

    def heard(self, event: LockEvent) -> None:
        """A client had an event."""
        self.events += 1
        if isinstance(event, Acquired | NotAcquired):
            often = PER_SECOND_IN_LINE if event.kind in _WITH_A_LINE else PER_SECOND
            self.probes += often * event.waited
        elif isinstance(event, Lost | Released):
            self.held += event.held

    def judge(self, servers: Sequence[Server], copies: int, processes: int, acts: int, faults: int) -> None:
        """At the end: did *copies* of the servers run more scripts than the events explain?"""
        causes = {
            "acts": PER_ACT * acts,
            "events": PER_EVENT * self.events,
            "messages": PER_MESSAGE * sum(server.messages for server in servers) / copies,
            "waiting": self.probes,
            "holding": PER_LEASE * self.held / self.lease,
            "faults": PER_FAULT * faults,
            "processes": PER_PROCESS * processes,
        }
        most = sum(causes.values())
        if self.scripts > most * copies:
            words = ", ".join(f"{number:.0f} by {cause}" for cause, number in causes.items())
            self.world.violation("load", f"{self.scripts} scripts, where {most:.0f} are enough: {words}")
