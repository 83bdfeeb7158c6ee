"""The probable reasons of failures, and what the user can do."""

import os
import re
from ssl import SSLError

from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

from aiolock._redis.error_replies import words_of

_TIMEOUTS = (TimeoutError, RedisTimeoutError)
_HINTS = (
    (r"unknown command [`'\"]?eval", "locks need a server, or a proxy, that runs scripts: EVAL, EVALSHA"),
    (r"authenticat", "the server wants a password"),
    (r"loading the dataset", "it answers when it has all of its data"),
    (r"db index is out of range", "see the server's setting databases, which counts them from 0; a cluster has only 0"),
    (r"select is not allowed in cluster mode", "this server is part of a cluster, which has only database 0"),
    (r"hostname mismatch|ip address mismatch", "use a host name that the server's certificate has"),
    (r"self.signed|issuer certificate", "see that ssl_ca_certs names the authority of the server's certificate"),
    (r"key values mismatch", "see that ssl_keyfile has the key of the certificate in ssl_certfile"),
    (r"wrong version number", "see that the port speaks TLS"),
)

_CLOSED_AT_ONCE = (
    "see whether the port wants TLS: rediss://, or ssl=True; or whether the server has as many clients as its setting "
    "maxclients allows"
)


def underlying(error: Exception) -> Exception:
    """The TLS error behind *error*, if there is one, because redis-py 5.0 leaves its text out; else *error*."""
    return error.__context__ if isinstance(error.__context__, SSLError) else error


def hint_of(error: Exception) -> str | None:
    """The hint for *error*, if its text is a known one."""
    words = str(underlying(error)).lower()
    return next((hint for pattern, hint in _HINTS if re.search(pattern, words)), None)


def in_words(error: Exception) -> str:
    """The text of *error*, and a hint if there is one."""
    words = words_of(error)
    if isinstance(error, ReadOnlyError):
        return "READONLY: this server is a read only replica; locks need its primary, or sentinel.master_for(name)"
    if "unknown command 'SENTINEL'" in words:
        return "this is no Sentinel"
    hint = hint_of(error)
    return words if hint is None or hint in words else f"{words}; {hint}"


def hint_on_opening(error: Exception, connection: AbstractConnection) -> str | None:
    """The hint for an *error* with which *connection* failed before its first use."""
    reset = isinstance(error.__context__, (ConnectionResetError, BrokenPipeError)) or "closed" in str(error)
    if not isinstance(connection, SSLConnection):
        # A server with too many clients says so and closes. That text is lost if redis-py writes after it.
        return _CLOSED_AT_ONCE if reset else None
    if isinstance(error, _TIMEOUTS):
        return "see that the server runs, and that the port speaks TLS"
    if (unreadable := _unreadable(connection)) is not None:
        return unreadable
    if reset or "alert" in str(underlying(error)).lower():
        if connection.certfile is None:
            return "see whether the server wants a certificate of its clients: ssl_certfile, ssl_keyfile"
        return "see whether the server trusts the certificate in ssl_certfile"
    return None


def _unreadable(connection: SSLConnection) -> str | None:
    files = {
        "ssl_ca_certs": connection.ca_certs,
        "ssl_certfile": connection.certfile,
        "ssl_keyfile": connection.keyfile,
    }
    for setting, path in files.items():
        if path is not None and not os.access(path, os.R_OK):
            return f"see {setting}: {path} cannot be read"
    return None


def clearer_of(error: Exception, connection: AbstractConnection) -> Exception | None:
    """A clearer error, if there is one, than the *error* with which *connection* failed before its first use."""
    hint = hint_on_opening(error, connection)
    if hint is None:
        return None
    words = "no connection with TLS could be made in time" if isinstance(error, _TIMEOUTS) else underlying(error)
    return RedisConnectionError(f"{words}; {hint}")
