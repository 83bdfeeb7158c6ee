"""The sum of the workers' events: the holders of the lock over time, the waiters, and the times without work."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from examples.demo.protocol import ENDS, Event


@dataclass(slots=True)
class Hold:
    """One turn with the lock; times are on the monotonic clock, 0 for what did not happen."""

    who: str
    token: int
    asked: float
    granted: float
    wrote: float = 0.0
    froze: float = 0.0
    woke: float = 0.0
    ended: float = 0.0
    end: str = ""
    renewals: int = 0

    @property
    def worker(self) -> str:
        return self.who[0]


@dataclass(frozen=True, slots=True)
class Recovery:
    """The effect of a fault: the next holder, the time until then, the number of waiters, and their longest wait."""

    next_who: str
    first: float
    waiters: int
    longest: float


@dataclass(slots=True)
class Timeline:
    """Takes events in any order among workers; the events of one worker come in order."""

    holds: list[Hold] = field(default_factory=list)
    # The time at which each waiting task began to wait.
    asked: dict[str, float] = field(default_factory=dict)
    latest: dict[str, Event] = field(default_factory=dict)
    balance: int = 0
    # The highest token of an accepted write.
    written: int = 0
    _open: dict[str, Hold] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Timeline":
        timeline = cls()
        for event in events:
            timeline.add(event)
        return timeline

    def add(self, event: Event) -> None:
        self.latest[event.who] = event
        if event.what == "waits":
            self.asked[event.who] = event.at
        elif event.what == "holds":
            hold = Hold(event.who, event.token, self.asked.pop(event.who, event.at), event.at)
            self._open[event.who] = hold
            self.holds.append(hold)
        elif event.what in ENDS:
            self.asked.pop(event.who, None)
            if (ended := self._open.pop(event.who, None)) is not None:
                ended.ended, ended.end = event.at, event.what
        elif (hold_now := self._open.get(event.who)) is not None:
            self._note(hold_now, event)

    def _note(self, hold: Hold, event: Event) -> None:
        if event.what == "wrote":
            hold.wrote = event.at
            self.balance = event.balance
            self.written = max(self.written, event.token)
        elif event.what == "freezes":
            hold.froze = event.at
        elif event.what == "wakes":
            hold.woke = event.at
        elif event.what == "renewed":
            hold.renewals += 1

    def dead(self, worker: str) -> None:
        """A process is gone: it waits no more."""
        self.asked = {who: since for who, since in self.asked.items() if who[0] != worker}

    def hold(self, token: int) -> Hold | None:
        return next((hold for hold in reversed(self.holds) if hold.token == token), None)

    def rate(self, now: float) -> int:
        """Grants within the last second."""
        recent = self.holds[-1000:]
        return sum(hold.granted > now - 1 for hold in recent)

    def by_token(self) -> list[Hold]:
        return sorted(self.holds, key=lambda hold: hold.token)

    def recovery(self, since: float, but: str) -> Recovery | None:
        """The effect of a fault of worker *but* at *since*; ``None`` while no worker has got the lock since."""
        later = [hold for hold in self.holds if hold.granted > since and hold.worker != but]
        if not later:
            return None
        first = min(later, key=lambda hold: hold.granted)
        waits = [hold.granted - max(hold.asked, since) for hold in later if hold.asked <= first.granted]
        return Recovery(first.who, first.granted - since, len(waits), max(waits))

    def recovered(self, since: float, but: str) -> bool:
        """Whether all tasks that waited for the end of that fault have had the lock."""
        recovery = self.recovery(since, but)
        if recovery is None:
            return False
        return not any(asked <= since + recovery.first for who, asked in self.asked.items() if who[0] != but)

    def standstill(self, killed_at: float) -> float:
        """The longest time, in seconds, from the end of somebody's work to the next grant."""
        longest = 0.0
        for hold, following in pairwise(self.by_token()):
            longest = max(longest, following.granted - (hold.froze or hold.ended or killed_at))
        return longest

    def overlaps(self) -> int:
        """The number of writes by a worker after the next one had been granted the lock."""
        return sum(hold.wrote > following.granted for hold, following in pairwise(self.by_token()))
