"""One server: a connection for everything, one for what is urgent, and one for messages."""

from collections.abc import Callable

from redis.asyncio.connection import AbstractConnection

from aiolock._backend import Call
from aiolock._config import Timing
from aiolock._redis.connection import Connection
from aiolock._redis.notifier import Notifier
from aiolock._redis.pipeline import Pipeline, Steering, Traffic


class Server:
    """The connections to one server; *steering* is what they ask when it is not theirs to know."""

    def __init__(
        self,
        connect: Callable[[], AbstractConnection],
        steering: Steering,
        timing: Timing,
        traffic: Traffic,
        notifier: Notifier,
    ) -> None:
        self.notifier: Notifier = notifier
        self.ordinary: Pipeline = Pipeline(connect, steering, traffic, timing, urgent=False)
        self.urgent: Pipeline = Pipeline(connect, steering, traffic, timing, urgent=True)
        self._both = (self.ordinary, self.urgent)
        self.connections: tuple[Connection, ...] = tuple(each.connection for each in (notifier, *self._both))

    @property
    def pending(self) -> int:
        """Calls that wait for their reply."""
        return sum(pipeline.pending for pipeline in self._both)

    @property
    def connected(self) -> int:
        """How many of the connections are open."""
        return sum(connection.connected for connection in self.connections)

    def submit(self, call: Call) -> None:
        """Send *call*, in its turn."""
        (self.urgent if call.script.urgent else self.ordinary).submit(call)

    def withdraw(self, call: Call) -> bool:
        """As `Backend.withdraw`."""
        return any(pipeline.withdraw(call) for pipeline in self._both)

    def take(self, chosen: Callable[[Call], bool]) -> list[Call]:
        """Take out, to be submitted elsewhere, the *chosen* ones of the calls that are to be sent from here."""
        return [call for pipeline in self._both for call in pipeline.take(chosen)]

    def disconnect(self) -> None:
        """Give the connections up, until they are needed again."""
        for connection in self.connections:
            connection.fail()

    def close(self) -> None:
        """Begin to close the connections, which nobody needs any more."""
        for connection in self.connections:
            connection.close()

    async def drained(self) -> None:
        """As `Backend.drained`."""
        for pipeline in self._both:
            await pipeline.drained()

    async def aclose(self) -> None:
        """Close the connections; what is pending fails."""
        await self.notifier.aclose()
        for pipeline in self._both:
            await pipeline.aclose()
