"""One server: an ordinary connection, one for urgent calls, and one for messages."""

import asyncio
from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection

from aiolock._backend import Call
from aiolock._config import Timing
from aiolock._redis.connection import Connection
from aiolock._redis.notifier import Notifier
from aiolock._redis.pipeline import Pipeline
from aiolock._redis.steering import Steering
from aiolock._redis.urgent import UrgentCall, UrgentCopy


class Server:
    """The connections to one server; *steering* makes the decisions that depend on the topology."""

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        steering: Steering,
        timing: Timing,
        notifier: Notifier,
    ) -> None:
        self.notifier: Notifier = notifier
        self.ordinary: Pipeline = Pipeline(connect, steering, timing, urgent=False)
        self.urgent: Pipeline = Pipeline(connect, steering, timing, urgent=True)
        self._both = (self.ordinary, self.urgent)
        # Urgent calls that have not ended.
        self._urgent_calls: dict[Call, UrgentCall] = {}
        self._timing = timing
        self.connections: tuple[Connection, ...] = tuple(each.connection for each in (notifier, *self._both))

    @property
    def pending(self) -> int:
        """The number of calls that wait for a reply; a call on both connections counts twice."""
        return sum(pipeline.pending for pipeline in self._both)

    @property
    def connected(self) -> int:
        """The number of open connections."""
        return sum(connection.connected for connection in self.connections)

    @property
    def is_away(self) -> bool:
        """Whether the last attempt to reach the server has failed, not long ago."""
        return self.ordinary.outage.goes_on

    def submit(self, call: Call) -> None:
        """Send *call*; an urgent call is sent on the connection for urgent calls."""
        if not call.script.urgent:
            self.ordinary.submit(call)
            return
        # A copy that another server has redirected: it belongs to an urgent call already.
        if isinstance(call, UrgentCopy):
            (self.urgent if self.urgent.connection.connected else self.ordinary).submit(call)
            return
        patience, over = self._timing.renewal_patience, self._urgent_calls.pop
        urgent = self._urgent_calls[call] = UrgentCall(call, self.urgent, self.ordinary, patience, over)
        urgent.send()
        self.prepare()

    def prepare(self) -> None:
        """The same as `Backend.prepare`; the next urgent call must follow within one renewal interval."""
        self.urgent.prepare(self._timing.renew_interval)

    def withdraw(self, call: Call) -> bool:
        """The same as `Backend.withdraw`."""
        urgent = self._urgent_calls.get(call)
        return self.ordinary.withdraw(call) if urgent is None else urgent.withdraw()

    def take(self, chosen: Callable[[Call], bool]) -> list[Call]:
        """Remove and return the calls that were not sent yet and are *chosen*, to be submitted elsewhere."""
        taken = [call for pipeline in self._both for call in pipeline.take(chosen)]
        originals = dict.fromkeys(call.original for call in taken if isinstance(call, UrgentCopy))
        urgent = [call for call in originals if call in self._urgent_calls]
        for call in urgent:
            self._urgent_calls[call].leave()
        # A copy that another server has redirected here stays a copy of the urgent call there.
        return [*urgent, *(call for call in taken if not (isinstance(call, UrgentCopy) and call.original in urgent))]

    def disconnect(self) -> None:
        """Close the connections until they are needed again."""
        for connection in self.connections:
            connection.fail()

    def close(self) -> None:
        """Begin to close the connections, which are not needed any more."""
        for connection in self.connections:
            connection.close()

    async def drained(self) -> None:
        """The same as `Backend.drained`."""
        for pipeline in self._both:
            await pipeline.drained()

    async def aclose(self) -> None:
        """Close the connections; pending calls fail."""
        await asyncio.gather(*(each.aclose() for each in (self.notifier, *self._both)))
