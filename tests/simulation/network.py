"""
The network: connections between processes and servers. Each keeps its order; faults decide about its failures.

A connection may break before or after a command was run, go half-open (nothing arrives, and neither side notices),
deliver data up to a minute late, or fail to open while others live on.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.process import Process
from tests.simulation.server import Server, Session
from tests.simulation.transport import Transport
from tests.simulation.world import World


class Path:
    """The way between one process and one server."""

    def __init__(self) -> None:
        # Data sent before this time arrive after it, since TCP sends them again.
        self.cut_until = 0.0
        self.slow = 1.0
        self.refuses_until = 0.0


@dataclass
class ForkedChild:
    """The tasks that a forked child has from its parent, and its uses of its parent's connections."""

    tasks: "list[asyncio.Task[Any]]"
    uses: list[str] = field(default_factory=list)


class Network:
    def __init__(self, world: World, latency: tuple[float, float]) -> None:
        self.world = world
        self.latency = latency
        self.random = world.generator("network")
        self.servers: dict[str, Server] = {}
        self.links: dict[Link, None] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        # A process for each connection that it waits for, and the time of its last connection.
        self.connecting: list[Process] = []
        self.connected_last: dict[Process, float] = {}
        # The child, if this world is the copy in a forked child.
        self.child: ForkedChild | None = None

    def path(self, process: str, server: str) -> Path:
        return self._paths.setdefault((process, server), Path())

    def delay(self, path: Path) -> float:
        low, high = self.latency
        usual = low + (high - low) * self.random.random() ** 3
        return max(0.0, path.cut_until - self.world.now) + usual * path.slow

    async def connect(self, process: Process, protocol_factory: Any, address: str) -> Any:
        if self.child is not None:
            if asyncio.current_task() in self.child.tasks:
                self.child.uses.append(f"connects to {address}")
            raise ConnectionRefusedError
        server = self.servers[address]
        path = self.path(process.name, server.name)
        answered = process.create_future()
        self.world.after(self.delay(path) + self.delay(path), self._answer, answered, server, path)
        self.connecting.append(process)
        try:
            await answered
        finally:
            self.connecting.remove(process)
        self.connected_last[process] = self.world.now
        transport = Transport(process, Link(self, process, server, path))
        transport.protocol = protocol = protocol_factory()
        protocol.connection_made(transport)
        return transport, protocol

    def _answer(self, answered: Any, server: Server, path: Path) -> None:
        if answered.done() or answered.get_loop().killed:
            return
        if server.is_up and path.refuses_until <= self.world.now:
            answered.set_result(None)
        else:
            answered.set_exception(ConnectionRefusedError(111, "Connect call failed"))


class Link:
    """One connection."""

    def __init__(self, network: Network, process: Process, server: Server, path: Path) -> None:
        self.network, self.process, self.server, self.path = network, process, server, path
        self.world = network.world
        self.transport: Transport | None = None
        self.is_half_open = False
        # The number of replies that still arrive before the connection breaks.
        self.replies_left: int | None = None
        self.wrote_at = 0.0
        self._ended_at_server = False
        self._arrives_there = self._arrives_here = 0.0
        self.session: Session = server.accept(self)
        network.links[self] = None

    # From the process to the server.

    def send(self, data: bytes) -> None:
        if self.network.child is not None:
            self.network.child.uses.append(f"says {data[:200]!r} to {self.server.name}")
            return
        self.wrote_at = self.world.now
        if self.is_half_open or self._ended_at_server:
            return
        # TCP may cut the bytes anywhere.
        if len(data) > 1 and self.network.random.random() < 0.1:
            cut = self.network.random.randrange(1, len(data))
            self._send(data[:cut])
            data = data[cut:]
        self._send(data)

    def _send(self, data: bytes) -> None:
        self._arrives_there = max(self._arrives_there, self.world.now + self.network.delay(self.path))
        self.world.at(self._arrives_there, self._deliver_there, data)

    def _deliver_there(self, data: bytes) -> None:
        if not self._ended_at_server and not self.is_half_open and self.server.is_up:
            self.server.receive(self.session, data)

    def finish(self) -> None:
        """The process closes the connection; data that it sent before still arrive."""
        if self.network.child is not None:
            self.network.child.uses.append(f"closes the connection to {self.server.name}")
            return
        self._arrives_there = max(self._arrives_there, self.world.now + self.network.delay(self.path))
        self.world.at(self._arrives_there, self._finish_there)

    def _finish_there(self) -> None:
        if not self.is_half_open:
            self.end_at_server()

    def end_at_server(self) -> None:
        if not self._ended_at_server:
            self._ended_at_server = True
            self.server.forget(self.session)
            self.network.links.pop(self, None)

    def hold(self, seconds: float) -> None:
        """Data that are sent from now on arrive *seconds* late."""
        self._arrives_there = max(self._arrives_there, self.world.now + seconds)

    # From the server to the process.

    def reply(self, data: bytes) -> None:
        if self.is_half_open:
            return
        if self.replies_left is not None:
            self.replies_left -= 1
            if self.replies_left < 0:
                self.world.trace(self.process.name, f"the connection breaks; a reply is lost: {data[:40]!r}")
                self.reset(forget=False)
                return
        self._send_here(data)

    def close_from_server(self) -> None:
        """The server closes the connection after its replies."""
        self._send_here(None)
        self.end_at_server()

    def _send_here(self, data: bytes | BaseException | None) -> None:
        """Let *data* arrive after all that was sent before: no reply arrives on a connection that is broken."""
        self._arrives_here = max(self._arrives_here, self.world.now + self.network.delay(self.path))
        self.world.at(self._arrives_here, self._deliver_here, data)

    def _deliver_here(self, data: bytes | BaseException | None) -> None:
        if self.transport is not None and not self.is_half_open:
            self.transport.incoming(data)

    def reset(self, *, forget: bool) -> None:
        """The connection breaks. Data of the process still arrive, unless the server is to *forget* them."""
        self._send_here(ConnectionResetError())
        if forget:
            self.end_at_server()
        else:
            self.finish()
