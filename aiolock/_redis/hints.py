"""What a failure probably means and what to do about it, in words for whoever meets it first."""

import os
import re
from ssl import SSLError

from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError
from redis.exceptions import TimeoutError as RedisTimeoutError

_TIMEOUTS = (TimeoutError, RedisTimeoutError)
_HINTS = (
    (r"authenticat", "the server wants a password"),
    (r"db index is out of range", "see the server's setting databases, which counts them from 0; a cluster has only 0"),
    (r"select is not allowed in cluster mode", "this server is part of a cluster, which has only database 0"),
    (r"hostname mismatch|ip address mismatch", "use a host name that the server's certificate has"),
    (r"self.signed|issuer certificate", "see that ssl_ca_certs names the authority of the server's certificate"),
    (r"key values mismatch", "see that ssl_keyfile has the key of the certificate in ssl_certfile"),
    (r"wrong version number", "see that the port speaks TLS"),
)


def underlying(error: Exception) -> Exception:
    """The failure of TLS that *error* was made of, if it was: redis-py 5.0 leaves its words out."""
    return error.__context__ if isinstance(error.__context__, SSLError) else error


def hint_of(error: Exception) -> str | None:
    """What *error* means, as far as that can be told by what it says."""
    words = str(underlying(error)).lower()
    return next((hint for pattern, hint in _HINTS if re.search(pattern, words)), None)


def in_words(error: Exception) -> str:
    """What *error* says, and what it means if that is not the same."""
    words = str(error)
    if isinstance(error, ReadOnlyError):
        return "this server is a read only replica: locks need its primary, or sentinel.master_for(name)"
    if "unknown command 'SENTINEL'" in words:
        return "this is no Sentinel"
    hint = hint_of(error)
    return words if hint is None else f"{words}; {hint}"


def hint_on_opening(error: Exception, connection: AbstractConnection) -> str | None:
    """What it means that *connection* failed with *error* before it was of any use."""
    reset = isinstance(error.__context__, (ConnectionResetError, BrokenPipeError)) or "closed" in str(error)
    if not isinstance(connection, SSLConnection):
        return "see whether the port wants TLS: rediss://, or ssl=True" if reset else None
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
    """A clearer error, if there is one, for *connection*, which failed with *error* before it was of any use."""
    hint = hint_on_opening(error, connection)
    if hint is None:
        return None
    words = "no connection with TLS could be made in time" if isinstance(error, _TIMEOUTS) else underlying(error)
    return RedisConnectionError(f"{words}; {hint}")
