"""The connections to one server that calls go over: one for everything, and one for what is urgent."""

from collections.abc import Callable
from functools import partial

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from aiolock._call import Call
from aiolock._config import Timing
from aiolock._lane import Lane, Replication, Steering, Traffic
from aiolock._link import Link
from aiolock._outage import Outage


class Lanes:
    """A pair of lanes."""

    def __init__(
        self, connect: Callable[[], AbstractConnection], steering: Steering, timing: Timing, traffic: Traffic
    ) -> None:
        replication = None if timing.replicas == 0 else Replication(timing.replicas, timing.replicas_timeout)
        make = partial(Lane, connect, steering, replication=replication, traffic=traffic)
        self._ordinary = make(patience=timing.patience, outage=Outage(timing.command_timeout))
        self._urgent = make(patience=timing.renewal_patience, outage=Outage(timing.command_timeout), ordered=False)
        self._both = (self._ordinary, self._urgent)

    @property
    def pending(self) -> int:
        return sum(lane.pending for lane in self._both)

    @property
    def links(self) -> tuple[Link, ...]:
        return tuple(lane.link for lane in self._both)

    @property
    def connections(self) -> int:
        return sum(link.connected for link in self.links)

    def submit(self, call: Call) -> None:
        """Send *call*, in its turn."""
        (self._urgent if call.urgent else self._ordinary).submit(call)

    def withdraw(self, call: Call) -> bool:
        """As `Backend.withdraw`."""
        return any(lane.withdraw(call) for lane in self._both)

    def take(self, chosen: Callable[[Call], bool]) -> list[Call]:
        """Take out, to be submitted elsewhere, the *chosen* ones of the calls that are to be sent from here."""
        return [call for lane in self._both for call in lane.take(chosen)]

    def refuse(self, why: str) -> None:
        """Fail every call that is to be sent from here."""
        for call in self.take(lambda call: True):
            call.fail(ResponseError(why), why)

    def close(self) -> None:
        """Begin to close the connections, which nobody needs any more."""
        for link in self.links:
            link.close()

    def disconnect(self) -> None:
        """Give the connections up, until they are needed again."""
        for link in self.links:
            link.fail()

    async def drained(self) -> None:
        """As `Lane.drained`."""
        for lane in self._both:
            await lane.drained()

    async def aclose(self) -> None:
        """Close the connections; what is pending fails."""
        for lane in self._both:
            await lane.aclose()
