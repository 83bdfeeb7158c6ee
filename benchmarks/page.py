"""`python -m benchmarks.page results.json ...`: makes docs/benchmarks.md, its plots and the table of the README."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import plots, readme, redisson
from benchmarks.figures import FIGURES, OURS, Figure, Record, number
from benchmarks.statistic import spread
from benchmarks.workloads import WORKLOADS

Groups = dict[tuple[str, float | None], list[Record]]  # The runs of one peer with one first parameter.

LOOPS = ("asyncio", "uvloop")
LIBRARIES = ("redis-py", "coredis", "pottery", "py-redis-semaphore", "redis-lock-py", *redisson.PEERS)
DOCS = Path(__file__).parents[1] / "docs"
HISTORY = Path(__file__).parent / "results" / "history.json"

History = dict[str, dict[str, dict[str, float]]]  # By state of the library, figure and loop: the median.

_HEAD = """# Benchmarks

How fast aiolock is, beside redis-py's Lock, other libraries, and the bare commands that it sends. Fencing tokens and
watchdog are on. Where another library is ahead, the page says so.
"""
_FIGURES_HEAD = """
## Figures to reach

Each figure compares two runs of the same round. Three numbers are the least, **the median** and the greatest of all
rounds. ✗ marks a goal that the median misses.

| workload | figure | to reach | {columns} |
|---|---|---|{rule}|
"""
_HISTORY_HEAD = """
## Before and after

The medians of earlier states of the library, measured by the same figures on the machines of their days.

| workload | figure | {columns} |
|---|---|{rule}|
"""
_MEASURED = """
## How it was measured

Every figure here was measured by `python -m benchmarks`, which you can run yourself: `make bench`, or, for a look of
less than a minute, `make bench-quick`. What each workload does, and what exactly a baseline is, is in
`benchmarks/README.md`.

Every run is a process of its own on an empty server, and within a round the peers take turns. A run in which something
went wrong (an error, a lock lost, two holders seen at a time) is told, and counts in no ratio.

| what | which |
|---|---|
{machine}

This page was made by `python -m benchmarks.page` from:

{files}
"""
_COLUMNS: dict[str, tuple[tuple[str, str, float], ...]] = {
    # Workload: the measures that are shown, with their titles and scales.
    "own": (
        ("sections_per_second", "sections/s", 1),
        ("cpu_per_section", "CPU per section, µs", 1e6),
        ("connections", "connections", 1),
    ),
    "B4": (("median", "median, ms", 1e3), ("p95", "p95, ms", 1e3), ("p99", "p99, ms", 1e3)),
    "B5": (
        ("sections_per_second", "sections/s", 1),
        ("least_share", "least share", 1),
        ("greatest_share", "greatest share", 1),
        ("commands_per_section", "commands per section", 1),
    ),
    "B6": (
        ("sections_per_second", "sections/s", 1),
        ("least_process", "least process", 1),
        ("least_task", "least task", 1),
        ("commands_per_section", "commands per section", 1),
    ),
    "B7": (
        ("lost", "lost", 1),
        ("cpu_share", "share of a core, %", 100),
        ("renewals_per_batch", "renewals per batch", 1),
        ("commands_per_second", "commands/s", 1),
        ("bytes_per_lock", "memory each, KB", 1e-3),
    ),
    "B8": (
        ("median", "hand-off median, ms", 1e3),
        ("p99", "p99, ms", 1e3),
        ("bytes_per_waiter", "memory each, KB", 1e-3),
        ("idle_commands", "commands in 2 idle seconds", 1),
        ("connections", "connections", 1),
    ),
    "B9": (
        ("first_tenth", "first tenth, µs", 1e6),
        ("last_tenth", "last tenth, µs", 1e6),
        ("bytes_per_name", "memory kept for each name, B", 1),
        ("server_bytes_per_name", "the same on the server, B", 1),
    ),
    **dict.fromkeys(
        ("B12", "B13", "B14", "B15"),
        (("sections_per_second", "sections/s", 1), ("cpu_per_section", "CPU per section, µs", 1e6)),
    ),
    **dict.fromkeys(
        ("B10", "B11"),
        (("requests_per_second", "requests/s", 1), ("cpu_per_request", "CPU of the service per request, µs", 1e6)),
    ),
}
_NOTES = {
    "B3": "`redis-py-default-pool` is redis-py's Lock on the pool that it has by default.",
    "B4": "`chain` is the release script with its `PUBLISH`, a subscriber and the acquire script.",
    "B5": "`bare` is one task alone. A share of 1 is fair; 0 is a task that never had the lock.",
    "B6": "A share of 1 is fair. Who lets the same task win over and over saves itself the hand-off.",
    "B10": "`no-lock` is the same endpoint without a lock.",
    "B12": "`one-by-one` is aiolock without its multi lock: a block for each, in one another. So are other libraries.",
    "B13": "`as-lock` is aiolock's lock in place of its semaphore, `counted` its semaphore that only counts.",
    "B14": "`as-lock` is aiolock's lock in place of its read lock.",
    "B15": "All but `aiolock` have locks on three servers; those of Redisson are of the class `RedissonRedLock`.",
    "B8": "`asyncio-lock` is `asyncio.Lock`, without Redis: what a waiting task costs anyway.",
}
# The measure by which peers are compared, and whether more of it is better.
_MAIN: dict[str, tuple[str, bool]] = {
    **{"B4": ("median", False), "B7": ("cpu_share", False), "B8": ("median", False)},
    **dict.fromkeys(("B10", "B11"), ("requests_per_second", True)),
}
_USUAL = ("sections_per_second", True)


def page(
    results: Sequence[dict[str, Any]], files: Sequence[str], pictures: Sequence[plots.Picture], history: History
) -> str:
    """The whole page."""
    records = [record for result in results for record in result["records"]]
    loops = [loop for loop in LOOPS if any(record["loop"] == loop for record in records)]
    parts = [_HEAD, *map(_picture, pictures), _figures(records, loops)]
    for workload, about in WORKLOADS.items():
        if any(record["workload"] == workload for record in records):
            parts.append(f"\n## {workload}: {about.title}\n\n{_NOTES.get(workload, '')}\n".replace("\n\n\n", "\n"))
            parts += [_workload(workload, records, loop) for loop in loops]
    if history:
        parts.append(_before_and_after(history | {"now": medians(records)}, loops))
    named = "\n".join(f"- `{name}`" for name in files)
    return "".join([*parts, _MEASURED.format(machine=_machine(results), files=named)])


def _picture(picture: plots.Picture) -> str:
    return f"\n![{picture.title}]({picture.file})\n\n{picture.reading}\n"


def _machine(results: Sequence[dict[str, Any]]) -> str:
    lines = []
    for title, key in (("machine", "machine"), ("peers", "peers")):
        facts: dict[str, list[str]] = {}
        for result in results:
            for name, value in result[key].items():
                if value not in facts.setdefault(name, []):
                    facts[name].append(value)
        lines += [f"| {name if title == 'machine' else f'`{name}`'} | {', '.join(facts[name])} |" for name in facts]
    seconds = sorted({record["seconds"] for result in results for record in result["records"]})
    rounds = max(record["round"] for result in results for record in result["records"]) + 1
    lines.append(f"| measured | {rounds} rounds, {' or '.join(f'{each:g}' for each in seconds)} s a run |")
    return "\n".join(lines)


def _figures(records: Sequence[Record], loops: Sequence[str]) -> str:
    head = _FIGURES_HEAD.format(columns=" | ".join(loops), rule="|".join("---" for _ in loops))
    return head + "".join(_figure(figure, records, loops) for figure in FIGURES)


def _figure(figure: Figure, records: Sequence[Record], loops: Sequence[str]) -> str:
    cells = []
    for loop in loops:
        measured = figure.measured(records, loop)
        if measured is None:
            cells.append("not measured")
        else:
            mark = "" if figure.reached(measured) else " ✗"
            cells.append(f"{_three(measured)}{figure.unit}{mark}")
    return f"| {figure.workload} | {figure.text} | {figure.wanted} | {' | '.join(cells)} |\n"


def medians(records: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Every figure that was measured: its median on each loop."""
    found: dict[str, dict[str, float]] = {}
    for figure in FIGURES:
        for loop in LOOPS:
            if (measured := figure.measured(records, loop)) is not None:
                found.setdefault(_key(figure), {})[loop] = float(f"{measured[1]:.4g}")
    return found


def _key(figure: Figure) -> str:
    return f"{figure.workload} {figure.text}"


def _before_and_after(history: History, loops: Sequence[str]) -> str:
    columns = [(state, loop) for state in history for loop in loops]
    lines = []
    for figure in FIGURES:
        known = [history[state].get(_key(figure), {}).get(loop) for state, loop in columns]
        cells = " | ".join("" if value is None else f"{number(value)}{figure.unit}" for value in known)
        lines.append(f"| {figure.workload} | {figure.text} | {cells} |\n")
    titles = " | ".join(f"{state}, {loop}" for state, loop in columns)
    return _HISTORY_HEAD.format(columns=titles, rule="|".join("---" for _ in columns)) + "".join(lines)


def _three(values: tuple[float, float, float]) -> str:
    least, middle, greatest = map(number, values)
    return f"**{middle}**" if least == greatest else f"{least} · **{middle}** · {greatest}"


def _workload(workload: str, records: Sequence[Record], loop: str) -> str:
    """A row for each peer, and for each of its parameters where there are several."""
    groups: Groups = {}
    for record in records:
        if record["workload"] == workload and record["loop"] == loop:
            first = next(iter(record["parameters"].values()), None)
            groups.setdefault((record["peer"], first), []).append(record)
    several = len({first for _, first in groups}) > 1
    columns = _COLUMNS.get(workload, _COLUMNS["own"])
    titles = [loop, *(title for _, title, _ in columns)]
    lines = ["", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for (peer, first), group in sorted(groups.items(), key=lambda item: item[0][1] or 0):
        name = f"`{peer}`, {number(first or 0)}" if several else f"`{peer}`"
        lines.append(f"| {name} | {' | '.join(_cells(group, columns))} |")
    return "\n".join([*lines, *_ahead(workload, groups), *_problems(groups), ""])


def _ahead(workload: str, groups: Groups) -> list[str]:
    """The libraries whose median is better than ours, by the first number of the table."""
    measure, more = _MAIN.get(workload, _USUAL)
    medians = {
        which: median(values)
        for which, group in groups.items()
        if (values := [r["measures"][measure] for r in group if not r["problem"] and measure in r["measures"]])
    }
    found = []
    for (peer, first), value in medians.items():
        ours = medians.get((OURS, first))
        if peer in LIBRARIES and ours is not None and (value > ours if more else value < ours):
            times = value / ours if more else ours / value
            found.append(f"`{peer}`{'' if first is None else f' ({number(first)})'} by {number(times)} ×")
    return ["", f"Ahead of aiolock here: {', '.join(found)}."] if found else []


def _cells(group: Sequence[Record], columns: Iterable[tuple[str, str, float]]) -> list[str]:
    sound = [record for record in group if not record["problem"]]
    cells = []
    for measure, _, scale in columns:
        values = [record["measures"][measure] * scale for record in sound if measure in record["measures"]]
        cells.append(_three(spread(values)) if values else "failed" if not sound else "")
    return cells


def _problems(groups: Groups) -> list[str]:
    lines = []
    for (peer, first), group in groups.items():
        if problems := [record["problem"] for record in group if record["problem"]]:
            which = f" ({number(first)})" if first is not None else ""
            text = problems[0].replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"- `{peer}`{which} failed in {len(problems)} of {len(group)} runs: {text}")
    return ["", *lines] if lines else []


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The results in these files."""
    results = [json.loads(path.read_text("utf-8")) for path in paths]
    for number_of_file, result in enumerate(results):
        for record in result["records"]:
            record["file"] = number_of_file  # Rounds of two files are different rounds.
    return results


def main(words: list[str]) -> None:
    """Read the files, write the page and the plots; and the table of the README, unless they are written elsewhere."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write, instead of docs/ and the README")
    parser.add_argument("--remember", metavar="STATE", help="keep the medians under this name, for pages to come")
    chosen = parser.parse_args(words)
    results = read(chosen.results)
    records = [record for result in results for record in result["records"]]
    pictures = plots.draw(records, chosen.docs)
    path = chosen.docs / "benchmarks.md"
    history: History = json.loads(HISTORY.read_text("utf-8")) if HISTORY.exists() else {}
    path.write_text(page(results, [path.name for path in chosen.results], pictures, history), "utf-8")
    if chosen.docs == DOCS:
        readme.write(records)
    if chosen.remember is not None:
        HISTORY.write_text(json.dumps(history | {chosen.remember: medians(records)}, indent=1) + "\n", "utf-8")
    print(f"written: {path}, {', '.join(picture.file for picture in pictures)}")


if __name__ == "__main__":
    main(sys.argv[1:])
