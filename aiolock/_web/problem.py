"""What an error of aiolock is to a client of a web service: a problem document of RFC 9457, and when to try again."""

from dataclasses import dataclass
from math import inf
from time import monotonic

from aiolock import (
    AioLockError,
    BackendError,
    ClientClosedError,
    LeaseLostError,
    LockTimeoutError,
    ReplicationError,
)
from aiolock._log import log
from aiolock._types import whole_number

CONFLICT, UNAVAILABLE = 409, 503
MEDIA_TYPE = "application/problem+json"

# What is the client's to know. The names of locks, owners and tokens are not.
_BUSY = "Somebody else is working on this."
_UNSURE = "The service cannot be sure to work alone at the moment."
_OUT_OF_SERVICE = {
    BackendError: _UNSURE,
    ClientClosedError: "The service is shutting down.",
    LeaseLostError: "The work was broken off, because the service could not be sure to work alone any more.",
    ReplicationError: _UNSURE,
}
_UNTOUCHED = " Nothing was done."
ERRORS: tuple[type[AioLockError], ...] = (LockTimeoutError, *_OUT_OF_SERVICE)

_PAUSE = 1.0  # Seconds between two warnings of one kind: without Redis every request fails.
_warned: dict[type[AioLockError], float] = {}  # When, on the monotonic clock.


@dataclass(frozen=True, slots=True)
class Problem:
    """What a client is told."""

    status: int
    title: str
    detail: str

    @property
    def document(self) -> dict[str, object]:
        """The body of the response."""
        return {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response, beside its type."""
        return {"Retry-After": "1"}


def problem_of(error: AioLockError, status: int = CONFLICT, *, began: bool = True) -> Problem | None:
    """
    What to answer when *error* ended a request; ``None``: a mistake in the service.

    *status* is for contention. *began* says that the handler may have done something, which only it knows. What put
    the service out of service is logged: its clients are not told.
    """
    more = "" if began or isinstance(error, LeaseLostError) else _UNTOUCHED
    if isinstance(error, LockTimeoutError):
        return Problem(status, "Busy", _BUSY + more)
    if isinstance(error, ClientClosedError) and error.reason != "closed":
        return None
    for kind, detail in _OUT_OF_SERVICE.items():
        if isinstance(error, kind):
            _warn(error, kind)
            return Problem(UNAVAILABLE, "Temporarily out of service", detail + more)
    return None


def _warn(error: AioLockError, kind: type[AioLockError]) -> None:
    now = monotonic()
    if now >= _warned.get(kind, -inf) + _PAUSE:
        _warned[kind] = now
        text = "a request is given up (503; each kind is logged once in %g s): %s: %s"
        log.warning(text, _PAUSE, type(error).__name__, error)


def error_status(status: int) -> int:
    """*status*, checked: what is refused must not look like a success."""
    return whole_number(status, "the status of an error", least=400, most=599)
