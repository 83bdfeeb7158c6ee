"""The table of the README, from the same results as docs/benchmarks.md: aiolock beside redis-py's Lock."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.figures import FIGURES, OURS, Record, Side, number

README = Path(__file__).parents[1] / "README.md"
BEGIN = "<!-- made by `python -m benchmarks.page` -->"
END = "<!-- made until here -->"
LOOP = "asyncio"
THEIRS = "redis-py"

_HEAD = """
| what | redis-py's Lock | aiolock |
|---|---|---|
"""
# Each row has the text, the workload, and the measure: aiolock's beside theirs.
_RATIOS = (
    ("one task, a lock that nobody else wants: time of a section", "B1", "seconds_per_section"),
    ("100 tasks with a lock each: sections per second", "B2", "sections_per_second"),
    ("1,000 tasks with a lock each: sections per second", "B3", "sections_per_second"),
)
# These rows have the scale and the unit, too.
_VALUES = (
    ("1,000 tasks with a lock each: connections", "B3", "connections", 1, ""),
    ("time until a released lock is held by a waiter in another process", "B4", "median", 1e3, " ms"),
    ("50 tasks on one lock: turns of the task with the fewest, of an equal share", "B5", "least_share", 100, " %"),
)


def write(records: Sequence[Record]) -> None:
    """Put the table into the README."""
    before, _, rest = README.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{table(records)}\n{END}{after}", "utf-8")


def table(records: Sequence[Record]) -> str:
    """Medians of the page's results, with the same precision."""
    lines = [f"| {text} | 1 × | {_ratio(records, workload, measure)} |" for text, workload, measure in _RATIOS]
    for text, workload, measure, scale, unit in _VALUES:
        cells = (_value(records, workload, Side(peer, measure), scale, unit) for peer in (THEIRS, OURS))
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return _HEAD + "".join(f"{line}\n" for line in lines)


def _ratio(records: Sequence[Record], workload: str, measure: str) -> str:
    theirs = Side(THEIRS, measure)
    figure = next(each for each in FIGURES if (each.workload, each.bottom) == (workload, theirs))
    measured = figure.measured(records, LOOP)
    return "not measured" if measured is None else f"{number(measured[1])}{figure.unit}"


def _value(records: Sequence[Record], workload: str, side: Side, scale: float, unit: str) -> str:
    runs = [record for record in records if (record["workload"], record["loop"]) == (workload, LOOP)]
    values = [value for record in runs if (value := side.of([record])) is not None]
    return f"{number(median(values) * scale)}{unit}" if values else "not measured"
