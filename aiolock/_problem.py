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
_BUSY = "Busy", "Somebody else is working on this. Nothing was done."
_OUT_OF_SERVICE = {
    BackendError: "The service cannot be sure to work alone at the moment. Nothing was done.",
    ClientClosedError: "The service is shutting down.",
    LeaseLostError: "The work was broken off, because the service could not be sure to work alone any more.",
    QuorumError: "The service cannot be sure to work alone at the moment. Nothing was done.",
    ReplicationError: "The service cannot be sure to work alone at the moment. Nothing was done.",
}
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


def problem_of(error: AioLockError, status: int = CONFLICT) -> Problem | None:
    """What to answer when *error* ended a request; *status* is for contention. ``None``: a mistake in the service."""
    if isinstance(error, LockTimeoutError):
        return Problem(status, *_BUSY)
    for kind, detail in _OUT_OF_SERVICE.items():
        if isinstance(error, kind):
            return Problem(UNAVAILABLE, "Temporarily out of service", detail)
    return None


def error_status(status: int) -> int:
    """*status*, checked: what is refused must not look like a success."""
    if isinstance(status, bool) or not isinstance(status, int):
        raise TypeError(f"status must be an int, not {status!r}")
    if status not in _ERROR_STATUSES:
        raise ValueError(f"status must be that of an error, 400 to 599, not {status!r}")
    return status
