"""
Grants that count only when replicas have them: one `WAIT` behind each batch.

The server lets whatever comes later on the connection wait for that answer, too; so it may as well wait here, where it
becomes one batch.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from aiolock._backend import Call, Reply
from aiolock._redis.connection import Command
from aiolock._types import milliseconds

Answered = Callable[[Any], list[Call]]
"""Called with what the server answers to a question; says which calls are to be sent again."""


class Replication:
    """
    What one connection was granted, and the replicas have not confirmed yet.

    *wanted* is how many must have it, ``None`` for all that the server knows of, and one at least, and 0 if nobody is
    asked; they have *timeout* seconds for it.
    """

    def __init__(self, wanted: int | None, timeout: float) -> None:
        self.is_wanted: bool = wanted != 0
        self._all = wanted is None
        # Where all are wanted, as many as the server knew of when it was asked last.
        self._wanted: int = wanted or 1
        self._timeout = milliseconds(timeout)
        self.granted: list[tuple[Call, Reply]] = []
        self.is_asked = False  # Nothing more is to be sent before there is an answer.

    def questions(self) -> Iterator[tuple[Command, Answered]]:
        """What to ask behind a batch that may be granted something."""
        self.is_asked = True
        if self._all:
            yield ("ROLE",), self._counted
        yield ("WAIT", self._wanted, self._timeout), partial(self._confirmed, self._wanted)

    def forget(self) -> None:
        """The connection failed: nothing more will be answered."""
        self.granted.clear()
        self.is_asked = False

    def _counted(self, role: Any) -> list[Call]:
        if isinstance(role, ResponseError):
            self._unknown(role)
        else:
            self._wanted = max(1, len(role[2])) if role[0] == b"master" else 1
        return []

    def _confirmed(self, asked: int, acks: Any) -> list[Call]:
        """*acks* replicas, of those *asked* for, have what was granted."""
        self.is_asked = False
        if isinstance(acks, ResponseError):
            self._unknown(acks)
        granted, self.granted = self.granted, []
        if asked < self._wanted:  # There are more than were known; who asks again for what it has, gets it again.
            return [call for call, _ in granted]
        for call, reply in granted:
            call.short = (acks, self._wanted) if acks < self._wanted else None
            call.end(reply)
        return []

    def _unknown(self, error: ResponseError) -> None:
        """The server does not say what its replicas have, so that no grant can count."""
        for call, _ in self.granted:
            call.fail(error, f"the server does not say what its replicas have ({error})")
        self.granted.clear()
