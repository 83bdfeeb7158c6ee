"""
Draws the panels of `dashboard.json` with what they would show of a minute of locks.

``python -m examples.monitoring.picture FILE.svg``, in the root of the repository. The locks are those of one process,
under load; Redis stops answering for five seconds in the middle. The numbers are what a scrape of Prometheus would have
got every half second; `promql` computes the panels from them. Grafana's own picture of them looks different. Needs the
packages of the group `tests`.
"""

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY

from aiolock import AioLockError, LockClient, LockConfig
from aiolock.opentelemetry import instrument
from aiolock.testing import Server
from examples.monitoring.promql import Query, Sample

SECONDS, EVERY, WINDOW = 60, 0.5, 5.0
DARK = "<style>@media (prefers-color-scheme: dark) { svg { filter: invert(0.88) hue-rotate(180deg) } }</style>"
DASHBOARD = Path(__file__).with_name("dashboard.json")


def sample(started: float) -> Sample:
    """The answer to a scrape."""
    numbers = {
        (each.name, frozenset((label, text) for label, text in each.labels.items() if text)): each.value
        for family in REGISTRY.collect()
        if family.name.startswith("aiolock")
        for each in family.samples
    }
    return Sample(time.monotonic() - started, numbers)


async def work(locks: LockClient, ends: float) -> None:
    """Take one of few locks, again and again, as a service would that has some requests at a time."""
    while time.monotonic() < ends:
        try:
            async with locks.lock(f"order:{random.randrange(12)}").hold(wait=1.5):
                await asyncio.sleep(random.expovariate(20))
        except AioLockError:
            await asyncio.sleep(0.2)
        await asyncio.sleep(random.expovariate(4))


async def report(locks: LockClient, number: int, ends: float) -> None:
    """Hold a lock for long, again and again, so that it is renewed."""
    while time.monotonic() < ends:
        try:
            async with locks.lock(f"report:{number}"):
                await asyncio.sleep(8)
        except AioLockError:
            await asyncio.sleep(0.2)


async def samples() -> list[Sample]:
    """A minute under load; the server is paused for a while."""
    config = instrument(LockConfig(lease=6, command_timeout=2), group=lambda name: name.partition(":")[0])
    with Server() as server:
        started = time.monotonic()
        async with LockClient.from_url(server.url, config=config) as locks:
            ends = started + SECONDS
            workers = [asyncio.create_task(work(locks, ends)) for _ in range(40)]
            workers += [asyncio.create_task(report(locks, number, ends)) for number in range(6)]
            found = []
            while (now := time.monotonic() - started) < SECONDS:
                found.append(sample(started))
                if len(found) == int(SECONDS / EVERY / 2):
                    server.pause()
                elif len(found) == int((SECONDS / 2 + 5) / EVERY):
                    server.resume()
                await asyncio.sleep(EVERY - now % EVERY)
            await asyncio.gather(*workers)
    return found


def draw(axes: Axes, panel: dict[str, Any], found: list[Sample]) -> None:
    """One panel: a line for each series of each query."""
    for target in panel["targets"]:
        query = Query(target["expr"], found, WINDOW)
        lines: dict[str, list[tuple[float, float]]] = {}
        for at in range(1, len(found)):
            for labels, value in query.at(at).items():
                name = target["legendFormat"]
                for label, text in labels:
                    name = name.replace(f"{{{{{label}}}}}", text)
                lines.setdefault(name, []).append((found[at].time, value))
        for name, line in sorted(lines.items()):
            axes.plot(*zip(*line, strict=True), label=name, linewidth=1.2)
    axes.set_title(panel["title"], fontsize="medium")
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize="small")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="x-small", loc="upper left")


def main(path: str) -> None:
    """Run the load, and write the picture to *path*."""
    from opentelemetry import metrics  # noqa: PLC0415

    mpl.use("svg")
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
    found = asyncio.run(samples())
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    figure = Figure(figsize=(12, 9), layout="constrained")
    for axes, panel in zip(figure.subplots(3, 3).flat, panels, strict=True):
        draw(axes, panel, found)
    figure.supxlabel("seconds")
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
    # `DARK` makes it dark for readers who do not prefer light pages.
    drawn = Path(path).read_text("utf-8")
    Path(path).write_text(drawn.replace("</svg>", f"{DARK}</svg>"), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
