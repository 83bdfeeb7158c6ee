"""A replica: it has the data that its primary had a moment ago, and becomes the primary's data at a failover."""

from random import Random

from tests.simulation.redis_data import Snapshot
from tests.simulation.server import Server

_MOST_LAG = 0.02


class Replica:
    def __init__(self, primary: Server, random: Random) -> None:
        self.data: Snapshot = primary.data.snapshot()
        # The version of the primary's data that has arrived here.
        self.version = 0
        self.held_up_until = 0.0
        self._primary, self._random = primary, random
        self._written = 0
        self._arrives = 0.0
        # Writes that were on their way when the primary failed never arrive.
        self._life = 0

    def start_over(self) -> None:
        """Replicate another primary from now on."""
        self._life += 1
        self.data, self.version = self._primary.data.snapshot(), self._written

    def leave(self) -> None:
        """Stop replicating the primary: data on their way do not arrive."""
        self._life += 1

    def write(self) -> int:
        """Note a write to the primary; returns the version of its data."""
        self._written += 1
        world = self._primary.world
        lag = _MOST_LAG * self._random.random() ** 3
        self._arrives = max(self._arrives, self.held_up_until, world.now + lag)
        world.at(self._arrives, self._arrive, self._life, self._written, self._primary.data.snapshot())
        return self._written

    def _arrive(self, life: int, version: int, data: Snapshot) -> None:
        if life == self._life and self._primary.is_up:
            self.data, self.version = data, version
            self._primary.replicated(version)
