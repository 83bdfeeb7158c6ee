"""
One connection to the server, full duplex: written to once per turn of the loop, and whenever a batch is full; read as
data comes; made anew when it fails.

A link knows nothing of locks. Its *user* (commands or pub/sub) says what to write and takes what is read.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from time import monotonic
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import RedisError

from aiolock._hints import clearer_of
from aiolock._process import forks
from aiolock._wire import Command, Wire, transport_of

_FULL = 32  # Commands; a batch that large leaves at once.
_LEAST_REST = 0.02  # Seconds between two attempts to connect, also for who is in a hurry.


class LinkUser(Protocol):
    """What a link asks of whoever uses it; all plain calls."""

    def busy(self) -> bool:
        """Whether a connection is wanted."""

    def opened(self) -> None:
        """A new connection is ready; nothing was written to it yet."""

    def waiting(self) -> int:
        """How many commands are to be written."""

    def outgoing(self) -> Sequence[Command]:
        """Take what is to be written now."""

    def received(self, frame: Any) -> None:
        """The server sent *frame*: a reply, a message, or a `ResponseError`."""

    def broken(self, error: Exception) -> None:
        """The connection failed, or none could be made."""

    def tick(self, now: float) -> None:
        """Called every now and then while busy, and when the link has stopped."""


class Link:
    """
    Keeps one connection for its user, while the user is busy and from then on until it fails.

    *patience* (seconds) bounds making a connection and the pause between attempts; *pulse* is the time from one
    tick to the next.
    """

    def __init__(
        self,
        user: LinkUser,
        connect: Callable[[], AbstractConnection],
        *,
        patience: float,
        pulse: float,
    ) -> None:
        self._user = user
        self._connect = connect
        self._patience = patience
        self._pulse = pulse
        self._loop = asyncio.get_running_loop()
        self._forks = forks()
        self._context = Context()  # Of our callbacks: what the user's tasks carry is not kept alive by them.
        self._wanted = asyncio.Event()
        self._hurried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._wire: Wire | None = None
        self.connection: AbstractConnection | None = None  # That is open, or being opened or closed.
        self._flushes = False  # What is to be written will be, at the end of this turn of the loop.
        self._closed = False
        self._pause = 0.0  # Before the next connection is made; nothing while the last one worked.

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._wire is not None

    @property
    def peer(self) -> object:
        """The address at the other end of the connection; ``None`` while there is none."""
        return None if self._wire is None else self._wire.peer

    @property
    def stopped(self) -> bool:
        """Whether somebody else cancelled its task, as the end of a loop does: there will be no connection any more."""
        return self._task is not None and self._task.done() and not self._closed

    def wake(self) -> None:
        """The user has something to write, or became busy."""
        if self._closed:
            return
        if self._wire is None:
            self._want()
        elif not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush, context=self._context)
        elif self._user.waiting() >= _FULL:  # The server need not wait until all of many tasks have had their turn.
            self._write()
        if self._ticker is None:
            self._set_ticker()

    def hurry(self) -> None:
        """Make the next attempt to connect soon."""
        self._hurried.set()

    def fail(self) -> None:
        """Give the connection up and make a new one: the user holds it for dead."""
        if self._wire is not None:
            self._wire.end(TimeoutError("given up"))
            self._wire = None

    def close(self) -> None:
        """Begin to close the connection."""
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        if self._task is not None:
            self._task.cancel()

    async def aclose(self) -> None:
        """Close the connection. Cancelling this leaves the closing to the link's own task, which goes on."""
        self.close()
        if self._task is not None:
            await asyncio.wait([self._task])

    def _want(self) -> None:
        self._wanted.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run(), context=Context())
            self._task.add_done_callback(self._tell_stopped, context=self._context)

    def _tell_stopped(self, task: asyncio.Task[None]) -> None:
        if self.stopped:
            self._user.tick(monotonic())

    def _set_ticker(self, *, skipped: bool = False) -> None:
        due = monotonic() + self._pulse
        self._ticker = self._loop.call_later(self._pulse, self._tick, due, skipped, context=self._context)

    def _tick(self, due: float, skipped: bool) -> None:
        self._ticker = None
        if not self._user.busy():
            return
        now = monotonic()
        # The loop was blocked: what arrived meanwhile is to be read first. By the next tick it has been.
        skips = now >= due + self._pulse and not skipped
        self._set_ticker(skipped=skips)
        if not skips:
            self._user.tick(now)

    def _flush(self) -> None:
        self._flushes = False
        self._write()

    def _write(self) -> None:
        """Write what there is; while the connection is choked it waits, and leaves as one batch."""
        if self._wire is None or not self._wire.writable:
            return
        if forks() != self._forks:  # A forked child must not speak on its parent's connection.
            return
        if batch := self._user.outgoing():
            self._wire.write(batch)

    def _received(self, frame: Any) -> None:
        self._user.received(frame)
        if self._wire is not None:  # Else the user gave the connection up for what it heard.
            self._pause = 0.0

    async def _run(self) -> None:
        await asyncio.sleep(0)  # An eager task must not run before `wake` knows of it.
        while not self._closed:
            while not self._user.busy():
                self._wanted.clear()
                await self._wanted.wait()
            try:
                await self._connected()
            except Exception as error:  # Beside its own errors redis-py lets others out when a connection dies.
                if self._task is not None and self._task.cancelling():  # The failure took the cancellation's place.
                    return
                self._user.broken(error)
            await self._rest()

    async def _rest(self) -> None:
        """Wait before the next attempt, longer and longer, or until `hurry`."""
        pause = self._pause * random.uniform(0.5, 1)
        self._pause = min(self._patience, 2 * self._pause or 0.01)
        self._hurried.clear()
        await asyncio.sleep(min(pause, _LEAST_REST))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause - _LEAST_REST):
                await self._hurried.wait()

    async def _connected(self) -> None:
        self.connection = connection = self._connect()
        try:
            await self._open(connection)
            self._wire = wire = Wire(connection, self._received, self._write)
            self._user.opened()
            self._write()
            raise await self._ended(wire)
        finally:
            self._wire = None
            if forks() == self._forks:
                await discard(connection)
                self.connection = None  # Else it is the parent's: to close it takes it out of the selector of both.

    async def _open(self, connection: AbstractConnection) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await connect(connection)
        except Exception as error:
            if (clearer := clearer_of(error, connection)) is not None:
                raise clearer from error
            raise

    async def _ended(self, wire: Wire) -> Exception:
        try:
            return await wire.ended()
        except asyncio.CancelledError:
            if not self._closed:  # The loop ends without a close: a release may just be asked for.
                await asyncio.sleep(0)
                self._write()
            raise


async def connect(connection: AbstractConnection) -> None:
    """Open *connection*, as redis-py does, but for certificates, which are read in a thread: it takes them a while."""
    if isinstance(connection, SSLConnection):
        with suppress(OSError):  # The connection will meet it again, and have words for it.
            await asyncio.to_thread(connection.ssl_context.get)
    await connection.connect()  # type: ignore[no-untyped-call]


async def discard(connection: AbstractConnection) -> None:
    """Close *connection* at once."""
    if (transport := transport_of(connection)) is not None:
        transport.abort()  # A close would wait for the other side: to read what is left, to say goodbye.
    with suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)
    await asyncio.sleep(0)  # The transport closes in the next turn of the loop.
