"""A TCP proxy in front of a Redis server that causes faults where a test asks for them.

It reads requests and replies as frames, and matches each reply with its request by order, so that a fault hits one
exchange and not "about that moment". Rules (`faults`, re-exported here) decide about requests, and switches about the
proxy as a whole::

    async with Proxy(server.host, server.port) as proxy:
        lost = proxy.install(Rule(command(b"INCR"), drop_reply()))
        ...                       # the client sees a reset
        await lost.caught()       # ... and the server has executed it

asyncio and uvloop set TCP_NODELAY on every connection by themselves.
"""

import asyncio
import contextlib
import itertools
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.support.faults import (
    ALWAYS,
    Action,
    Log,
    Predicate,
    Request,
    Rule,
    anything,
    command,
    delay,
    drop_reply,
    hold,
    refuse,
    reset,
    script,
    slow_reply,
    withhold_reply,
)
from tests.support.listener import stop_listening
from tests.support.resp import SUBSCRIBING, Frames, arguments, frames_in_reply, is_error, is_message, is_unsolicited

__all__ = [
    "ALWAYS",
    "Action",
    "Connection",
    "Predicate",
    "Proxy",
    "Request",
    "Rule",
    "anything",
    "command",
    "delay",
    "drop_reply",
    "hold",
    "refuse",
    "reset",
    "script",
    "slow_reply",
    "withhold_reply",
]

_HOST = "127.0.0.1"
_CHUNK = 65536
# l_onoff = 1, l_linger = 0: closing sends RST instead of FIN.
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """
    Listens on a port of its own and carries every connection to the target, except where a rule or a switch fails it.
    """

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target = (target_host, target_port)
        self.port = 0
        self.connections: set[Connection] = set()
        self.carrying = asyncio.Event()
        self.carrying.set()
        self.swallowing = False
        self._rules: list[Rule] = []
        self._log = Log()
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._errors: list[Exception] = []
        self._listener: asyncio.Server | None = None
        # Keeps the port ours while the proxy does not listen: other programs take free ports for their connections.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)

    @property
    def url(self) -> str:
        """The address for a client."""
        return f"redis://{_HOST}:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """Every request that arrived, in order."""
        return self._log.entries

    async def saw(self, predicate: Predicate, count: int = 1, within: float = 5.0) -> None:
        """Return when that many matching requests have arrived, counted from the start; AssertionError otherwise."""
        await self._log.saw(predicate, count, within)

    def install(self, rule: Rule) -> Rule:
        """Apply this rule from now on; of several that match a request, the one installed first is applied."""
        self._rules.append(rule)
        return rule

    def clear_rules(self) -> None:
        """Forget every rule; requests and replies that they hold stay held."""
        self._rules.clear()

    def black_hole(self) -> None:
        """Carry nothing any more, in either direction; connections, new ones included, stay open."""
        self.carrying.clear()

    def restore(self) -> None:
        """Carry again, beginning with the held data: a network that healed, with its late packets."""
        self.carrying.set()

    def half_open(self, chosen: Callable[["Connection"], bool]) -> int:
        """Cut these connections towards the server; their clients see open, silent ones. Returns how many."""
        cut = [connection for connection in self.connections if chosen(connection)]
        for connection in cut:
            connection.cut()
        return len(cut)

    def reset_all(self) -> None:
        """Reset every connection that exists now."""
        for connection in self.connections:
            connection.reset()

    async def refuse(self) -> None:
        """Stop listening: new connections are refused, existing ones go on."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            await stop_listening(listener)

    async def accept(self) -> None:
        """Listen again, on the same port."""
        self._listener = await asyncio.start_server(self._connected, _HOST, self.port, reuse_port=True)

    async def cut_off(self) -> None:
        """Refuse new connections, and reset existing ones: for the clients the server is gone."""
        await self.refuse()
        self.reset_all()

    async def heal(self) -> None:
        """Restore, and listen again if connecting was refused."""
        self.restore()
        if self._listener is None:
            await self.accept()

    def swallow_messages(self, on: bool = True) -> None:
        """
        Drop published messages from now on, or stop dropping them; other frames of pub/sub connections are untouched.
        """
        self.swallowing = on

    def note(self, request: Request) -> None:
        """Log a request."""
        self._log.add(request)

    def rule_for(self, request: Request) -> Rule | None:
        """The rule that applies to this request, which uses up one of its times."""
        return next((rule for rule in self._rules if rule.take(request)), None)

    async def __aenter__(self) -> Self:
        self._reservation.bind((_HOST, 0))
        self.port = int(self._reservation.getsockname()[1])
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything. An error inside the proxy, unlike those of the network, fails the test."""
        await self.refuse()
        self._reservation.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        if self._errors:
            raise ExceptionGroup("the proxy itself failed", self._errors)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, next(self._ids), reader, writer)
        self.connections.add(connection)
        task = asyncio.create_task(connection.serve(), name=f"proxy connection {connection.id}")
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._ended(connection, task))
        # A task that is cancelled before its first step closes nothing.
        task.add_done_callback(lambda task: writer.transport.abort())

    def _ended(self, connection: "Connection", task: asyncio.Task[None]) -> None:
        self.connections.discard(connection)
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._errors.append(error)


@dataclass(slots=True)
class _Exchange:
    """A request that was forwarded and the part of its reply so far; frames of other replies do not mix with it."""

    request: Request
    rule: Rule | None
    missing: int
    frames: list[bytes] = field(default_factory=list)

    def complete(self, frame: bytes) -> bool:
        self.frames.append(frame)
        self.missing -= 1
        return self.missing == 0 or is_error(frame)


class Connection:
    """A client's connection, and ours to the server on its behalf."""

    def __init__(self, proxy: Proxy, number: int, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.id = number
        self.target = proxy.target
        self.subscriber = False
        self.requests: list[Request] = []
        self._proxy = proxy
        self._reader = reader
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self._to_server = bytearray()
        self._to_client = bytearray()
        self._expected: deque[_Exchange] = deque()
        # Deaf: requests are logged and dropped. Mute: replies are dropped. An ending runs once no reply is expected.
        self._deaf = False
        self._mute = False
        self._ending: Callable[[], None] | None = None

    async def serve(self) -> None:
        """Carry until both sides are closed. If the server cannot be reached, the client sees a reset."""
        try:
            await self._proxy.carrying.wait()
            replies, self._server = await asyncio.open_connection(*self.target)
            async with asyncio.TaskGroup() as directions:
                directions.create_task(self._carry_requests())
                directions.create_task(self._carry_replies(replies))
        except OSError:
            self.reset()
        finally:
            await self._close()

    def forward(self, request: Request, rule: Rule | None) -> None:
        """Send a request on with the next flush, and expect its reply."""
        if not self._deaf:
            self._to_server += request.raw
            self._expected.append(_Exchange(request, rule, frames_in_reply(request.args)))

    def answer(self, reply: bytes) -> None:
        """Give the client a reply with the next flush."""
        if not self._mute:
            self._to_client += reply

    async def flush_requests(self) -> None:
        """Write the forwarded requests, in one piece."""
        await self._write(self._server, self._to_server)

    async def flush_replies(self) -> None:
        """Write the replies, in one piece."""
        await self._write(self._client, self._to_client)

    def unanswered(self, rule: Rule) -> int:
        """The number of this rule's requests that came after the one whose answer is being handled."""
        return sum(exchange.rule is rule for exchange in self._expected) - 1

    def reset(self) -> None:
        """Reset the client's connection (RST) and close ours to the server."""
        self._deaf = self._mute = True
        if not self._client.is_closing():
            sock: socket.socket = self._client.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._client.close()
        self._close_server()

    def mute(self) -> None:
        """Send nothing to the client any more, but leave the connection open."""
        self._mute = True

    def cut(self) -> None:
        """Close the server's side; the client's stays open, is read, and gets nothing."""
        self._deaf = self._mute = True
        self._close_server()

    def end(self, how: Callable[[], None]) -> None:
        """Take no more requests, and end in this way once all earlier ones are answered: at once if there are none."""
        self._deaf = True
        self._ending = how
        self._end_if_answered()

    async def _carry_requests(self) -> None:
        frames = Frames()
        while chunk := await _read(self._reader):
            for frame in frames.feed(chunk):
                await self._handle_request(frame)
            await self.flush_requests()
        self._client_left()

    def _client_left(self) -> None:
        """Let the server finish its requests, because a rule may wait for the reply; but subscriptions end at once."""
        if self.subscriber:
            self._close_server()
        else:
            self.end(self._close_server)

    async def _carry_replies(self, replies: asyncio.StreamReader) -> None:
        frames = Frames()
        while chunk := await _read(replies):
            for frame in frames.feed(chunk):
                await self._handle_reply(frame)
            await self.flush_replies()
            self._end_if_answered()
        if not self._mute:
            self._client.close()

    async def _handle_request(self, frame: bytes) -> None:
        request = Request(self.id, arguments(frame), time.monotonic(), frame)
        self.requests.append(request)
        self.subscriber = self.subscriber or request.name in SUBSCRIBING
        self._proxy.note(request)
        if self._deaf:
            return
        rule = self._proxy.rule_for(request)
        if rule is None:
            self.forward(request, None)
        else:
            await rule.action.on_request(self, rule, request)

    async def _handle_reply(self, frame: bytes) -> None:
        if is_unsolicited(frame, self.subscriber):
            if not (self._proxy.swallowing and is_message(frame)):
                self.answer(frame)
        elif not self._expected:
            self.answer(frame)
        elif self._expected[0].complete(frame):
            await self._finish(self._expected[0])
            self._expected.popleft()

    async def _finish(self, exchange: _Exchange) -> None:
        reply = b"".join(exchange.frames)
        if exchange.rule is None:
            self.answer(reply)
        else:
            await exchange.rule.action.on_reply(self, exchange.rule, exchange.request, reply)

    async def _write(self, writer: asyncio.StreamWriter | None, data: bytearray) -> None:
        await self._proxy.carrying.wait()
        if data and writer is not None and not writer.is_closing():
            writer.write(bytes(data))
            data.clear()
            with contextlib.suppress(OSError):
                await writer.drain()

    def _end_if_answered(self) -> None:
        if self._ending is not None and not self._expected:
            self._ending()

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _close(self) -> None:
        for writer in (self._client, self._server):
            if writer is not None:
                if not writer.is_closing():
                    writer.transport.abort()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """The next chunk; empty at the end, after a close or a reset of the other side."""
    try:
        return await reader.read(_CHUNK)
    except OSError:
        return b""
