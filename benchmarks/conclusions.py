"""The conclusions at the head of the page: sentences with the medians of the results, on asyncio."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.figures import FIGURES, OURS, Figure, Record, Side, number

LOOP = "asyncio"
_THEIRS = "redis-py"


@dataclass(frozen=True)
class Conclusion:
    """A sentence, and the figures in its places; it is left out where one of them was not measured."""

    text: str
    figures: tuple[Figure, ...]

    def of(self, records: Sequence[Record]) -> str | None:
        """The sentence with the medians."""
        measured = [figure.measured(records, LOOP) for figure in self.figures]
        medians = [values[1] for values in measured if values is not None]
        return self.text.format(*map(number, medians)) if len(medians) == len(measured) else None


def _one(workload: str, peer: str, measure: str, first: float | None = None, *, scale: float = 1.0) -> Figure:
    return Figure(workload, "", Side(peer, measure, first), 0, scale=scale)


def _ratio(workload: str, measure: str, first: float | None = None, *, ours: str = OURS) -> Figure:
    return Figure(workload, "", Side(ours, measure, first), 0, Side(_THEIRS, measure, first))


CONCLUSIONS = (
    Conclusion(
        "**Many tasks share a client**: at 100 tasks with a lock each, aiolock runs {0} × the sections of redis-py's "
        "Lock, and at 1,000 tasks {1} ×, over {2} connection in place of {3}.",
        (
            _ratio("B2", "sections_per_second"),
            _ratio("B3", "sections_per_second"),
            _one("B3", OURS, "connections"),
            _one("B3", _THEIRS, "connections"),
        ),
    ),
    Conclusion(
        "**A lock that others wait for**: a waiter in another process has it {0} ms after the release; with redis-py's "
        "Lock, which polls, after {1} ms.",
        (_one("B4", OURS, "median", scale=1e3), _one("B4", _THEIRS, "median", scale=1e3)),
    ),
    Conclusion(
        "**Everybody gets a turn**: of 50 tasks on one lock, the task with the fewest turns has {0} % of a fair share; "
        "with redis-py's Lock, {1} %.",
        (_one("B5", OURS, "least_share", scale=100), _one("B5", _THEIRS, "least_share", scale=100)),
    ),
    Conclusion(
        "**One task alone**: a section takes {0} × the time of one with redis-py's Lock.",
        (_ratio("B1", "seconds_per_section"),),
    ),
    Conclusion(
        '**One task alone, with `release="behind"`**: {0} × the time of one with redis-py\'s Lock.',
        (_ratio("B1", "seconds_per_section", ours="behind"),),
    ),
    Conclusion(
        "**A web service**, 20 orders at once: FastAPI answers {0} ×, and aiohttp {1} ×, the requests that it answers "
        "with redis-py's Lock.",
        (_ratio("B10", "requests_per_second", 20), _ratio("B11", "requests_per_second", 20)),
    ),
    Conclusion(
        '**The same web service with `release="behind"`**: FastAPI {0} ×, and aiohttp {1} ×.',
        (
            _ratio("B10", "requests_per_second", 20, ours="behind"),
            _ratio("B11", "requests_per_second", 20, ours="behind"),
        ),
    ),
    Conclusion(
        "**Locks that are held for long**: 10,000 of them, renewed, take {0} % of one core and {1} KB each.",
        (_one("B7", OURS, "cpu_share", 30, scale=100), _one("B7", OURS, "bytes_per_lock", 30, scale=1e-3)),
    ),
)


def sentences(records: Sequence[Record]) -> list[str]:
    """The conclusions that the records allow."""
    return [told for each in CONCLUSIONS if (told := each.of(records)) is not None]


def compared(workload: str) -> set[str]:
    """The peers of a workload that its figures and the conclusions need."""
    figures = [*FIGURES, *(figure for each in CONCLUSIONS for figure in each.figures)]
    return {side.peer for each in figures if each.workload == workload for side in (each.top, each.bottom) if side}
