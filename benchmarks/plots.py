"""The plots of the page, as SVG, by matplotlib."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures import OURS, Record

mpl.use("svg")

Points = dict[str, dict[float, float]]
_OWN_LOCKS = ("B1", "B2", "B3")
# White becomes nearly black, black nearly white, and each colour stays what it is, only lighter or darker. A plot keeps
# a background of its own, so that it can be read also where the page is dark and the viewer does not say so.
_DARK = "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(0.88) hue-rotate(180deg) } }</style>"


@dataclass(frozen=True)
class Picture:
    """A plot that was made, and how to read it."""

    file: str
    title: str
    reading: str


def draw(records: Sequence[Record], directory: Path) -> list[Picture]:
    """Draw the plots that have results, into *directory*/benchmarks; for asyncio if there are both loops."""
    loop = min((record["loop"] for record in records), default="asyncio")
    sound = [record for record in records if record["loop"] == loop and not record["problem"]]
    made = []
    for name, title, reading, paint in (
        ("throughput", f"Sections per second over the number of tasks, {loop}", "Higher is better.", _throughput),
        ("hand-off", f"Time of a hand-off to another process, {loop}", "Further to the left is better.", _hand_off),
        ("waiters", f"Time of a hand-off over the number of waiters, {loop}", "Lower is better.", _waiters),
    ):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.add_subplot()
        if paint(axes, sound):
            axes.set_title(title)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize="small")
            file = Path("benchmarks", f"{name}.svg")
            (directory / file).parent.mkdir(exist_ok=True)
            _save(figure, directory / file)
            made.append(Picture(file.as_posix(), title, reading))
    return made


def _save(figure: Figure, path: Path) -> None:
    """The same plot gives the same file: no date, no random ids. A reader who prefers dark pages sees it dark."""
    settings: dict[Any, Any] = {"svg.hashsalt": "aiolock", "svg.fonttype": "none"}
    drawn = io.StringIO()
    with mpl.rc_context(settings):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    path.write_text(drawn.getvalue().replace("</svg>", f"{_DARK}\n</svg>"), "utf-8")


def _throughput(axes: Axes, records: Sequence[Record]) -> bool:
    points = _medians(records, _OWN_LOCKS, "sections_per_second")
    axes.set(xscale="log", xlabel="tasks, each with a lock of its own", ylabel="sections per second")
    return _lines(axes, points, axes.plot)


def _waiters(axes: Axes, records: Sequence[Record]) -> bool:
    points = _medians(records, ("B8",), "median", 1e3)
    axes.set(xscale="log", yscale="log", xlabel="waiters", ylabel="median, milliseconds")
    return _lines(axes, points, axes.plot)


def _hand_off(axes: Axes, records: Sequence[Record]) -> bool:
    """The distribution of all samples of all rounds, of each peer."""
    samples: dict[str, list[float]] = {}
    for record in records:
        if record["workload"] == "B4":
            samples.setdefault(record["peer"], []).extend(record["distribution"])
    for peer, found in samples.items():
        axes.ecdf([1e3 * sample for sample in found], label=peer, **_style(peer))
    axes.set(xscale="log", xlabel="milliseconds", ylabel="share of the hand-offs that took at most that long")
    return bool(samples)


def _medians(records: Sequence[Record], workloads: Sequence[str], measure: str, scale: float = 1.0) -> Points:
    """By peer and by its first parameter, the median of the rounds."""
    values: dict[str, dict[float, list[float]]] = {}
    for record in records:
        if record["workload"] in workloads and measure in record["measures"]:
            first = next(iter(record["parameters"].values()))
            values.setdefault(record["peer"], {}).setdefault(first, []).append(scale * record["measures"][measure])
    return {peer: {first: median(found) for first, found in each.items()} for peer, each in values.items()}


def _lines(axes: Axes, points: Points, plot: Callable[..., object]) -> bool:
    for peer, found in points.items():
        x = sorted(found)
        plot(x, [found[each] for each in x], marker="o", label=peer, **_style(peer))
    return bool(points)


def _style(peer: str) -> dict[str, Any]:
    return {"linewidth": 2.5, "color": "black"} if peer == OURS else {"linewidth": 1.2}
