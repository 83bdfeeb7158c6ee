"""
The meaning of an error reply: its class in redis-py, which is the same with all versions of redis-py and of the server;
and its text with the server's code word, which redis-py removes from errors that have a class.
"""

import re
from ssl import SSLCertVerificationError
from typing import TypeVar

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from aiolock._words import shortened

E = TypeVar("E", bound=Exception)

# Redis before 7.0 wraps the refusal of a command within a script.
_REFUSED_IN_SCRIPT = re.compile(r"Error running script .*@user_script: ?\d+: -(?P<refusal>.*)", re.DOTALL)
# The refusals within a script that have a class of their own.
_REFUSALS: dict[str, type[ResponseError]] = {
    "NOPERM": NoPermissionError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
}
# redis-py 5.0 knows these classes only in its cluster client.
_OF_CLUSTERS: dict[str, type[ResponseError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "TRYAGAIN": TryAgainError,
}
_CODES: dict[type[Exception], str] = {
    BusyLoadingError: "LOADING",
    ClusterCrossSlotError: "CROSSSLOT",
    **{kind: code for code, kind in (_REFUSALS | _OF_CLUSTERS).items()},
}
# One class for three codes: the text tells which one it is.
_OF_AUTHENTICATION = (("WRONGPASS", "invalid username-password"), ("NOAUTH", "authentic"))
# Additions of the server: the beginning of our script, or the position in it.
_NOISE = re.compile(r",? with args beginning with:.*|\.? script: (?:[0-9a-f]+, )?on @user_script:.*", re.DOTALL)
# The server cannot serve the call now and may be able to in a moment. MOVED and ASK are `AskError`s: here
# they mean that a cluster's servers redirected the call again and again. MASTERDOWN is a `ClusterDownError`.
_PASSING = (AskError, ClusterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
# The same for errors without a class in redis-py.
_PASSING_CODES = ("BUSY ", "MISCONF ", "NOREPLICAS ")
# The slot is moving, and the server lacks a key that the script uses without naming it. The words before these depend
# on the version of the server.
_MOVING = "ttempted to access a non local key"
# The server refused the connection, or its certificate is not trusted, or it is of the wrong kind: do not try again.
_FINAL = (AuthenticationError, AuthorizationError, ResponseError, SSLCertVerificationError)


def is_passing(error: object) -> bool:
    """Whether the server cannot do something now, but may be able to in a moment."""
    if isinstance(error, _PASSING):
        return True
    return isinstance(error, ResponseError) and (str(error).startswith(_PASSING_CODES) or _MOVING in str(error))


def is_final(error: object) -> bool:
    """Whether a connection is refused for good."""
    return isinstance(error, _FINAL) and not is_passing(error)


def understood(error: ResponseError) -> ResponseError:
    """The error that *error*, raised by a connection of redis-py, stands for."""
    if type(error) is ResponseError:
        words = str(error)
        if wrapped := _REFUSED_IN_SCRIPT.fullmatch(words):
            words = wrapped["refusal"]
        first, _, rest = words.partition(" ")
        kind = _OF_CLUSTERS.get(first) or _REFUSALS.get(first)
        if kind is not None:
            error = kind(rest)
        elif wrapped:
            error = ResponseError(words)
    return worded(error)


def worded(error: E) -> E:
    """The same *error*, with its text as in `words_of`."""
    if isinstance(error, RedisError):
        error.args = (words_of(error),)
    return error


def words_of(error: Exception) -> str:
    """The text of *error* with the server's code word in front, and without the server's notes about our scripts."""
    words = shortened(_NOISE.sub("", str(error)))
    if type(error) is AuthenticationError:
        code = next((code for code, known in _OF_AUTHENTICATION if known in words.lower()), "")
    else:
        code = _CODES.get(type(error), "")
    return words if words.startswith(code) else f"{code} {words}".rstrip()
