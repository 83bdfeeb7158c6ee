"""The health of a service's locks, as a text for its operators."""

import asyncio

from aiolock import BackendError, ClientClosedError, LockClient
from aiolock._web.problem import UNAVAILABLE, Problem

HEALTHY = {"status": "ok"}
NO_STORE = {"Cache-Control": "no-store"}
# Seconds; Kubernetes gives a probe one second by default.
_PATIENCE = 0.9


async def health_of(locks: LockClient) -> Problem | None:
    """The problem of *locks*; ``None`` if there is none."""
    try:
        async with asyncio.timeout(_PATIENCE):
            await locks.ping()
    except TimeoutError:
        return _out_of_service(f"Redis has not answered within {_PATIENCE:g} s.")
    except ClientClosedError:
        return _out_of_service("The client is closed: the service is shutting down.")
    except BackendError as error:
        return _out_of_service(f"Redis does not answer as it should: {str(error).rstrip('.')}.")
    return None


def _out_of_service(detail: str) -> Problem:
    return Problem(UNAVAILABLE, "Locks are out of service", detail)
