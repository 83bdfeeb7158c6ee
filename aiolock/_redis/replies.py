"""What an error reply means: which error of redis-py it is, whatever the versions of redis-py and of the server."""

import re
from collections.abc import Callable
from ssl import SSLCertVerificationError

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

# Redis before 7.0 wraps what a command inside of a script was refused with.
_REFUSED_IN_SCRIPT = re.compile(r"Error running script .*@user_script: ?\d+: -(?P<refusal>.*)", re.DOTALL)
# Of what a script may be refused with, what has a class of its own.
_REFUSALS: dict[str, Callable[[str], ResponseError]] = {
    "NOPERM": NoPermissionError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
}
# redis-py 5.0 knows these in its clients of clusters only.
_OF_CLUSTERS: dict[str, Callable[[str], ResponseError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "TRYAGAIN": TryAgainError,
}
_CODES = {make: code for code, make in _OF_CLUSTERS.items()}
# The server cannot serve the call now and may be able to in a moment. MOVED and ASK are of the class `AskError`: here
# the servers of a cluster sent the call round in circles. MASTERDOWN is of that of CLUSTERDOWN.
_PASSING = (AskError, ClusterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
# The same, of errors for which redis-py has no class.
_PASSING_CODES = ("BUSY ", "MISCONF ", "NOREPLICAS ")
# The server turned the connection down, or we its certificate, or it is none of ours; and so it will be again.
_FINAL = (AuthenticationError, AuthorizationError, ResponseError, SSLCertVerificationError)


def is_passing(error: object) -> bool:
    """Whether the server said that it cannot do something now, and may be able to in a moment."""
    return isinstance(error, _PASSING) or (isinstance(error, ResponseError) and str(error).startswith(_PASSING_CODES))


def is_final(error: object) -> bool:
    """Whether a connection is refused for good."""
    return isinstance(error, _FINAL) and not is_passing(error)


def understood(error: ResponseError) -> ResponseError:
    """The error that *error*, as a connection of redis-py raised it, stands for."""
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
    if (code := _CODES.get(type(error))) is not None:
        # Where to, without whether that is MOVED or ASK, would be a riddle.
        error.args = (f"{code} {error}".rstrip(),)
    return error
