"""A network between servers of this machine that can be parted: across the gap there is silence, not an error.

Each server listens on its ordinary port, which only its own side knows; a relay makes it known to all others; and it
sends from an address of its own, by which the relays of the others recognise it. On Linux a server can send
from any address of 127.0.0.0/8.
"""

import asyncio
import itertools
import threading
from types import TracebackType
from typing import Self

from tests.support.listener import stop_listening

_HOST = "127.0.0.1"
_CHUNK = 65536
_PATIENCE = 10.0


class Relay:
    """A port that stands for a server's port, which is `target` once that is known."""

    def __init__(self, network: "Network", address: str) -> None:
        self.target = 0
        self.port = 0
        self._network = network
        self._address = address

    async def listen(self) -> asyncio.Server:
        listener = await asyncio.start_server(self._accepted, _HOST, 0)
        self.port = int(listener.sockets[0].getsockname()[1])
        return listener

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        # A task that is cancelled before its first step closes nothing.
        task.add_done_callback(lambda task: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source: str = writer.get_extra_info("peername")[0]
        onward: asyncio.StreamWriter | None = None
        try:
            replies, onward = await asyncio.open_connection(_HOST, self.target)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._carry(source, reader, onward))
                directions.create_task(self._carry(source, replies, writer))
        except* OSError:
            pass
        finally:
            for each in (writer, onward):
                if each is not None:
                    each.transport.abort()

    async def _carry(self, source: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry data until either side closes; data across the gap is lost."""
        while chunk := await reader.read(_CHUNK):
            if self._network.connects(source, self._address):
                writer.write(chunk)
                await writer.drain()
        raise ConnectionResetError


class Network:
    """Relays, in a thread of their own, because tests block theirs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network")
        self._listeners: list[asyncio.Server] = []
        self._addresses = (f"127.0.0.{number}" for number in itertools.count(2))
        self._parted: frozenset[str] = frozenset()

    def new_address(self) -> str:
        """An address that no other server sends from."""
        return next(self._addresses)

    def relay(self, address: str) -> Relay:
        """A relay for a port of the server that sends from *address*."""
        relay = Relay(self, address)
        self._listeners.append(asyncio.run_coroutine_threadsafe(relay.listen(), self._loop).result(_PATIENCE))
        return relay

    def part(self, *addresses: str) -> None:
        """From now on these servers reach each other, and all others reach each other."""
        self._parted = frozenset(addresses)

    def connects(self, one: str, other: str) -> bool:
        """Whether the two reach each other."""
        return (one in self._parted) == (other in self._parted)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for listener in self._listeners:
            await stop_listening(listener)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
