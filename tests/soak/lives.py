"""The lives of workers, as their journals tell them: when each was inside of which lock."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.soak.forms import TICK
from tests.soak.journal import Entry, entries


@dataclass(slots=True)
class Stay:
    """A section from its enter to its leave, or to the end of its process."""

    life: str
    enter: Entry
    marks: list[Entry] = field(default_factory=list)
    leave: Entry | None = None

    @property
    def observations(self) -> list[Entry]:
        return [self.enter, *self.marks, *([self.leave] if self.leave else [])]

    @property
    def held(self) -> bool:
        """Whether the task held the lock as it began: after a pause, a grant may be over before it is used."""
        return self.enter.deadline > self.enter.at

    @property
    def lost(self) -> bool:
        return self.leave is not None and not self.leave.deadline

    @property
    def until(self) -> float:
        """The last time at which the task was inside; not every form of work learns of a loss."""
        seen = self.observations
        for before, now in pairwise(seen):
            if not now.deadline:
                return min(before.deadline, now.at)
        return seen[-1].at

    @property
    def overstayed(self) -> float:
        """
        The seconds for which the body ran on after the loss, though the loop was running.

        A paused process may come to one mark; its loop has turned before it comes to the next. From mark to mark, at
        most a tick counts: beyond that, the process was paused or the machine busy.
        """
        late = [mark.at for mark in self.marks if not mark.deadline]
        return sum(min(after - before, TICK) for before, after in pairwise(late))


@dataclass(slots=True)
class Life:
    """One process of a worker, from its start to its end."""

    name: str
    entries: list[Entry]
    stays: list[Stay]

    @classmethod
    def read(cls, path: Path) -> "Life":
        written = entries(path)
        stays: dict[int, Stay] = {}
        for entry in written:
            if entry.kind == "enter":
                stays[entry.section] = Stay(path.stem, entry)
            elif entry.kind == "mark":
                stays[entry.section].marks.append(entry)
            elif entry.kind == "leave":
                stays[entry.section].leave = entry
        return cls(path.stem, written, list(stays.values()))

    @property
    def worker(self) -> str:
        return self.name.split(".")[0]

    @property
    def begin(self) -> float:
        return self.entries[0].at if self.entries else 0.0

    @property
    def end(self) -> float:
        return self.entries[-1].at if self.entries else 0.0

    def of(self, *kinds: str) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.kind in kinds)

    def waits(self) -> Iterator[tuple[float, float]]:
        """The times from begin to end of each wait, also of waits that did not end."""
        for entry in self.of("enter", "refused", "beat"):
            if entry.asked:
                yield entry.asked, entry.at


def all_stays(lives: Sequence[Life]) -> list[Stay]:
    """The stays in the order of their begins, without those whose lease was over as they began."""
    return sorted((stay for life in lives for stay in life.stays if stay.held), key=lambda stay: stay.enter.at)
