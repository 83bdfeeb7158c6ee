"""
The judge looks at the parties of a story from outside, and knows neither library.

    exclusion     a party works under the lock, while another one believes to have it (P1, P3)
    stuck         a party does not get the lock, though nobody has kept it for some time (P4, P6, P9)
    slow end      leaving a block takes more than a second (P4)
    no lock       a party that asks for the lock gets an error (P5)
    wrong answer  a party learns that nobody has the lock, though another one has it
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.process import Process
from tests.simulation.world import World

# Seconds within which a waiter has a lock that nobody keeps any more.
_SOON = 1.5
_LONGEST_END = 1.0


@dataclass(eq=False)
class Visit:
    """A party is in its block; *believes* is the library's answer to the question whether the party has the lock."""

    who: str
    process: Process
    believes: Callable[[], bool]
    shared: bool

    def is_sure(self) -> bool:
        """Whether the party believes to have the lock, by its own clock."""
        world = self.process.world
        running, world.running = world.running, self.process
        try:
            return self.believes()
        finally:
            world.running = running


class Judge:
    def __init__(self, world: World) -> None:
        self.world = world
        self.found: list[str] = []
        self._inside: list[Visit] = []
        self._asked: dict[str, float] = {}
        self._free_at = 0.0

    def violation(self, kind: str, text: str) -> None:
        # The first finding of a kind says enough.
        if not any(each.startswith(f"{kind}:") for each in self.found):
            self.found.append(f"{kind}: {text}")
            self.world.trace("judge", f"{kind}: {text}")

    def asks(self, who: str) -> None:
        self._asked[who] = self.world.now

    def enters(self, visit: Visit) -> None:
        since = max(self._asked.pop(visit.who), self._free_at)
        if not self._inside and self.world.now > since + _SOON:
            self.violation("stuck", f"{visit.who} has the lock {self.world.now - since:.1f} s after it was free")
        self._inside.append(visit)
        self.acts(visit)

    def acts(self, visit: Visit) -> None:
        """The party does something that only the holder may do."""
        others = [each for each in self._inside if each is not visit and not (each.shared and visit.shared)]
        if visit.is_sure() and (sure := [each.who for each in others if each.is_sure()]):
            self.violation("exclusion", f"{visit.who} works under the lock, and so does {' and '.join(sure)}")

    def leaves(self, visit: Visit) -> None:
        if visit in self._inside:
            self._inside.remove(visit)
        self._free_at = max(self._free_at, self.world.now)

    def has_left(self, who: str, seconds: float) -> None:
        if seconds > _LONGEST_END:
            self.violation("slow end", f"{who} needed {seconds:.1f} s to leave its block")

    def fails(self, who: str, error: Exception) -> None:
        """A party has an error. It is right only for a party that had the lock."""
        if who in self._asked:
            self.violation("no lock", f"{who} does not get the lock, but {error!r}")

    def is_gone(self, who: str) -> None:
        self._asked.pop(who, None)

    def dies(self, who: str, process: Process, lease: float) -> None:
        """The party's process is killed."""
        self._inside = [visit for visit in self._inside if visit.process is not process]
        self._asked.pop(who, None)
        self.excuses(lease)

    def excuses(self, lease: float) -> None:
        """A process is dead or frozen: its locks, and locks that it waited for, may be kept for one more *lease*."""
        self._free_at = max(self._free_at, self.world.now + lease)

    def is_told(self, who: str, *, locked: bool) -> None:
        if not locked and any(visit.is_sure() for visit in self._inside):
            self.violation("wrong answer", f"{who} is told that nobody has the lock")

    def ends(self) -> None:
        """The story is over: a party that waits for a free lock is stuck; no error of the parties counts any more."""
        for who, since in self._asked.items():
            if not self._inside and self.world.now > max(since, self._free_at) + _SOON:
                free = self.world.now - max(since, self._free_at)
                self.violation("stuck", f"{who} still waits, {free:.1f} s after nobody has the lock any more")
        self._asked.clear()
