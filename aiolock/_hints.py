"""What a failure probably means, in words for whoever meets it first."""

from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError


def in_words(error: BaseException) -> str:
    """What *error* says, and what it means if that is not the same."""
    words = str(error)
    if isinstance(error, ReadOnlyError):
        return "this server is a read only replica: locks need its primary, or sentinel.master_for(name)"
    if "authenticat" in words.lower():
        return f"{words}; the server wants a password"
    if "unknown command 'SENTINEL'" in words:
        return "this is no Sentinel"
    return words


def clearer_of(error: Exception, connection: AbstractConnection) -> Exception | None:
    """A clearer error, if there is one, for *connection*, which failed with *error* before it was of any use."""
    if isinstance(connection, SSLConnection):
        if isinstance(error, (TimeoutError, RedisTimeoutError)):
            return RedisConnectionError("no connection with TLS could be made in time; see that the port speaks TLS")
    elif isinstance(error.__context__, (ConnectionResetError, BrokenPipeError)) or "closed" in str(error):
        return RedisConnectionError(f"{error}; see whether the port wants TLS: rediss://, or ssl=True")
    return None
