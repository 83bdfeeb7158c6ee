"""
An open connection to the server: commands go out and frames come in as plain calls, with no task in between.

redis-py makes the connection (address, TLS, password, database, name). From then on its stream reader would cost a task
switch for each read and a coroutine for each reply; so the wire takes over the transport, and parses with hiredis, as
redis-py does.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection, DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError

Command = tuple[Any, ...]

_NOTHING = object()  # No frame is complete yet.


class Wire(asyncio.Protocol):
    """
    Takes *connection* over.

    *received* is called with every frame: a reply, a message, or a `ResponseError`; *writable* when writing makes sense
    again after it did not.
    """

    def __init__(
        self, connection: AbstractConnection, received: Callable[[Any], object], writable: Callable[[], object]
    ) -> None:
        self._received = received
        self._writable = writable
        self._reader = hiredis.Reader(replyError=DefaultParser.parse_error, notEnoughData=_NOTHING)
        self._end: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._deaf = False  # Nobody listens any more.
        self._lost = False
        self._paused = False  # What was written has not left yet; more would only pile up.
        assert connection._writer is not None  # It is connected.
        self._transport: asyncio.WriteTransport = connection._writer.transport
        self._transport.set_protocol(self)

    @property
    def peer(self) -> object:
        """The address at the other end."""
        return self._transport.get_extra_info("peername")

    @property
    def writable(self) -> bool:
        """Whether writing makes sense now."""
        # A transport of uvloop that is lost refuses to write, before anybody had a turn to notice the loss.
        return not (self._paused or self._lost or self._transport.is_closing())

    def write(self, batch: Sequence[Command]) -> None:
        """Send *batch*, in one write."""
        self._transport.write(b"".join(map(hiredis.pack_command, batch)))

    def end(self, error: Exception) -> None:
        """The connection is of no use any more; the first *error* counts."""
        if not self._end.done():
            self._end.set_result(error)

    async def ended(self) -> Exception:
        """Wait until the connection is of no use any more, and tell why. Nothing is received afterwards."""
        try:
            return await self._end
        finally:
            self._deaf = True

    # What the transport calls.

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while not self._deaf and (frame := self._reader.gets()) is not _NOTHING:
                if isinstance(frame, RedisConnectionError):  # By what it says, the server will not go on.
                    self._deaf = True  # What follows must not be taken for the answer to the call that it answers.
                    self.end(frame)
                else:
                    self._received(frame)
        except hiredis.ProtocolError as error:
            self.end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.end(exc or RedisConnectionError("the server closed the connection"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._writable()
