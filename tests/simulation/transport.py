"""The process's end of a connection: asyncio's transport, over a simulated link."""

import asyncio
from collections import deque
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.network import Link
    from tests.simulation.process import Process


class Transport(asyncio.Transport):
    def __init__(self, process: "Process", link: "Link") -> None:
        super().__init__()
        self.link = link
        self.protocol: Any = None
        self.context = copy_context()
        self._process = process
        # Bytes; an exception when the connection breaks; `None` when the server closes it.
        self._incoming: deque[bytes | BaseException | None] = deque()
        self._closing = False
        self._reading = True
        link.transport = self

    def incoming(self, data: bytes | BaseException | None) -> None:
        if self._process.killed:
            return
        self._incoming.append(data)
        if self._reading:
            self._process.arrived(self)

    def read_ready(self) -> None:
        """Hand the data that have arrived to the protocol."""
        data = bytearray()
        while self._incoming and not self._closing and self._reading:
            each = self._incoming.popleft()
            if not isinstance(each, bytes):
                self._deliver(data)
                self._close(each)
                return
            data += each
        self._deliver(data)

    def _deliver(self, data: bytearray) -> None:
        if data:
            self.protocol.data_received(bytes(data))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._process.world is not World.here:
            return
        self._process.freeze_if_armed()
        if not self._process.killed:
            self.link.send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self._close(None)

    def abort(self) -> None:
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        if self._closing:
            return
        self._closing = True
        if World.here is self._process.world and not self._process.killed:
            self.link.finish()
        if not self._process.is_closed():
            self._process.call_soon(self.protocol.connection_lost, error, context=self.context)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._incoming:
            self._process.arrived(self)

    def is_reading(self) -> bool:
        return self._reading

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol  # type: ignore[no-any-return]

    def get_write_buffer_size(self) -> int:
        return 0
