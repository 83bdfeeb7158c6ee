"""The verdict: computed from the account file, its log, and what the workers and the system say of themselves."""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from examples.demo.account import Entry
from examples.demo.protocol import Event
from examples.demo.timeline import Hold, Timeline

# Seconds that a loaded machine may add to a lease.
MARGIN = 1.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that the demo caused: the hold it hit, and when."""

    who: str
    token: int
    at: float

    @property
    def worker(self) -> str:
        return self.who[0]


@dataclass(slots=True)
class Faults:
    """The faults of the demo; ``None`` for one that did not come about."""

    killed: Fault | None = None
    paused: Fault | None = None
    cancelled: Fault | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """All that the verdict is computed from."""

    balance: int
    entries: list[Entry]
    events: list[Event]
    faults: Faults
    # Each worker has its code here, as in `subprocess`: a negative one is the signal that ended it.
    exits: dict[str, int]
    lease: float
    timeline: Timeline = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "timeline", Timeline.of(self.events))

    @property
    def accepted(self) -> list[int]:
        """The tokens of the writes that the file took, in its order."""
        return [entry.token for entry in self.entries if entry.accepted]


@dataclass(frozen=True, slots=True)
class Check:
    """One point of the verdict."""

    passed: bool
    text: str


def judge(record: Record) -> list[Check]:
    """Every point of the verdict; all is well if all passed."""
    return [check(record) for check in _CHECKS]


def _nothing_lost(record: Record) -> Check:
    accepted, balance = record.accepted, record.balance
    unknown = {event.token for event in record.events if event.what == "wrote"} - set(accepted)
    text = f"no deposit lost: the balance is {balance}, the log has {len(accepted)} deposits"
    if unknown:
        text += f", and lacks {len(unknown)} that workers made"
    return Check(balance == len(accepted) > 0 and not unknown, text)


def _tokens_grew(record: Record) -> Check:
    tokens = record.accepted
    wrong = sum(later <= earlier for earlier, later in pairwise(tokens))
    granted = [hold.token for hold in record.timeline.holds]
    wrong += len(granted) - len(set(granted))
    return Check(wrong == 0 < len(tokens), _counted("the fencing token grew with each deposit", wrong, "did not"))


def _never_two(record: Record) -> Check:
    overlaps = record.timeline.overlaps()
    text = f"no write was accepted in somebody else's turn, of {len(record.timeline.holds)} turns"
    return Check(overlaps == 0 < len(record.timeline.holds), _counted(text, overlaps, "were"))


def _watchdog_renewed(record: Record) -> Check:
    found = _struck(record, record.faults.killed)
    if found is None:
        return Check(False, "nobody worked for longer than a lease")
    hold, fault = found
    worked = fault.at - hold.granted
    text = f"worker {fault.worker} kept the lock for {worked:.2f} s, renewing its lease of {record.lease:g} s"
    return Check(worked > record.lease and hold.renewals > 0 and not _others_during(record, hold, fault.at), text)


def _killed(record: Record) -> Check:
    found = _struck(record, record.faults.killed)
    if found is None:
        return Check(False, "no holder was killed")
    hold, fault = found
    dead = record.exits.get(fault.worker) == -signal.SIGKILL and not hold.end and hold.token not in record.accepted
    recovery = record.timeline.recovery(fault.at, fault.worker)
    if recovery is None:
        return Check(False, f"worker {fault.worker} was killed, and nobody got the lock again")
    text = f"worker {fault.worker} was killed as it held the lock; the next had it {recovery.first:.2f} s later"
    return Check(dead and recovery.first <= record.lease + MARGIN, text)


def _stale_write_refused(record: Record) -> Check:
    found = _struck(record, record.faults.paused)
    if found is None:
        return Check(False, "no holder was paused")
    hold, fault = found
    asleep = hold.woke - hold.froze
    refused = any(entry.token == hold.token and not entry.accepted for entry in record.entries)
    passed = refused and hold.end == "refused" and hold.token not in record.accepted and asleep > record.lease
    outcome = "was refused by its token" if passed else "was NOT refused after a pause beyond the lease"
    return Check(passed, f"worker {fault.worker} was paused for {max(asleep, 0):.2f} s, and its late write {outcome}")


def _cancelled(record: Record) -> Check:
    found = _struck(record, record.faults.cancelled)
    if found is None:
        return Check(False, "no holder was cancelled")
    hold, fault = found
    recovery = record.timeline.recovery(fault.at, "")
    if recovery is None:
        return Check(False, f"task {fault.who} was cancelled, and nobody got the lock again")
    text = f"task {fault.who} was cancelled in its turn; the next had the lock {_short(recovery.first)} later"
    # The lock was given back before its lease ended.
    early = recovery.first < record.lease / 2
    return Check(hold.end == "cancelled" and hold.token not in record.accepted and early, text)


def _never_stuck(record: Record) -> Check:
    killed = record.faults.killed
    longest = record.timeline.standstill(killed.at if killed else 0.0)
    text = f"the lock never stood still for longer than {longest:.2f} s (a lease is {record.lease:g} s)"
    return Check(longest <= record.lease + MARGIN, text)


def _workers_ended(record: Record) -> Check:
    killed = record.faults.killed
    wrong = {worker: code for worker, code in record.exits.items() if code and not (killed and killed.worker == worker)}
    others = len(record.exits) - (killed is not None)
    if wrong:
        return Check(
            False, "ended with an error: " + ", ".join(f"worker {name} ({code})" for name, code in wrong.items())
        )
    return Check(others > 0, f"the other {others} workers ended in good order")


_CHECKS: tuple[Callable[[Record], Check], ...] = (
    _nothing_lost,
    _tokens_grew,
    _never_two,
    _watchdog_renewed,
    _killed,
    _stale_write_refused,
    _cancelled,
    _never_stuck,
    _workers_ended,
)


def _struck(record: Record, fault: Fault | None) -> tuple[Hold, Fault] | None:
    """The hold that *fault* hit, if it really was its holder's at the time."""
    hold = record.timeline.hold(fault.token) if fault is not None else None
    if fault is None or hold is None or hold.who != fault.who or hold.granted > fault.at:
        return None
    return hold, fault


def _others_during(record: Record, hold: Hold, until: float) -> bool:
    return any(hold.granted < other.granted < until for other in record.timeline.holds if other is not hold)


def _counted(text: str, wrong: int, verb: str) -> str:
    return f"{text}: {wrong} {verb}" if wrong else text


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
