"""The findings in the journals."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from aiolock._core.held import CLEANUP
from tests.soak.faults import Fault, beyond
from tests.soak.journal import READS
from tests.soak.lives import Life, Stay, all_stays

# Seconds that no fault explains. Most waits last for some tenths, but a busy machine may deny a process its turns, and
# a worker may lose the race for a lock many times in a row.
LONGEST_WAIT = 10.0
# Seconds in which the loop of a busy process turns some times; from mark to mark there are more.
TOLD_WITHIN = 0.04
# The memory of a worker may grow by this share of it, and by the kilobytes by which that of Python varies by itself.
MOST_GROWTH = 0.25
LEAST_GROWTH = 8_000
WARMED_UP = 0.1


@dataclass(frozen=True, slots=True)
class Evidence:
    """The material to judge; all workers should work from *begin* to *end*."""

    lives: Sequence[Life]
    faults: Sequence[Fault]
    begin: float
    end: float
    seen: Sequence[str] = field(default=())


def judge(evidence: Evidence) -> list[str]:
    """All findings, worst first."""
    return [finding for check in CHECKS for finding in check(evidence)]


def overlaps(evidence: Evidence) -> Iterator[str]:
    """Two tasks that were inside of one lock at the same time."""
    inside: dict[str, Stay] = {}
    for stay in all_stays(evidence.lives):
        name = stay.enter.name
        before = inside.get(name)
        if before and stay.enter.at < before.until and not _may_meet(before, stay):
            seconds = min(before.until, stay.until) - stay.enter.at
            yield f"overlap: of {seconds:.3f} s, {_shown(stay)} entered, {_shown(before)} was inside"
        if before is None or stay.until > before.until:
            inside[name] = stay


def _may_meet(one: Stay, other: Stay) -> bool:
    """Whether both only read."""
    return one.enter.form == other.enter.form == READS


def tokens(evidence: Evidence) -> Iterator[str]:
    """A grant whose token is not greater than that of the one before."""
    last: dict[str, Stay] = {}
    for stay in all_stays(evidence.lives):
        before = last.get(stay.enter.name)
        if before and stay.enter.token <= before.enter.token and not _may_meet(before, stay):
            yield f"token out of order: {_shown(stay)} came after {_shown(before)}"
        last[stay.enter.name] = stay


def overstays(evidence: Evidence) -> Iterator[str]:
    """
    A body that was not cancelled when its lock was lost.

    A task group that fails as the lock is lost unwinds as by a cancellation of the user's own, which is given time.
    """
    for life in evidence.lives:
        for stay in life.stays:
            within = TOLD_WITHIN + (CLEANUP if stay.enter.form == "group" else 0)
            if stay.enter.scoped and stay.overstayed > within:
                yield f"told late: {_shown(stay)} ran on for {stay.overstayed:.3f} s and more after the loss"


def losses(evidence: Evidence) -> Iterator[str]:
    """A renewed lease that was lost, or an error, that no fault explains."""
    for life in evidence.lives:
        for stay in life.stays:
            if stay.lost and stay.enter.renewed and stay.leave and _is_calm(evidence, stay.enter.at, stay.leave.at):
                yield f"lost without a fault: {_shown(stay)}"
        for entry in life.of("failed"):
            if not entry.note.startswith(EXPECTED) and _is_calm(evidence, entry.at, entry.at):
                yield f"failed without a fault: {life.name} at {entry.at:.3f}, {entry.note}"


def errors(evidence: Evidence) -> Iterator[str]:
    """The errors that no user should see."""
    for life in evidence.lives:
        for entry in life.of("error"):
            yield f"error: in {life.name} at {entry.at:.3f}:\n{entry.note}"
        for entry in life.of("log"):
            if entry.form != "WARNING" or not entry.note.startswith("aiolock: "):
                yield f"logged: in {life.name} at {entry.at:.3f}, {entry.form} {entry.note}"


def hangs(evidence: Evidence) -> Iterator[str]:
    """A wait without an end, and a worker that gets no lock though no fault is felt."""
    for life in evidence.lives:
        long = {began: at for began, at in life.waits() if at - began > LONGEST_WAIT}
        for began, at in long.items():
            if (seconds := beyond(evidence.faults, began, at)) > LONGEST_WAIT:
                yield f"hang: a wait of {life.name} that began at {began:.3f} lasted {seconds:.1f} s beyond the faults"
        begin, end = max(life.begin, evidence.begin), min(life.end, evidence.end)
        grants = [at for stay in life.stays if begin <= (at := stay.enter.at) <= end]
        for first, last in pairwise([begin, *grants, end]):
            if (seconds := beyond(evidence.faults, first, last)) > LONGEST_WAIT:
                yield f"starved: {life.name} got nothing for {seconds:.1f} s beyond the faults, until {last:.3f}"


def silent(evidence: Evidence) -> Iterator[str]:
    """Servers that could grant locks, but did not for a time after a fault."""
    grants = sorted(stay.enter.at for stay in all_stays(evidence.lives))
    for fault in evidence.faults:
        if fault.able is not None:
            first = next((at for at in grants if at > fault.able), evidence.end)
            if first - fault.able > LONGEST_WAIT:
                yield f"silent: nothing was granted for {first - fault.able:.1f} s after {fault.kind!r} was over"


def left_behind(evidence: Evidence) -> Iterator[str]:
    """The remains in a client that rests, and in a process that has closed it."""
    for life in evidence.lives:
        for entry in life.of("idle"):
            if entry.note:
                yield f"left: in the client of {life.name} when all its tasks had ended, {entry.note}"
        for entry in life.of("end"):
            if entry.amount:
                yield f"left: tasks in {life.name}, {entry.note}"


def growth(evidence: Evidence) -> Iterator[str]:
    """The memory of a long life that grows and grows."""
    for life in evidence.lives:
        early, late = memory(life)
        if late - early > max(MOST_GROWTH * early, LEAST_GROWTH):
            yield f"memory: {life.name} grew from {early / 1000:.1f} to {late / 1000:.1f} MB"


def seen(evidence: Evidence) -> Iterator[str]:
    """The findings of the crew."""
    yield from evidence.seen


Check = Callable[[Evidence], Iterator[str]]
CHECKS: tuple[Check, ...] = (*(overlaps, tokens, overstays, left_behind, seen, errors, hangs, silent, losses, growth),)
# Events without any fault: leases that are fixed and too short, and waits that are bounded.
# Another check looks at losses of renewed leases.
EXPECTED = ("LockTimeoutError", "LeaseLostError")


def memory(life: Life) -> tuple[int, int]:
    """Kilobytes when a tenth of the life was over, and at its end."""
    beats = list(life.of("beat"))
    if not beats:
        return 0, 0
    warm = beats[0].at + WARMED_UP * (beats[-1].at - beats[0].at)
    return next(beat.amount for beat in beats if beat.at >= warm), beats[-1].amount


def longest_wait(evidence: Evidence) -> tuple[float, float]:
    """The longest wait, and the longest part of one that no fault explains."""
    whole = unexplained = 0.0
    for life in evidence.lives:
        for began, at in life.waits():
            whole = max(whole, at - began)
            if at - began > unexplained:
                unexplained = max(unexplained, beyond(evidence.faults, began, at))
    return whole, unexplained


def silences(evidence: Evidence) -> dict[str, list[float]]:
    """The times without any grant during each kind of fault."""
    grants = sorted(stay.enter.at for stay in all_stays(evidence.lives))
    found: dict[str, list[float]] = defaultdict(list)
    for fault in evidence.faults:
        times = [fault.begin, *(at for at in grants if fault.begin <= at <= fault.settled), fault.settled]
        found[fault.kind].append(max(after - before for before, after in pairwise(times)))
    return dict(found)


def counted(evidence: Evidence, kind: str) -> Counter[str]:
    """The number of each note of that kind, without the parts that differ each time."""
    notes = (entry.note for life in evidence.lives for entry in life.of(kind))
    return Counter(
        " ".join(note.split()[:2]) if note.startswith("LeaseLostError") else note.split()[0] for note in notes
    )


def _is_calm(evidence: Evidence, begin: float, end: float) -> bool:
    return not any(fault.begin <= end and begin <= fault.settled for fault in evidence.faults)


def _shown(stay: Stay) -> str:
    enter = stay.enter
    leave = "never left" if stay.leave is None else f"left at {stay.leave.at:.3f}{' with a loss' if stay.lost else ''}"
    return (
        f"{stay.life} ({enter.form}, {enter.name!r}, token {enter.token},"
        f" from {enter.at:.3f} to {stay.until:.3f}, {leave})"
    )
