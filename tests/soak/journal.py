"""The workers' records outside of Redis: a file for each life of a worker, a line of JSON for each entry."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Literal

from aiolock import Lease

Kind = Literal[
    # The worker started; *note* has its loop.
    "begin",
    # A task is inside of the lock *name*, for which it asked at *asked*.
    "enter",
    "mark",
    "leave",
    # A wait that began at *asked* ended without the lock; *note* says why.
    "refused",
    # The first is an error that the library documents, and the second one that it does not.
    "failed",
    "error",
    # A logger has a record; *form* is its level.
    "log",
    # *amount* is the memory in kilobytes, *asked* when the oldest wait began, *note* for which locks all do.
    "beat",
    # The worker rests, as it was told: every task has left; *note* names the remains.
    "idle",
    # The client is closed; *note* names the tasks that are left.
    "end",
]

# Several may be inside in this form.
READS = "read"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line. Times are on the monotonic clock, which all processes of a machine share."""

    kind: Kind
    at: float
    section: int = 0
    name: str = ""
    token: int = 0
    form: str = ""
    asked: float = 0.0
    # The lease counts as lost at this time; 0 if it is lost already.
    deadline: float = 0.0
    renewed: bool = False
    # A loss cancels the body.
    scoped: bool = False
    amount: int = 0
    note: str = ""


_DEFAULTS = {field.name: field.default for field in fields(Entry)}


class Journal:
    """The file of one life."""

    # Invariant: an entry is on file before its writer goes on, so that what others do later is written later.

    def __init__(self, path: Path) -> None:
        # Appended to by single small writes, so that a SIGKILL leaves every line whole but the last.
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.numbers = count(1)

    def write(self, entry: Entry) -> None:
        given = {key: value for key, value in asdict(entry).items() if value != _DEFAULTS[key]}
        os.write(self._file, json.dumps(given).encode() + b"\n")


class Section:
    """A stay inside of a lock, as its worker writes it down."""

    def __init__(self, journal: Journal, lease: Lease, form: str, asked: float, scoped: bool) -> None:
        self.lease = lease
        self.scoped = scoped
        self._journal = journal
        self._number = next(journal.numbers)
        at, deadline = self._now()
        journal.write(
            Entry(
                *("enter", at, self._number, lease.name, lease.token, form, asked, deadline),
                renewed=lease.watched,
                scoped=scoped,
            )
        )

    def mark(self) -> None:
        self._note("mark")

    def leave(self) -> None:
        self._note("leave")

    def _note(self, kind: Kind) -> None:
        at, deadline = self._now()
        self._journal.write(Entry(kind, at, self._number, deadline=deadline))

    def _now(self) -> tuple[float, float]:
        # The clock is read first, so that the deadline is never too late.
        at = monotonic()
        remaining = self.lease.remaining
        return at, at + remaining if remaining else 0.0


@contextmanager
def inside(journal: Journal, lease: Lease, form: str, asked: float, *, scoped: bool = False) -> Iterator[Section]:
    """A section until the end of the block, which ends before the lock is given back."""
    section = Section(journal, lease, form, asked, scoped)
    try:
        yield section
    finally:
        section.leave()


def entries(path: Path) -> list[Entry]:
    """All entries, without an incomplete last line, which a SIGKILL may leave."""
    *whole, _ = path.read_text().split("\n")
    return [Entry(**json.loads(line)) for line in whole]
