"""
An open connection to the server: commands go out and frames come in as plain calls, with no task in between.

redis-py makes the connection (address, TLS, password, database, name). From then on its stream reader would cost a task
switch for each read and a coroutine for each reply; so the wire takes over the transport, and parses with hiredis, as
redis-py does.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection, DefaultParser
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

Command = tuple[Any, ...]

# Bytes read at once. With more, more replies wait for their tasks at the same time, each of them several objects that
# are new to the garbage collector, and it runs more often.
_MOST = 2048
_NOTHING = object()  # No frame is complete yet.
# Redis before 7.0 wraps what a command inside of a script was refused with.
_REFUSED_IN_SCRIPT = re.compile(r"ERR Error running script .*@user_script: ?\d+: -(?P<refusal>.*)", re.DOTALL)
# redis-py 5.0 knows these in its clients of clusters only.
_OF_CLUSTERS: dict[str, Callable[[str], ResponseError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "TRYAGAIN": TryAgainError,
}


class UnsupportedConnectionError(TypeError):
    """The connection is none that a wire can take over."""


def transport_of(connection: AbstractConnection) -> asyncio.Transport | None:
    """The transport of an open *connection*; ``None`` of one that is closed, or is none of asyncio's."""
    return getattr(connection._writer, "transport", None)


def _error_of(reply: str) -> Exception:
    """What redis-py makes of an error reply; of a script's, what it makes of the command that was refused."""
    if wrapped := _REFUSED_IN_SCRIPT.fullmatch(reply):
        reply = wrapped["refusal"]
    code, _, rest = reply.partition(" ")
    error: Exception
    if code in _OF_CLUSTERS:
        error = _OF_CLUSTERS[code](rest)
        error.args = (reply,)  # Where to, without whether that is MOVED or ASK, would be a riddle.
        return error
    error = DefaultParser.parse_error(reply)  # type: ignore[no-untyped-call]
    return error


class Wire(asyncio.BufferedProtocol):
    """
    Takes *connection* over.

    *received* is called with every frame: a reply, a message, or a `ResponseError`; *writable* when writing makes sense
    again after it did not.

    Raises:
        UnsupportedConnectionError: *connection* is open, but not by asyncio.
    """

    def __init__(
        self, connection: AbstractConnection, received: Callable[[Any], object], writable: Callable[[], object]
    ) -> None:
        self._received = received
        self._writable = writable
        self._reader = hiredis.Reader(replyError=_error_of, notEnoughData=_NOTHING)
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[Exception] = self._loop.create_future()
        self._buffer: memoryview = memoryview(bytearray(_MOST))  # TLS fills slices of it, which must be no copies.
        self._deaf = False  # Nobody listens any more.
        self._lost = False
        self._paused = False  # What was written has not left yet; more would only pile up.
        transport = transport_of(connection)
        if transport is None:
            raise UnsupportedConnectionError(f"{type(connection).__qualname__} has no transport of asyncio's")
        self._transport = transport
        transport.set_protocol(self)
        if transport.is_closing():  # Whoever listened before was told, and nobody will be told again.
            self.connection_lost(None)

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

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.feed(self._buffer, 0, nbytes)  # type: ignore[arg-type]  # Takes any buffer.
        try:
            while not self._deaf and (frame := self._reader.gets()) is not _NOTHING:
                if isinstance(frame, RedisConnectionError):  # By what it says, the server will not go on.
                    self._deaf = True  # What follows must not be taken for the answer to the call that it answers.
                    self.end(frame)
                else:
                    self._received(frame)
        except hiredis.ProtocolError as error:
            self.end(error)
        if nbytes == _MOST:  # There is more, and uvloop would go on reading: the tasks are to have a turn.
            self._transport.pause_reading()
            self._loop.call_soon(self._go_on_reading)

    def _go_on_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self.end(exc or RedisConnectionError("the server closed the connection"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._writable()
