"""
Grants that count only when replicas have them: one `WAIT` after each batch.

A server answers WAIT before any later command on the same connection. So later calls wait here, and become one batch.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from aiolock._backend import Call
from aiolock._redis.aside import Answered
from aiolock._redis.user import Command
from aiolock._types import milliseconds

# The answers to a WAIT if the server has become a replica: during the WAIT, or before it.
_DEMOTED = ("UNBLOCKED", "WAIT cannot be used with replica")


class Replication:
    """
    The grants of one connection that replicas have not acknowledged yet.

    *wanted* is the number of replicas that must acknowledge; ``None`` means all replicas that the server knows, and at
    least one; 0 means that none is asked. The replicas have *timeout* seconds.
    """

    def __init__(self, wanted: int | None, timeout: float) -> None:
        self.is_wanted: bool = wanted != 0
        self._all = wanted is None
        # If all are wanted, the number of replicas in the server's last answer to ROLE.
        self._wanted: int = wanted or 1
        self._timeout = milliseconds(timeout)
        self.granted: list[tuple[Call, Any]] = []
        # Whether a WAIT has no answer yet; until then no more calls are sent.
        self.is_asked = False

    def questions(self) -> Iterator[tuple[Command, Answered]]:
        """The questions after a batch that may get grants."""
        self.is_asked = True
        if self._all:
            yield ("ROLE",), self._counted
        yield ("WAIT", self._wanted, self._timeout), partial(self._confirmed, self._wanted)

    def calls(self) -> list[Call]:
        """The grants that the replicas have not confirmed yet."""
        return [call for call, _ in self.granted]

    def forget(self) -> None:
        """Forget the grants: the connection has failed, and no more answers will come."""
        self.granted.clear()
        self.is_asked = False

    def _counted(self, role: Any) -> list[Call]:
        if isinstance(role, ResponseError):
            self._unknown(role)
        else:
            self._wanted = max(1, len(role[2])) if role[0] == b"master" else 1
        return []

    def _confirmed(self, asked: int, acks: Any) -> list[Call]:
        """Note that *acks* replicas acknowledged the grants, when *asked* replicas were asked for."""
        self.is_asked = False
        is_demoted = isinstance(acks, ResponseError) and str(acks).startswith(_DEMOTED)
        if isinstance(acks, ResponseError) and not is_demoted:
            self._unknown(acks)
        granted, self.granted = self.granted, []
        # The calls are sent again, to the new primary; or because there are more replicas than the last WAIT asked for.
        if is_demoted or asked < self._wanted:
            return [call for call, _ in granted]
        for call, answer in granted:
            call.short = (acks, self._wanted) if acks < self._wanted else None
            call.end(answer)
        return []

    def _unknown(self, error: ResponseError) -> None:
        """Fail the grants: the server does not report its replicas, so no grant can count."""
        for call, _ in self.granted:
            call.fail(error, f"the server does not report on its replicas ({error})")
        self.granted.clear()
