"""What an error of aiolock is to a client of a web service: a problem document of RFC 9457, and when to try again."""

from dataclasses import dataclass

from aiolock._errors import (
    AioLockError,
    BackendError,
    ClientClosedError,
    LeaseLostError,
    LockTimeoutError,
    QuorumError,
    ReplicationError,
)

CONFLICT, UNAVAILABLE = 409, 503
_ERROR_STATUSES = range(400, 600)
MEDIA_TYPE = "application/problem+json"

# What is the client's to know. The names of locks, owners and tokens are not.
_BUSY = "Somebody else is working on this."
_UNSURE = "The service cannot be sure to work alone at the moment."
_OUT_OF_SERVICE = {
    BackendError: _UNSURE,
    ClientClosedError: "The service is shutting down.",
    LeaseLostError: "The work was broken off, because the service could not be sure to work alone any more.",
    QuorumError: _UNSURE,
    ReplicationError: _UNSURE,
}
_UNTOUCHED = " Nothing was done."
ERRORS: tuple[type[AioLockError], ...] = (LockTimeoutError, *_OUT_OF_SERVICE)


@dataclass(frozen=True, slots=True)
class Problem:
    """*retry_after* is in seconds."""

    status: int
    title: str
    detail: str
    retry_after: int = 1

    @property
    def document(self) -> dict[str, object]:
        """The body of the response."""
        return {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response, beside its type."""
        return {"Retry-After": str(self.retry_after)}


def problem_of(error: AioLockError, status: int = CONFLICT, *, began: bool = True) -> Problem | None:
    """
    What to answer when *error* ended a request; ``None``: a mistake in the service.

    *status* is for contention. *began* says that the handler may have done something, which only it knows.
    """
    more = "" if began or isinstance(error, LeaseLostError) else _UNTOUCHED
    if isinstance(error, LockTimeoutError):
        return Problem(status, "Busy", _BUSY + more)
    for kind, detail in _OUT_OF_SERVICE.items():
        if isinstance(error, kind):
            return Problem(UNAVAILABLE, "Temporarily out of service", detail + more)
    return None


def error_status(status: int) -> int:
    """*status*, checked: what is refused must not look like a success."""
    if isinstance(status, bool) or not isinstance(status, int):
        raise TypeError(f"status must be an int, not {status!r}")
    if status not in _ERROR_STATUSES:
        raise ValueError(f"status must be that of an error, 400 to 599, not {status!r}")
    return status
