"""`python -m benchmarks.page results.json`: makes docs/benchmarks.md, its plots and the table of the README."""

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from benchmarks import measured, peers, plots, readme, redisson, sessions, workloads
from benchmarks.conclusions import LOOP, sentences
from benchmarks.figures import FIGURES, OURS, Figure, Record, number
from benchmarks.runner import Plan
from benchmarks.sessions import Session
from benchmarks.statistic import spread
from benchmarks.workloads import WORKLOADS

# Each group has the runs of one peer with one first parameter.
Groups = dict[tuple[str, float | None], list[Record]]

LOOPS = ("asyncio", "uvloop")
LIBRARIES = ("redis-py", *workloads.LIBRARIES, *redisson.PEERS)
DOCS = Path(__file__).parents[1] / "docs"
HISTORY = Path(__file__).parent / "results" / "history.json"

# The median is by state of the library, figure and loop.
History = dict[str, dict[str, dict[str, float]]]

_HEAD = """# Benchmarks

How fast aiolock is, beside redis-py's Lock, other libraries, and the bare commands that it sends. A section is one
acquire and one release; fencing tokens and renewal are on.

## What a lock costs

- **Round trips**: two for a section, one with [`release="behind"`](how-to/one-round-trip.md). Commands of many tasks
  share them.
- **Connections**: up to three of each process to each server, for any number of tasks: for commands, for renewals, and
  for messages once a task has waited.
- **The server**: it runs the scripts of all clients on one core. In B3 it serves the sections of one client that shares
  two cores with it: it can serve at least that many a second.
"""
_CONCLUSIONS = """
## What to conclude

{about}

{sentences}

{ahead}
"""
_ABOUT = (
    "Medians on asyncio. Each workload below names the commits at which it was measured. The newest is {}: no "
    "figure shows a later change of aiolock."
)
_NONE_AHEAD = "No library that was measured is ahead of aiolock anywhere on this page."
_AHEAD = "Other libraries are ahead of aiolock here: {places}."
_LIBRARIES_HEAD = """
## The other libraries

Each is used as its documentation says, with its own defaults and leases of 30 seconds. Those that do less in a section
have less to pay for.

| library | waiters | renewed | fencing tokens | measured in |
|---|---|---|---|---|
"""
_FIGURES_HEAD = """
## Figures to reach

A ratio is of two runs of the same round. Three numbers are the least, **the median** and the greatest of all rounds;
one number stands for a single round, or for rounds that are equal. ✗ marks a goal that the median misses.

| workload | figure | to reach | {columns} |
|---|---|---|{rule}|
"""
_HISTORY_HEAD = """
## Before and after

The medians of earlier states of the library, measured by the same figures on the machines of their days, and those of
the table above.

| workload | figure | {columns} |
|---|---|{rule}|
"""
_MEASURED = """
## How it was measured

`make bench` measures all of this, or some workloads, and makes this page; `make bench-quick` gives a look in less than
a minute. What each workload does, and what exactly a baseline is, is in `benchmarks/README.md`.

| commit | day | server | processor | rounds, at most | seconds a run | workloads |
|---|---|---|---|---|---|---|
{sessions}

| what | which |
|---|---|
{versions}

## Before you compare

- **The server is on the same machine.** A network adds its round trips to every section: two, and one with
  `release="behind"`. The longer they take, the closer to each other are libraries that wait for two, as in B1.
- **Sections are empty.** What your code does under a lock comes on top, and is the same with every library.
- **Compare ratios, not times.** Within a round the peers take turns, so that a machine that is slow is slow for all of
  them; times of two machines, or of two days, say little.
- **Every run is a process of its own on an empty server.** A run in which something went wrong (an error, a lock lost,
  two holders seen at a time) is told, and counts in no ratio.
- **A table may be of several commits**, if its heading names several: its rows are then of several days.
- **On uvloop** only those peers are measured that a figure or a conclusion needs.
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
        ("B16", "B17"),
        (
            ("server_time_per_section", "server's processor per section, µs", 1e6),
            ("sections_per_second", "sections/s", 1),
        ),
    ),
    **dict.fromkeys(
        ("B12", "B13", "B14", "B15"),
        (("sections_per_second", "sections/s", 1), ("cpu_per_section", "CPU per section, µs", 1e6)),
    ),
    **dict.fromkeys(
        ("B10", "B11", "B18", "B19"),
        (("requests_per_second", "requests/s", 1), ("cpu_per_request", "CPU of the service per request, µs", 1e6)),
    ),
}
_NOTES = {
    "B3": "`redis-py-default-pool` is redis-py's Lock on the pool that it has by default.",
    "B4": "`chain` is the release script with its `PUBLISH`, a subscriber and the acquire script.",
    "B5": "`bare` is one task alone. A share of 1 is fair; 0 is a task that never had the lock.",
    "B6": "A share of 1 is fair. A lock that lets the same task win over and over saves itself the hand-off.",
    "B10": "`no-lock` is the same endpoint without a lock.",
    "B12": "`one-by-one` is aiolock without its multi lock: a block for each, in one another. So are other libraries.",
    "B13": "`as-lock` is aiolock's lock in place of its semaphore, `counted` its counting semaphore.",
    "B14": "`as-lock` is aiolock's lock in place of its read lock.",
    "B15": "All but `aiolock` have locks on three servers; those of Redisson are of the class `RedissonRedLock`.",
    "B1": '`behind` is aiolock with `LockConfig(release="behind")`, `older-aiolock` an earlier aiolock.',
    "B18": "`aiolock` is `lock_for`, `block` an `async with` in the endpoint, without a dependency.",
    "B19": "`aiolock` is `synchronized`, `block` an `async with` in the handler.",
    "B16": "`lock-commands`, `redis-py-commands` and those of Redisson are bare commands, a hundred at a time.",
    "B8": "`asyncio-lock` is `asyncio.Lock`, without Redis: what a waiting task costs anyway.",
}
# The measure by which peers are compared, and whether a greater value is better.
_MAIN: dict[str, tuple[str, bool]] = {
    **{"B4": ("median", False), "B7": ("cpu_share", False), "B8": ("median", False)},
    **dict.fromkeys(("B16", "B17"), ("server_time_per_section", False)),
    **dict.fromkeys(("B10", "B11", "B18", "B19"), ("requests_per_second", True)),
}
_USUAL = ("sections_per_second", True)


def page(sessions_: Sequence[Session], pictures: Sequence[plots.Picture], history: History) -> str:
    """The whole page."""
    records = sessions.records_of(sessions_)
    loops = [loop for loop in LOOPS if any(record["loop"] == loop for record in records)]
    parts = [_HEAD, _conclusions(records, measured.newest(sessions_)), *map(_picture, pictures)]
    parts += [_figures(records, loops), *(_section(workload, records, sessions_) for workload in WORKLOADS)]
    if history:
        parts.append(_before_and_after(history | {"this page": medians(records)}, loops))
    parts.append(_LIBRARIES_HEAD + "".join(_library(name, records) for name in peers.LIBRARIES))
    facts = _MEASURED.format(sessions=measured.table(sessions_), versions=measured.versions(sessions_))
    return "".join([*parts, facts])


def _conclusions(records: Sequence[Record], newest: str) -> str:
    told = "\n".join(_wrapped(f"- {sentence}", "  ") for sentence in sentences(records))
    places = [
        f"{workload} {', '.join(found)}"
        for workload in WORKLOADS
        if (found := _ahead(workload, _groups(workload, records, LOOP)))
    ]
    ahead = _AHEAD.format(places="; ".join(places)) if places else _NONE_AHEAD
    return _CONCLUSIONS.format(about=_wrapped(_ABOUT.format(newest)), sentences=told, ahead=_wrapped(ahead))


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _library(name: str, records: Sequence[Record]) -> str:
    found = {record["workload"] for record in records if record["peer"] == name}
    places = ", ".join(workload for workload in WORKLOADS if workload in found) or "not measured"
    return f"| `{name}` | {' | '.join(peers.LIBRARIES[name])} | {places} |\n"


def _picture(picture: plots.Picture) -> str:
    return f"\n![{picture.title}]({picture.file})\n\n{picture.reading}\n"


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
        if any(value is not None for value in known):
            lines.append(f"| {figure.workload} | {figure.text} | {cells} |\n")
    titles = " | ".join(f"{state}, {loop}" for state, loop in columns)
    return _HISTORY_HEAD.format(columns=titles, rule="|".join("---" for _ in columns)) + "".join(lines)


def _three(values: tuple[float, float, float]) -> str:
    least, middle, greatest = map(number, values)
    return f"**{middle}**" if least == greatest else f"{least} · **{middle}** · {greatest}"


def _section(workload: str, records: Sequence[Record], sessions_: Sequence[Session]) -> str:
    """The records of a workload, with a table for each loop that has records."""
    found = [record for record in records if record["workload"] == workload]
    parts = [f"\n## {workload}: {WORKLOADS[workload].title}\n"]
    if note := _NOTES.get(workload):
        parts.append(f"\n{note}\n")
    parts.append(f"\n{_wrapped(measured.of_workload(found, sessions_)) if found else 'Not measured.'}\n")
    loops = [loop for loop in LOOPS if any(record["loop"] == loop for record in found)]
    return "".join([*parts, *(_table(workload, records, loop) for loop in loops)])


def _table(workload: str, records: Sequence[Record], loop: str) -> str:
    """A row for each peer, also without records, and for each of its parameters where there are several."""
    groups = _groups(workload, records, loop)
    several = len({first for _, first in groups}) > 1
    columns = _COLUMNS.get(workload, _COLUMNS["own"])
    titles = [loop, *(title for _, title, _ in columns)]
    lines = ["", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for (peer, first), group in groups.items():
        name = f"`{peer}`, {number(first or 0)}" if several else f"`{peer}`"
        lines.append(f"| {name} | {' | '.join(_cells(group, columns))} |")
    planned = dict.fromkeys(run.peer for _, run in Plan([workload], None, [loop], 1, 1).rounds(workload))
    for peer in (each for each in planned if each not in {found for found, _ in groups}):
        lines.append(f"| `{peer}` |{' not measured |' * len(columns)}")
    ahead = ["", f"Ahead of aiolock here: {', '.join(found)}."] if (found := _ahead(workload, groups)) else []
    return "\n".join([*lines, *ahead, *_problems(workload, groups), ""])


def _groups(workload: str, records: Sequence[Record], loop: str) -> Groups:
    groups: Groups = {}
    for record in records:
        if record["workload"] == workload and record["loop"] == loop:
            first = next(iter(record["parameters"].values()), None)
            groups.setdefault((record["peer"], first), []).append(record)
    order = (OURS, *WORKLOADS[workload].peers)
    return dict(sorted(groups.items(), key=lambda item: (item[0][1] or 0, order.index(item[0][0]))))


def _ahead(workload: str, groups: Groups) -> list[str]:
    """The libraries whose median is better than ours of the same session, by the first number of the table."""
    measure, more = _MAIN.get(workload, _USUAL)
    found = []
    for (peer, first), group in groups.items():
        ours = groups.get((OURS, first), []) if peer in LIBRARIES else []
        beside = [record for record in ours if record["session"] in {each["session"] for each in group}]
        if (here := _values(beside or ours, measure)) and (there := _values(group, measure)):
            times = median(there) / median(here) if more else median(here) / median(there)
            day = "" if beside else ", of another day"
            if times > 1:
                found.append(f"`{peer}`{_which(workload, first)} by {number(times)} ×{day}")
    return found


def _values(group: Sequence[Record], measure: str) -> list[float]:
    sound = (record["measures"] for record in group if not record["problem"])
    return [measures[measure] for measures in sound if measure in measures]


def _which(workload: str, first: float | None) -> str:
    """The first parameter of a run, as words behind its peer."""
    return "" if first is None else f" ({next(iter(WORKLOADS[workload].parameters[0]))}: {number(first)})"


def _cells(group: Sequence[Record], columns: Iterable[tuple[str, str, float]]) -> list[str]:
    sound = [record for record in group if not record["problem"]]
    cells = []
    for measure, _, scale in columns:
        values = [value * scale for value in _values(group, measure)]
        cells.append(_three(spread(values)) if values else "failed" if not sound else "")
    return cells


def _problems(workload: str, groups: Groups) -> list[str]:
    lines = []
    for (peer, first), group in groups.items():
        if problems := [record["problem"] for record in group if record["problem"]]:
            text = problems[0].replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"- `{peer}`{_which(workload, first)} failed in {len(problems)} of {len(group)} runs: {text}")
    return ["", *lines] if lines else []


def main(words: list[str]) -> None:
    """Read the file, write the page and the plots; and the table of the README, unless they are written elsewhere."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write, instead of docs/ and the README")
    parser.add_argument("--remember", metavar="STATE", help="keep the medians under this name, for pages to come")
    chosen = parser.parse_args(words)
    results = sessions.read(chosen.results)
    records = sessions.records_of(results)
    pictures = plots.draw(records, chosen.docs)
    path = chosen.docs / "benchmarks.md"
    history: History = json.loads(HISTORY.read_text("utf-8")) if HISTORY.exists() else {}
    path.write_text(page(results, pictures, history), "utf-8")
    if chosen.docs == DOCS:
        readme.write(records)
    if chosen.remember is not None:
        HISTORY.write_text(json.dumps(history | {chosen.remember: medians(records)}, indent=1) + "\n", "utf-8")
    print(f"written: {path}, {', '.join(picture.file for picture in pictures)}")


if __name__ == "__main__":
    main(sys.argv[1:])
