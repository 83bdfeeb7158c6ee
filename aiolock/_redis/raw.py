"""Opening and closing a connection of redis-py, and asking a question on it; `Connection` does the rest."""

import asyncio
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from aiolock._redis.error_replies import understood

# Seconds for which the last act of a loop waits for the other side.
_LAST_WAIT = 0.25


async def connect(connection: AbstractConnection) -> None:
    """Open *connection*, as redis-py does; but certificates are read in a thread, because that takes a while."""
    if isinstance(connection, SSLConnection):
        # The connection meets the error again, and reports it.
        with suppress(OSError):
            await asyncio.to_thread(connection.ssl_context.get)
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is None or task.cancelling():
            raise
        # This task was not cancelled: the user's credential provider, for example, awaited a task that was.
        raise RedisConnectionError("what the connection's credential provider awaited was cancelled") from error


async def ask(connection: AbstractConnection, *command: str) -> Any:
    """The server's answer to *command*: a reply, or a `ResponseError`."""
    await connection.send_command(*command)
    try:
        return await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return understood(error)


async def discard(connection: AbstractConnection, *, last: bool = False) -> None:
    """
    Close *connection* without waiting for the other side, or, as the *last* act of its loop, with a short wait.

    Unsent data, or the end of TLS, keep the socket open until the other side has read or answered them: redis-py cannot
    abort it, and asyncio aborts it after half a minute. If the loop ends before, the socket stays open until Python
    collects it, with a warning.
    """
    with suppress(RedisError, OSError):
        if last:
            async with asyncio.timeout(_LAST_WAIT):
                await connection.disconnect()
        else:
            await connection.disconnect(nowait=True)
    # The transport closes in the next turn of the loop.
    await asyncio.sleep(0)
