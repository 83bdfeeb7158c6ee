"""A counter in a file that refuses stale tokens: a lock alone cannot protect a resource from a paused holder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Literal

Kind = Literal["read", "write", "refused", "left"]


class StaleTokenError(Exception):
    """The store has seen a greater token."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the file. *at* is on the monotonic clock, which all processes of a machine share."""

    kind: Kind
    token: int
    count: int
    pid: int
    at: float

    @classmethod
    def parse(cls, line: str) -> "Entry":
        kind, token, count, pid, at = line.split()
        assert kind in ("read", "write", "refused", "left")
        return cls(kind, int(token), int(count), int(pid), float(at))  # type: ignore[arg-type]


class Store:
    """An append-only file; its lines are small, so that each is written as a whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, token: int, at: float) -> int:
        """The count; writers with a smaller token are refused from now on. The lock was entered *at* that time."""
        with self._locked() as file:
            count = self._admit(file, token)
            _append(file, "read", token, count, at)
            return count

    def write(self, token: int, count: int) -> None:
        """Set the count."""
        with self._locked() as file:
            self._admit(file, token)
            _append(file, "write", token, count, monotonic())

    def left(self, token: int, at: float) -> None:
        """Note the last time at which the lock was held for sure."""
        with self._locked() as file:
            _append(file, "left", token, 0, at)

    def entries(self) -> list[Entry]:
        # The last line may be incomplete while a process writes it.
        *whole, _ = self._path.read_text().split("\n")
        return [Entry.parse(line) for line in whole]

    def _admit(self, file: int, token: int) -> int:
        count = highest = 0
        for entry in self.entries():
            if entry.kind in ("read", "write"):
                highest, count = max(highest, entry.token), entry.count
        if token < highest:
            _append(file, "refused", token, count, monotonic())
            raise StaleTokenError
        return count

    @contextmanager
    def _locked(self) -> Iterator[int]:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def _append(file: int, kind: Kind, token: int, count: int, at: float) -> None:
    os.write(file, f"{kind} {token} {count} {os.getpid()} {at:.6f}\n".encode())
