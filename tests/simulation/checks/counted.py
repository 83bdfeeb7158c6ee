"""
The permits of a counting semaphore that come on top of its number, because a server forgot who has them.

As documented, the number begins anew when the server has lost it. Permits that were acquired before are held beside
the new ones, and those that are put back later stay.
"""

from tests.simulation.faults import Faults
from tests.simulation.script_calls import GRANTED, Ran
from tests.simulation.server import Server
from tests.simulation.world import World

_KEY = b"sem"


class Counted:
    def __init__(self, world: World, faults: Faults) -> None:
        self.world, self.faults = world, faults
        # The acquisitions that have permits, with their number and the time of the grant.
        self._taken: dict[bytes, tuple[int, float]] = {}
        # The last number on each server.
        self._counts: dict[str, bytes | None] = {}
        # The permits that were put back on top.
        self._put_back = 0

    @property
    def on_top(self) -> int:
        """The number of permits that there may be beside the semaphore's own."""
        lost = self.faults.lost_until(_KEY.decode())
        return self._put_back + sum(number for number, since in self._taken.values() if since <= lost)

    def script_ran(self, server: Server, ran: Ran) -> None:
        call, now = ran.family_call, server.data.values.get(_KEY)
        if call is None or call.key != _KEY or call.is_by_hand:
            return
        has_changed, self._counts[server.name] = self._counts.get(server.name) != now, now
        if call.ends:
            _, since = self._taken.pop(call.acquisition, (0, 0.0))
            if has_changed and since <= self.faults.lost_until(_KEY.decode()):
                self._put_back += call.number
        elif call.status == GRANTED and (has_changed or call.acquisition not in self._taken):
            self._taken[call.acquisition] = call.number, self.world.now
