"""
The tables of docs/concepts/proof.md that follow from the simulation: `python -m tests.simulation.proof` writes them.

The numbers of the long run are in `long_run.json`, as the simulation prints them; of several runs, merged by `Tally`:

    python -m tests.simulation --seeds 100000 --jobs 2 --json > tests/simulation/long_run.json
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.simulation.planted.__main__ import BUDGET
from tests.simulation.planted.faults import FAULTS
from tests.simulation.record.scenarios import SCENARIOS

PAGE = Path(__file__).parents[2] / "docs/concepts/proof.md"
LONG_RUN = Path(__file__).parent / "long_run.json"
_MADE = re.compile(r"(<!-- made by `tests\.simulation\.proof (\w+)` -->\n).*?(<!-- made until here -->)", re.DOTALL)


def _long_run() -> Iterator[str]:
    # The findings of the run are in lines of their own before the last one.
    tally: dict[str, Any] = json.loads(LONG_RUN.read_text().splitlines()[-1])
    counts = (
        f"{sum(tally['acts'].values()):,} acts of the processes, {sum(tally['faults'].values()):,} faults that struck"
    )
    found = f"{sum(tally['found'].values()):,} seeds that found something"
    yield f"{tally['seeds']:,} seeds, {tally['seconds'] / 3600:,.1f} hours of virtual time, {counts}, {found}."
    yield ""
    yield f"The faults by kind: {_counts(tally['faults'])}."


def _counts(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind.replace('_', '-')} {number:,}" for kind, number in ordered)


def _planted() -> Iterator[str]:
    missed: dict[str, list[str]] = {}
    for fault in FAULTS:
        if fault.missed:
            missed.setdefault(fault.missed, []).append(fault.what)
    found = sum(not fault.missed for fault in FAULTS)
    yield f"Within {BUDGET} seeds for each, the simulation finds {found} of {len(FAULTS)}. It does not find:"
    yield ""
    for reason, faults in missed.items():
        yield f"- {'; '.join(faults)}: *{reason}*."


def _record() -> Iterator[str]:
    for kind in dict.fromkeys(scenario.kind for scenario in SCENARIOS):
        yield f"Found as *{kind}*:"
        yield ""
        for scenario in SCENARIOS:
            if scenario.kind == kind:
                yield f"- [{scenario.issue}]({scenario.url}), `{scenario.name}`: {scenario.happened}"
        yield ""


_TABLES: dict[str, Callable[[], Iterator[str]]] = {"long_run": _long_run, "planted": _planted, "record": _record}


def with_tables(page: str) -> str:
    """The text of the *page*, with each table as it is now."""
    return _MADE.sub(lambda made: f"{made[1]}\n" + "\n".join(_TABLES[made[2]]()).rstrip() + f"\n\n{made[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
