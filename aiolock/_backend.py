"""`Backend.submit` sends a script and gives a `Call` to wait for; to which server, is the topology's matter."""

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol

from aiolock._call import Argument, Call
from aiolock._lane import Traffic
from aiolock._lanes import Lanes
from aiolock._notifier import Watcher
from aiolock._process import forks
from aiolock._scripts import Script


class Topology(Protocol):
    """Where the servers are, and which of them has what."""

    doubted: Callable[[Callable[[str], bool]], object]
    """Called when a server may have forgotten its locks; the argument says of a key whether it was that server's."""

    @property
    def apart(self) -> bool:
        """As `Backend.apart`."""

    @property
    def traffic(self) -> Traffic:
        """What was written so far, to all servers."""

    @property
    def notifier(self) -> Watcher:
        """Where unlock messages arrive."""

    def lanes_of(self, keys: tuple[str, ...]) -> Lanes:
        """The connections to the server that has *keys*."""

    def lanes(self) -> Iterable[Lanes]:
        """The connections to every server."""

    async def aclose(self) -> None:
        """Close every connection; what is pending fails."""


class Backend:
    """What the floors above need of Redis, to send commands."""

    def __init__(self, topology: Topology, command_timeout: float) -> None:
        self._topology = topology
        self._command_timeout = command_timeout
        self._loop = asyncio.get_running_loop()
        self._forks = forks()

    @property
    def apart(self) -> bool:
        """Whether two locks may be on two servers, so that no script may have the keys of both."""
        return self._topology.apart

    @property
    def pending(self) -> int:
        """Calls that wait for their reply."""
        return sum(lanes.pending for lanes in self._topology.lanes())

    @property
    def connections(self) -> int:
        """Connections open now."""
        return sum(lanes.connections for lanes in self._topology.lanes())

    @property
    def batches(self) -> int:
        """Writes so far."""
        return self._topology.traffic.batches

    @property
    def commands(self) -> int:
        """Commands written so far."""
        return self._topology.traffic.commands

    def submit(
        self,
        script: Script,
        keys: tuple[str, ...],
        *args: Argument,
        patience: float | None = None,
        until: float = 0.0,
        urgent: bool = False,
    ) -> Call:
        """
        Send *script*; the call fails for its caller after *patience* seconds (the command timeout if ``None``).

        It is sent again after failures until then, or until *until* (monotonic clock) if that is later.
        Nothing queues before an *urgent* call.
        """
        deadline = monotonic() + (self._command_timeout if patience is None else patience)
        call = Call(script, keys, args, deadline=deadline, until=max(deadline, until), loop=self._loop, urgent=urgent)
        if forks() != self._forks:  # A forked child must not speak on its parent's connections.
            call.fail(RuntimeError("forked"), "this is not the process that connected")
            return call
        self._topology.lanes_of(keys).submit(call)
        return call

    def withdraw(self, call: Call) -> bool:
        """Do not send *call*, which nobody awaits any more; ``False`` if it has been sent."""
        return self._topology.lanes_of(call.keys).withdraw(call)

    async def drained(self) -> None:
        """As `Lane.drained`."""
        while self.pending:
            for lanes in self._topology.lanes():
                await lanes.drained()

    async def aclose(self) -> None:
        """Close the connections; what is pending fails."""
        await self._topology.aclose()
