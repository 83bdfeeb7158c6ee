"""
One connection to the server, full duplex: all pending commands are written once per turn of the loop, a reader task
reads; after a failure a new connection is made.

A connection knows nothing of scripts. Its *user* (a pipeline, or pub/sub) supplies the commands and takes the replies.

Rules:
1. Replies that are still to come are waited for. At its end, a loop cancels every task, and the reader as well: it then
   goes on until no more replies are to come, because tasks that hold locks have yet to release them. A second
   cancellation ends it.
2. Only the reader ends a connection: a user that gives the connection up tells the reader (`fail`).
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from time import monotonic
from types import coroutine
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from aiolock._process import Lineage
from aiolock._redis.error_replies import understood, worded
from aiolock._redis.hints import clearer_of
from aiolock._redis.raw import connect, discard
from aiolock._redis.user import User

# When replies have woken that many tasks, the reader lets them run, and send their next commands.
_MOST_WOKEN = 128
# The longest time limit for making a connection, in units of `patience`.
_MOST_PATIENT = 3
# Seconds between two attempts to connect, even after `hurry`.
_LEAST_REST = 0.02


class Writer:
    """
    Writes to a *connection* in the running turn of the loop.

    redis-py's coroutine that sends does all of it in its first step, unless the transport is choked. A task would take
    that step a turn later, as no task is eager before Python 3.12: therefore the writer takes the steps itself. It uses
    redis-py's own coroutine, because that of another class may set a time limit, which needs a task.

    *relieved* is called when data that had to wait for the transport have left, *failed* if data may not have left.
    """

    def __init__(
        self, connection: AbstractConnection, relieved: Callable[[], None], failed: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._relieved = relieved
        self._failed = failed
        # A transport keeps the context that it is written to in: that of a caller may keep anything alive.
        self._context = Context()
        self._sending: Coroutine[Any, Any, None] | None = None

    def is_free(self) -> bool:
        """Whether the connection is open, and no earlier data wait for the transport."""
        return self._sending is None and self._connection.is_connected

    def write(self, data: bytes) -> None:
        """Write *data*; only if the writer is free."""
        self._sending = AbstractConnection.send_packed_command(self._connection, data, check_health=False)
        self._context.run(self._step)

    def close(self) -> None:
        """Give up what waits for the transport."""
        sending, self._sending = self._sending, None
        if sending is not None:
            with suppress(Exception):
                sending.close()

    def _step(self) -> None:
        if self._sending is None:
            return
        try:
            awaited = self._sending.send(None)
        except StopIteration:
            self._sending = None
        except BaseException as error:
            self._sending = None
            self._failed()
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            if awaited is None:
                asyncio.get_running_loop().call_soon(self._resume, context=self._context)
            else:
                awaited.add_done_callback(self._resume, context=self._context)

    def _resume(self, awaited: "asyncio.Future[Any] | None" = None) -> None:
        if awaited is not None and not awaited.cancelled():
            # Otherwise asyncio logs the exception, if the writer was closed meanwhile.
            awaited.exception()
        self._step()
        if self._sending is None:
            self._relieved()


class Connection:
    """
    Keeps one connection of redis.asyncio for its user: makes it when the user is busy, and keeps it until it fails.

    *patience* is the time limit for making a connection, in seconds. If the server was reached, but the connection was
    not ready in time, the next attempt has twice as long, up to three times *patience*. *rest* is the longest pause
    between two attempts, *pulse* the time from one tick to the next.
    """

    # Invariant: the reader task connects and reads; there is a writer from then on until the reader closes the
    # connection. `_limit` bounds the reading: `fail` lets it run out.

    # The connection that is open, or is being opened or closed.
    raw: AbstractConnection | None = None
    connected: bool = False
    closed: bool = False
    # What the reader awaits until data arrive, or has awaited last. Another task that awaits it as well goes on in the
    # same turn of the loop, after the reader. If other code cancels it, the reader reads again.
    arrival: "asyncio.Future[Any] | None" = None
    _reader: asyncio.Task[None] | None = None
    _writer: Writer | None = None
    _ticker: asyncio.TimerHandle | None = None
    # Whether the next turn of the loop writes.
    _will_write = False
    # Whether the loop has cancelled the reader, which ends when no more replies are to come.
    _leaving = False
    # The pause before the next attempt; zero while the last connection worked.
    _pause = 0.0
    # The beginning of the present attempt to connect.
    _attempt: float | None = None

    def __init__(
        self,
        user: User,
        connect: Callable[[], AbstractConnection],
        *,
        patience: float,
        pulse: float,
        rest: float | None = None,
    ) -> None:
        self._user = user
        self._connect = connect
        # `_allowed` is the time limit of the next attempt.
        self._patience = self._allowed = patience
        self._longest_rest = patience if rest is None else rest
        self._pulse = pulse
        self._loop = asyncio.get_running_loop()
        self._forks = Lineage.forks
        # Callbacks run in it, so that they keep nothing alive that the user's tasks carry.
        self._context = Context()
        # Set when the user needs a connection.
        self._wanted = asyncio.Event()
        self._hurried = asyncio.Event()
        self._limit = asyncio.timeout(None)

    @property
    def stopped(self) -> bool:
        """Whether other code has cancelled the reader, as the end of a loop does, so that no connection follows."""
        return self._reader is not None and self._reader.done() and not self.closed

    def wake(self, *, at_once: bool = False) -> None:
        """Note that the user became busy, or has something to write, *at_once* or in the next turn of the loop."""
        if self.closed:
            return
        if not self.connected:
            self._wanted.set()
            # At the end of a loop, a reader may have ended before the last release comes; a cancelled one stays so.
            if self._reader is None or (self._reader.done() and not self._reader.cancelled() and self._goes_on()):
                self._start()
        if self._ticker is None:
            self._set_ticker()
        if at_once:
            self._write()
        elif not self._will_write:
            self._will_write = True
            self._loop.call_soon(self._write_later, context=self._context)

    def _write(self) -> None:
        """Write the pending commands as one batch; while there is no connection, or it is choked, they wait."""
        # Nothing is written to a connection that is given up; a forked child must not use its parent's connection.
        if not self.connected or Lineage.forks != self._forks or self._writer is None or not self._writer.is_free():
            return
        try:
            if data := b"".join(map(hiredis.pack_command, self._user.outgoing())):
                self._writer.write(data)
        except BaseException:
            # The user waits for replies to commands that may not have left.
            self.fail()
            raise

    def _write_later(self) -> None:
        self._will_write = False
        self._write()

    def hurry(self) -> None:
        """Make the next attempt to connect soon."""
        self._hurried.set()

    def fail(self) -> None:
        """Give the connection up, which the user takes for dead, and make a new one."""
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
        """Close the connection. If this is cancelled, the connection's own task goes on closing."""
        self.close()
        if self._reader is not None:
            await asyncio.wait([self._reader])

    def _start(self) -> None:
        self._reader = self._loop.create_task(self._run(), context=Context())
        self._reader.add_done_callback(self._reader_ended, context=self._context)

    def _reader_ended(self, reader: asyncio.Task[None]) -> None:
        if self.closed:
            return
        # Other code cancelled the reader before it began.
        if reader.cancelled() and self._user.has_work() and self._begins_to_leave():
            self._start()
        else:
            self._user.tick(monotonic())

    def _set_ticker(self, *, skipped: bool = False) -> None:
        due = monotonic() + self._pulse
        self._ticker = self._loop.call_later(self._pulse, self._tick, due, skipped, context=self._context)

    def _tick(self, due: float, skipped: bool) -> None:
        self._ticker = None
        if self._reader is not None and self._leaving and not self._user.has_work() and self._reader.cancel():
            # The reader looks again whether there is work, as after the cancellation by the loop.
            self._leaving = False
        if not (self._user.busy() or (self._leaving and not self.stopped)):
            return
        now = monotonic()
        # The loop was blocked: data that arrived meanwhile are read first, before the next tick.
        skips = now >= due + self._pulse and not skipped
        self._set_ticker(skipped=skips)
        if not skips:
            self._user.tick(now)

    # The reader task.

    async def _run(self) -> None:
        while self._goes_on():
            try:
                # An eager task must not go on before `wake` knows of it.
                await asyncio.sleep(0)
                if self._user.busy():
                    await self._serve()
                else:
                    self._wanted.clear()
                    await self._wanted.wait()
            except asyncio.CancelledError:
                if not self._begins_to_leave():
                    raise

    def _goes_on(self) -> bool:
        if self.closed or Lineage.forks != self._forks or self._loop.is_closed():
            return False
        return not self._leaving or self._user.has_work()

    def _begins_to_leave(self) -> bool:
        """Whether other code has cancelled the reader for the first time; if so, note that it leaves."""
        if self.closed or self._leaving or Lineage.forks != self._forks:
            return False
        assert self._reader is not None
        # Several cancellations in the same turn count as one.
        while self._reader.uncancel():
            pass
        self._leaving = True
        # The ticker checks whether all replies have come.
        if self._ticker is None:
            self._set_ticker()
        return True

    async def _serve(self) -> None:
        """Serve one connection, from the attempt to make it to its end, and pause before the next one."""
        self._attempt = monotonic()
        try:
            await self._connected()
        # redis-py raises other errors than its own when a connection dies.
        except Exception as error:
            if self._goes_on():
                self._user.broken(worded(error), self._waited())
        # The failure has replaced the cancellation of the reader.
        if self._reader is not None and self._reader.cancelling():
            raise asyncio.CancelledError
        if self._goes_on():
            await self._rest()

    async def _rest(self) -> None:
        """Wait before the next attempt, longer and longer, or until `hurry`; a call during an attempt counts, too."""
        pause = self._pause * random.uniform(0.5, 1)
        self._pause = min(self._longest_rest, 2 * self._pause or 0.01)
        await asyncio.sleep(min(pause, _LEAST_REST))
        with suppress(TimeoutError):
            async with asyncio.timeout(pause - _LEAST_REST):
                await self._hurried.wait()
        self._hurried.clear()

    def _waited(self) -> float:
        """The seconds since the present attempt to connect began; zero once there is a connection."""
        return 0.0 if self._attempt is None else monotonic() - self._attempt

    async def _connected(self) -> None:
        """Connect, read until the connection fails, and close it."""
        self.raw = raw = self._connect()
        try:
            await self._open(raw)
            self._limit = asyncio.timeout(None)
            async with self._limit:
                self.connected = True
                took, self._attempt = self._waited(), None
                self._allow(2 * took)
                self._user.opened(took)
                self._writer = Writer(raw, self.wake, self.fail)
                self._write()
                await self._read(raw)
        finally:
            self.connected = False
            # In a forked child, closing the parent's connection would remove it from the selector of both.
            if Lineage.forks == self._forks:
                if self._writer is not None:
                    self._writer.close()
                await discard(raw, last=not self._goes_on())
                self.raw = None
            self._writer = None

    async def _open(self, raw: AbstractConnection) -> None:
        reached = False
        try:
            async with asyncio.timeout(self._allowed):
                await connect(raw)
                reached = True
                await self._user.greet(raw)
        except Exception as error:
            if isinstance(error, TimeoutError) and raw.is_connected:
                # The credentials, or the way to the server, take their time.
                self._allow(2 * self._allowed)
            if not reached and (clearer := clearer_of(error, raw)) is not None:
                raise clearer from error
            raise

    def _allow(self, seconds: float) -> None:
        """Let the next attempt take *seconds*, but at least and at most what the class docstring says."""
        self._allowed = min(max(self._patience, seconds), _MOST_PATIENT * self._patience)

    @coroutine
    def _reply(self, raw: AbstractConnection) -> Generator[Any, None, Any]:
        """Read one reply. Each step of redis-py's own coroutine yields the future that it awaits: `arrival`."""
        reading = raw.read_response(disable_decoding=True, disconnect_on_error=False)
        try:
            self.arrival = reading.send(None)
            while True:
                try:
                    yield self.arrival
                except BaseException as error:
                    self.arrival = reading.throw(error)
                else:
                    self.arrival = reading.send(None)
        except StopIteration as read:
            return read.value

    async def _read(self, raw: AbstractConnection) -> None:
        """Read until the connection fails or is given up; after a cancellation, until no more replies are to come."""
        woken = 0
        while not self._leaving or self._user.has_work():
            try:
                if woken >= _MOST_WOKEN:
                    woken = 0
                    await asyncio.sleep(0)
                try:
                    frame = await self._reply(raw)
                except ResponseError as error:
                    frame = understood(error)
                woken += self._user.received(frame)
                # Otherwise the user gave the connection up because of a reply.
                if self.connected:
                    self._pause = 0.0
            except asyncio.CancelledError:
                assert self._reader is not None
                # The limit cancels the reader, too; other code may have cancelled it in the same turn, or `arrival`.
                given_up = self._limit.expired()
                if self._reader.cancelling() > given_up and not self._begins_to_leave():
                    raise
                if given_up:
                    raise
