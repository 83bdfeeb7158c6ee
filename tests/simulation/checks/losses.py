"""
Every loss that a holder is told of has a cause.

    false loss   a process that can reach a server that has its lock keeps it: the loss of a lock that is renewed is
                 explained by a fault that struck the process, the server, or a connection between them since the last
                 renewal, and a lease that is not renewed lasts until shortly before its end on the server (P3, P5)
"""

from typing import TYPE_CHECKING

from aiolock import LockEvent, Lost
from tests.simulation.process import Process
from tests.simulation.script_calls import Ran
from tests.simulation.server import Server
from tests.simulation.world import World
from tests.support.inside import acquisition_of

if TYPE_CHECKING:
    from tests.simulation.checks.holders import Held, Holders
    from tests.simulation.faults import Faults

# The reasons of losses that acts cause, without a fault.
_BY_ACTS = ("forced", "closed", "orphaned", "max_hold")
# The part of a lease that is left on the server when its end is reported: the margin, and time to clean up.
_MARGIN, _SHORT = 0.26, 0.1


class Losses:
    def __init__(self, world: World, faults: "Faults", holders: "Holders", most_latency: float) -> None:
        self.world, self.faults, self.holders = world, faults, holders
        self._slack = 0.02 + 4 * most_latency
        # The time of the last grant or renewal by a server, by lock and acquisition.
        self._prolonged: dict[tuple[bytes, bytes], float] = {}

    def script_ran(self, ran: Ran) -> None:
        for key, acquisition in ran.prolonged():
            self._prolonged[key, acquisition] = self.world.now

    def heard(self, process: Process, event: LockEvent) -> None:
        """A client had an event."""
        if isinstance(event, Lost) and event.reason not in _BY_ACTS and not event.ran_out:
            for held in self.holders.held:
                if (held.process, held.name, held.lease.token) == (process, event.name, event.token):
                    self._judge(held, event)
                    return

    def _judge(self, held: "Held", event: Lost) -> None:
        key, acquisition = held.name.encode(), acquisition_of(held.lease)
        if acquisition is None or (key, acquisition) not in self._prolonged:
            return
        since, server = self._prolonged[key, acquisition], self.faults.topology.truth(held.name)
        if (
            self.holders.gone_at(held.name) >= since
            or held.process.froze_last >= since
            # The answer may be on its way.
            or self.world.now - since < self._slack
            or self.faults.reached(held.process, server, since)
        ):
            return
        left = 0.0 if server is None else self._left(server, held, acquisition)
        if getattr(held.lease, "watched", False) or left > _MARGIN * held.lease.lease + _SHORT + self._slack:
            words = f"{held.name}: {held}, was told that it is lost ({event.reason}), {left:.3f} s before its end"
            self.world.violation("false loss", f"{words}, and nothing was wrong since {since:.3f}")

    def _left(self, server: Server, held: "Held", acquisition: bytes) -> float:
        """The seconds for which the lock still lives on the server."""
        server.tick()
        value = server.data.find(held.name.encode())
        if not isinstance(value, dict) or value.get(b"aiolock:acquisition") != acquisition:
            return 0.0
        return server.data.left(held.name.encode()) / 1000
