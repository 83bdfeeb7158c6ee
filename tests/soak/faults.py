"""Faults as the judge sees them: the time of each fault, and the time for which it may have effects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of servers or workers from *begin* to *end*; until *settled* it may have effects."""

    kind: str
    begin: float
    end: float
    settled: float
    # From then on the servers could grant again.
    able: float | None = None


def calm(faults: Sequence[Fault], begin: float, end: float) -> Iterator[tuple[float, float]]:
    """The times from *begin* to *end* in which no fault may have effects."""
    for fault in sorted(faults, key=lambda fault: fault.begin):
        if begin < min(fault.begin, end):
            yield begin, min(fault.begin, end)
        begin = max(begin, fault.settled)
    if begin < end:
        yield begin, end


def beyond(faults: Sequence[Fault], begin: float, end: float) -> float:
    """The seconds from *begin* to *end* that no fault explains."""
    return sum(last - first for first, last in calm(faults, begin, end))
