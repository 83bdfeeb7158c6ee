"""
One connection to the server, full duplex: written to in batches, read by one task, made anew when it fails.

A link knows nothing of locks. Its *user* (commands or pub/sub) says what to write and takes what is read.
Waiting for a reply never holds anything up: whatever accumulates while a write is under way leaves as one batch.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from time import monotonic
from typing import Any, Protocol

from hiredis import pack_command
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

Command = tuple[Any, ...]


class LinkUser(Protocol):
    """What a link asks of whoever uses it; all plain calls."""

    def busy(self) -> bool:
        """Whether a connection is wanted."""

    def opened(self) -> None:
        """A new connection is ready; nothing was written to it yet."""

    def outgoing(self) -> Sequence[Command]:
        """Take what is to be written now."""

    def received(self, frame: Any) -> None:
        """The server sent *frame*: a reply, a message, or a `ResponseError`."""

    def broken(self, error: Exception) -> None:
        """The connection failed, or none could be made."""

    def tick(self, now: float) -> None:
        """Called every now and then while busy."""


class Connector:
    """
    Makes connections like those of a user's `Redis`, without touching its pool.

    Locks need connections of their own: a renewal must not queue behind the application's commands, nor fail
    because its pool is exhausted. Re-sending is decided here, not by redis-py's retries: only who knows that a
    command may have been sent twice can tell what its reply means. RESP2 carries everything the scripts need.
    """

    def __init__(self, redis: Redis, client_name: str | None) -> None:
        pool = redis.connection_pool
        self._make: Callable[..., AbstractConnection] = pool.connection_class
        self._settings = {
            name: value for name, value in pool.connection_kwargs.items() if not _is_of_the_pool(name)
        } | {
            "decode_responses": False,
            "health_check_interval": 0,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": None,
        }
        if client_name is not None:
            self._settings["client_name"] = client_name
        self._refuse_unknown_settings()

    def _refuse_unknown_settings(self) -> None:
        """Make a connection object, which does no I/O, now: redis-py looks at its settings only then."""
        try:
            self()
        except TypeError as error:
            raise TypeError(f"{error}; what is for aiolock goes into config=LockConfig(...)") from error

    def __call__(self) -> AbstractConnection:
        return self._make(**self._settings)


def _is_of_the_pool(setting: str) -> bool:
    """Whether *setting* serves the retries or the maintenance notifications of the pool that it was taken from."""
    return "maint_notifications" in setting or setting.startswith(("orig_", "retry"))


class Link:
    """
    Keeps one connection for its user, while the user is busy and from then on until it fails.

    *patience* (seconds) bounds making a connection and the pause between attempts; *pulse* is the time from one
    tick to the next.
    """

    def __init__(self, user: LinkUser, connect: Callable[[], AbstractConnection], *, patience: float, pulse: float):
        self._user = user
        self._connect = connect
        self._patience = patience
        self._pulse = pulse
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._conversation: asyncio.Timeout | None = None  # Set while connected; `fail` takes it and ends it.
        self._closed = False
        self._pause = 0.0  # Before the next connection is made; nothing while the last one worked.
        self.batches: int = 0
        self.commands: int = 0

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._conversation is not None

    def wake(self) -> None:
        """The user has something to write, or became busy."""
        if self._closed:
            return
        self._wake.set()
        if self._task is None:
            self._task = self._loop.create_task(self._run(), context=Context())
        if self._ticker is None:
            self._set_ticker()

    def fail(self) -> None:
        """Give the connection up and make a new one: the user holds it for dead."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.reschedule(self._loop.time())

    async def aclose(self) -> None:
        """Close the connection. Cancelling this leaves the closing to the link's own task, which goes on."""
        self._closed = True
        if self._ticker is not None:
            self._ticker.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _set_ticker(self, *, skipped: bool = False) -> None:
        due = monotonic() + self._pulse
        self._ticker = self._loop.call_later(self._pulse, self._tick, due, skipped, context=Context())

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

    async def _run(self) -> None:
        await asyncio.sleep(0)  # An eager task must not run before `wake` knows of it.
        while not self._closed:
            while not self._user.busy():
                self._wake.clear()
                await self._wake.wait()
            try:
                await self._connected()
            except Exception as error:  # Beside its own errors redis-py lets others out when a connection dies.
                if self._task is not None and self._task.cancelling():  # The failure took the cancellation's place.
                    return
                self._user.broken(error)
            await asyncio.sleep(self._pause * random.uniform(0.5, 1))
            self._pause = min(self._patience, 2 * self._pause or 0.01)

    async def _connected(self) -> None:
        connection = self._connect()
        try:
            async with asyncio.timeout(self._patience):
                await connection.connect()  # type: ignore[no-untyped-call]
            self._user.opened()
            async with asyncio.timeout(None) as self._conversation:
                await self._converse(connection)
        finally:
            await _discard(connection)

    async def _converse(self, connection: AbstractConnection) -> None:
        """Write and read until either fails; the reader's failure ends the conversation through `fail`."""
        reader = self._loop.create_task(self._read(connection), context=Context())
        reader.add_done_callback(lambda _: self.fail(), context=Context())
        try:
            while True:
                self._wake.clear()
                await self._write(connection)
                await self._wake.wait()
        except asyncio.CancelledError:
            if reader.done() and not reader.cancelled():
                reader.result()  # Raises what ended the conversation.
            if self._conversation is not None and not self._closed:
                await asyncio.sleep(0)  # The loop ends without a close: a release may just be asked for.
                await self._write(connection)
            raise
        finally:
            self._conversation = None
            reader.cancel()
            await asyncio.wait([reader])

    async def _write(self, connection: AbstractConnection) -> None:
        if batch := self._user.outgoing():
            self.batches += 1
            self.commands += len(batch)
            await connection.send_packed_command(map(pack_command, batch), check_health=False)

    async def _read(self, connection: AbstractConnection) -> None:
        while True:
            try:
                frame = await connection.read_response(disconnect_on_error=False)
            except ResponseError as error:
                frame = error
            self._pause = 0.0
            self._user.received(frame)


async def _discard(connection: AbstractConnection) -> None:
    with suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)
    await asyncio.sleep(0)  # The transport closes in the next turn of the loop.
