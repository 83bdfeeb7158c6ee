"""Two servers that take turns as the primary; the other one replicates it, and lags behind."""

from random import Random

from tests.simulation.replica import Replica
from tests.simulation.server import Server


class Pair:
    def __init__(self, primary: Server, standby: Server, random: Random) -> None:
        self.primary, self.standby = primary, standby
        self._random = random
        # Whether a promotion is under way: the old primary does not follow the new one yet.
        self.is_changing = False
        # The version of the data after the last key that moved here, which no client had confirmed here.
        self.moved = 0
        self._follow()

    def promote(self) -> bool:
        """
        The standby becomes the primary, with the data that it has; the old primary knows nothing of it.

        Returns whether keys are lost that had moved here.
        """
        old, new = self.primary, self.standby
        assert old.replica is not None
        data, version = old.replica.data, old.replica.version
        old.replica.leave()
        old.replica = None
        self.primary, self.standby, self.is_changing = new, old, True
        lost, self.moved = version < self.moved, 0
        new.take_over(data)
        return lost

    def demote(self) -> None:
        """The old primary follows the new one."""
        self.standby.become_replica()
        self.is_changing = False
        self._follow()

    def _follow(self) -> None:
        self.standby.is_replica = True
        self.primary.replica = Replica(self.primary, self._random)
