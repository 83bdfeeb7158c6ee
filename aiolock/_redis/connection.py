"""
One connection to the server, full duplex: a writer task writes what there is once per turn of the loop, a reader task
reads; made anew when it fails.

A connection knows nothing of scripts. Its *user* (a pipeline, or pub/sub) says what to write and takes what is read.

Rules:
1. What is owed is waited for. The end of a loop cancels every task, and those of the connection with them: cancelled by
   somebody else, it goes on until nothing is owed any more, as tasks that hold locks are yet to release them. Cancelled
   once more, it ends.
2. Only the reader ends a connection: whoever holds it for dead lets the reader know (`fail`).
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from time import monotonic
from typing import Any, Protocol

import hiredis
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import RedisError, ResponseError

from aiolock._process import Lineage
from aiolock._redis.hints import clearer_of
from aiolock._redis.replies import understood

Command = tuple[Any, ...]

_MOST_WOKEN = 128  # Then the tasks have a turn, and the server gets what they send meanwhile.
_LEAST_REST = 0.02  # Seconds between two attempts to connect, also for who is in a hurry.


class User(Protocol):
    """What a connection asks of whoever uses it; plain calls, but for the greeting."""

    def busy(self) -> bool:
        """Whether a connection is wanted."""

    def owed(self) -> bool:
        """Whether anybody waits for an answer, or is yet to say something that must be heard."""

    async def greet(self, connection: AbstractConnection) -> None:
        """Ask on a new *connection* what is to be known first; if this raises, it is of no use."""

    def opened(self, took: float) -> None:
        """A new connection is ready, which took so many seconds; nothing was written to it but the greeting."""

    def outgoing(self) -> Sequence[Command]:
        """Take what is to be written now."""

    def received(self, frame: Any) -> int:
        """The server sent *frame*: a reply, a message, or a `ResponseError`; how many waiters that may have woken."""

    def broken(self, error: Exception, waited: float) -> None:
        """The connection failed, or none could be made within the seconds that it *waited*."""

    def tick(self, now: float) -> None:
        """Called every now and then while busy, and when the connection has stopped."""


class Connection:
    """
    Keeps one connection of redis.asyncio for its user, while the user is busy and from then on until it fails.

    *patience* (seconds) bounds making a connection and the pause between attempts; *pulse* is the time from one
    tick to the next.
    """

    # Invariant: the reader task connects, reads, and has one writer task while it is connected. `_limit` bounds the
    # reading: `fail` lets it run out.

    def __init__(
        self,
        user: User,
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
        self._forks = Lineage.forks
        self._context = Context()  # Of our callbacks: what the user's tasks carry is not kept alive by them.
        self._wanted = asyncio.Event()  # There is something to write, or to connect for.
        self._hurried = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._limit = asyncio.timeout(None)
        self.raw: AbstractConnection | None = None  # That is open, or being opened or closed.
        self.connected: bool = False
        self.closed: bool = False
        self._leaving = False  # Somebody else cancelled the reader: it ends when nothing is owed any more.
        self._pause = 0.0  # Before the next connection is made; nothing while the last one worked.
        self._attempt: float | None = None  # Since when a connection is being made.

    @property
    def stopped(self) -> bool:
        """Whether somebody else cancelled its task, as the end of a loop does: there will be no connection any more."""
        return self._reader is not None and self._reader.done() and not self.closed

    def wake(self) -> None:
        """The user has something to write, or became busy."""
        if self.closed:
            return
        self._wanted.set()
        if self._reader is None:
            self._start()
        if self._ticker is None:
            self._set_ticker()

    def hurry(self) -> None:
        """Make the next attempt to connect soon."""
        self._hurried.set()

    def fail(self) -> None:
        """Give the connection up and make a new one: the user holds it for dead."""
        if self.connected:
            self.connected = False
            self._limit.reschedule(self._loop.time())

    def close(self) -> None:
        """Begin to close the connection."""
        self.closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        if self._reader is not None:
            self._reader.cancel()

    async def aclose(self) -> None:
        """Close the connection. Cancelling this leaves the closing to the connection's own task, which goes on."""
        self.close()
        if self._reader is not None:
            await asyncio.wait([self._reader])

    def _start(self) -> None:
        self._reader = self._loop.create_task(self._run(), context=Context())
        self._reader.add_done_callback(self._reader_ended, context=self._context)

    def _reader_ended(self, reader: asyncio.Task[None]) -> None:
        if self.closed:
            return
        if reader.cancelled() and self._user.owed() and self._begins_to_leave():
            self._start()  # Somebody else cancelled it before it began.
        else:
            self._user.tick(monotonic())

    def _set_ticker(self, *, skipped: bool = False) -> None:
        due = monotonic() + self._pulse
        self._ticker = self._loop.call_later(self._pulse, self._tick, due, skipped, context=self._context)

    def _tick(self, due: float, skipped: bool) -> None:
        self._ticker = None
        if self._reader is not None and self._leaving and not self._user.owed():
            self._reader.cancel()
        if not (self._user.busy() or (self._leaving and not self.stopped)):
            return
        now = monotonic()
        # The loop was blocked: what arrived meanwhile is to be read first. By the next tick it has been.
        skips = now >= due + self._pulse and not skipped
        self._set_ticker(skipped=skips)
        if not skips:
            self._user.tick(now)

    # The reader task.

    async def _run(self) -> None:
        while self._goes_on():
            try:
                await asyncio.sleep(0)  # An eager task must not go on before `wake` knows of it.
                if self._user.busy():
                    await self._serve()
                else:
                    self._wanted.clear()
                    await self._wanted.wait()
            except asyncio.CancelledError:
                if not self._begins_to_leave():
                    raise

    def _goes_on(self) -> bool:
        return not (self.closed or (self._leaving and not self._user.owed()))

    def _begins_to_leave(self) -> bool:
        """Whether it was somebody else who cancelled the reader, for the first time."""
        if self.closed or self._leaving or Lineage.forks != self._forks:
            return False
        assert self._reader is not None
        while self._reader.uncancel():  # More than once in the same turn counts as once.
            pass
        self._leaving = True
        if self._ticker is None:  # Which looks whether it has come to that.
            self._set_ticker()
        return True

    async def _serve(self) -> None:
        """One connection, from the attempt to make it to its end, and the rest before the next one."""
        self._attempt = monotonic()
        try:
            await self._connected()
        except Exception as error:  # Beside its own errors redis-py lets others out when a connection dies.
            if self._goes_on():
                self._user.broken(error, self._waited())
        if self._reader is not None and self._reader.cancelling():  # The failure took the place of that.
            raise asyncio.CancelledError
        if self._goes_on():
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

    def _waited(self) -> float:
        """For how long a connection is being made; not at all once there is one."""
        return 0.0 if self._attempt is None else monotonic() - self._attempt

    async def _connected(self) -> None:
        """Connect, and read until the connection fails; has closed it then."""
        self.raw = raw = self._connect()
        writer: asyncio.Task[None] | None = None
        try:
            await self._open(raw)
            self._limit = asyncio.timeout(None)
            async with self._limit:
                self.connected = True
                took, self._attempt = self._waited(), None
                self._user.opened(took)
                writer = self._loop.create_task(self._write(raw))  # Its context is the reader's.
                writer.add_done_callback(self._writer_ended)
                await self._read(raw)
        finally:
            self.connected = False
            if writer is not None:
                writer.cancel()
            if Lineage.forks == self._forks:
                await discard(raw)
                self.raw = None  # Else it is the parent's: to close it takes it out of the selector of both.
            if writer is not None:
                await asyncio.wait([writer])

    async def _open(self, raw: AbstractConnection) -> None:
        reached = False
        try:
            async with asyncio.timeout(self._patience):
                await connect(raw)
                reached = True
                await self._user.greet(raw)
        except Exception as error:
            if not reached and (clearer := clearer_of(error, raw)) is not None:
                raise clearer from error
            raise

    async def _read(self, raw: AbstractConnection) -> None:
        """Read until the connection fails or is given up; one that leaves, until nothing is owed."""
        woken = 0
        while not self._leaving or self._user.owed():
            try:
                if woken >= _MOST_WOKEN:
                    woken = 0
                    await asyncio.sleep(0)
                try:
                    frame = await raw.read_response(disable_decoding=True, disconnect_on_error=False)
                except ResponseError as error:
                    frame = understood(error)
                woken += self._user.received(frame)
                if self.connected:  # Else the user gave the connection up for what it heard.
                    self._pause = 0.0
            except asyncio.CancelledError:
                assert self._reader is not None
                given_up = self._limit.expired()  # Which cancels, too; somebody else may have in the same turn.
                if self._reader.cancelling() > given_up and not self._begins_to_leave():
                    raise
                if given_up:
                    raise

    # The writer task.

    async def _write(self, raw: AbstractConnection) -> None:
        """Write what there is, as one batch; while the connection is choked it waits, and leaves as one."""
        while True:
            self._wanted.clear()
            # What is given up is not written to; a forked child must not speak on its parent's connection.
            may_write = self.connected and raw.is_connected and Lineage.forks == self._forks
            if may_write and (batch := self._user.outgoing()):
                data = b"".join(map(hiredis.pack_command, batch))
                with suppress(Exception):  # Beside its own errors redis-py lets others out. The reader hears of it.
                    await raw.send_packed_command(data, check_health=False)
            try:
                await self._wanted.wait()
            except asyncio.CancelledError:
                if not self.connected:
                    raise
                # Somebody else cancels every task: it ends with the reader.

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        """Cancelled by somebody else before it began, or while it wrote: then nothing is written any more."""
        self.fail()


async def connect(connection: AbstractConnection) -> None:
    """Open *connection*, as redis-py does, but for certificates, which are read in a thread: it takes them a while."""
    if isinstance(connection, SSLConnection):
        with suppress(OSError):  # The connection will meet it again, and have words for it.
            await asyncio.to_thread(connection.ssl_context.get)
    await connection.connect()  # type: ignore[no-untyped-call]


async def ask(connection: AbstractConnection, *command: str) -> Any:
    """What the server answers to *command*: a reply, or a `ResponseError`."""
    await connection.send_command(*command)
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return understood(error)


async def discard(connection: AbstractConnection) -> None:
    """
    Close *connection* without waiting for the other side.

    If that reads no more, what was written before, and the end of TLS, keep the socket open for a while yet: redis-py
    has nothing to cut it off with. asyncio does, after half a minute.
    """
    with suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)
    await asyncio.sleep(0)  # The transport closes in the next turn of the loop.
