"""The answer of a web service to an error of aiolock: a problem document of RFC 9457, and when to try again."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

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

# The clients of the service learn these sentences, but no names of locks, no owners and no tokens.
_UNSURE = "The service cannot be sure to work alone at the moment."
_DETAILS = {
    BackendError: _UNSURE,
    ClientClosedError: "The service is shutting down.",
    LeaseLostError: "The service could not be sure to work alone any more. "
    "The work may be done, half done, or still going on.",
    ReplicationError: _UNSURE,
}
_UNTOUCHED = " Nothing was done."
ERRORS: tuple[type[AioLockError], ...] = (LockTimeoutError, *_DETAILS)

# Seconds between two warnings of one kind: without Redis, every request would warn.
_PAUSE = 1.0
# The time of the last warning of each kind, on the monotonic clock.
_warned: dict[type[AioLockError], float] = {}


@dataclass(frozen=True, slots=True)
class Problem:
    """The error response for a client."""

    status: int
    title: str
    detail: str
    retry: bool = True
    """Whether the same request may succeed later."""

    @property
    def document(self) -> dict[str, object]:
        """The body of the response."""
        return {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response, without its media type."""
        return {"Retry-After": "1"} if self.retry else {}


def busy(status: int, more: str = "") -> Problem:
    """The answer with that *status* to a request whose lock somebody else has."""
    return Problem(status, "Busy", f"Somebody else is working on this.{more}")


def _out_of_service(detail: str) -> Problem:
    return Problem(UNAVAILABLE, "Temporarily out of service", detail)


OUT_OF_SERVICE = [_out_of_service(detail) for detail in dict.fromkeys(_DETAILS.values())]


def problem_of(error: AioLockError, status: int = CONFLICT, *, began: bool = True) -> Problem | None:
    """
    The answer to a request that ended with *error*; ``None`` if the error is a mistake in the service.

    *status* is the answer if the lock is busy. *began* says that the handler may have done something. The reason for an
    outage is logged, and not sent to clients.
    """
    more = "" if began or isinstance(error, LeaseLostError) else _UNTOUCHED
    if isinstance(error, LockTimeoutError):
        return busy(status, more)
    if isinstance(error, ClientClosedError) and error.reason != "closed":
        return None
    for kind, detail in _DETAILS.items():
        if isinstance(error, kind):
            _warn(error, kind)
            return _out_of_service(detail + more)
    return None


def _warn(error: AioLockError, kind: type[AioLockError]) -> None:
    now = monotonic()
    if now >= _warned.get(kind, -inf) + _PAUSE:
        _warned[kind] = now
        text = "a request is given up (503; each kind is logged once in %g s): %s: %s"
        log.warning(text, _PAUSE, type(error).__name__, error)


def error_status(status: int) -> int:
    """*status*, checked: the status of a refusal must not look like a success."""
    return whole_number(status, "the status of an error", least=400, most=599)


def described(problems: Iterable[Problem]) -> dict[str, dict[str, Any]]:
    """The responses of an OpenAPI schema that stand for *problems*, by their status."""
    responses: dict[str, dict[str, Any]] = {}
    for each in dict.fromkeys(problems):
        response = responses.setdefault(str(each.status), {"description": "", "content": {MEDIA_TYPE: _schema()}})
        response["description"] = f"{response['description']}\n\n{each.detail}".lstrip()
        if each.retry:
            response["headers"] = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}}
    return responses


def _schema() -> dict[str, Any]:
    properties = {"status": {"type": "integer"}} | {name: {"type": "string"} for name in ("type", "title", "detail")}
    return {"schema": {"type": "object", "title": "Problem", "properties": properties}}
