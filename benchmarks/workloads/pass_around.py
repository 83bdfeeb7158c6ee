"""B5: the tasks of one process pass one lock around, without a pause."""

import asyncio
import time

from benchmarks import peers
from benchmarks.observer import Observer
from benchmarks.run import Measures, Outcome, Run
from benchmarks.sections import Sections, Tally, growth_between
from benchmarks.witness import Witness

NAME = "shared"


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *tasks*: their number; a section is entered, lets the loop turn once, and is left."""
    return await _measure(run, observer, run.number("tasks"))


async def alone(run: Run, observer: Observer) -> Outcome:
    """Baseline: one task, so that its two calls follow each other; the loop turns once between them, as above."""
    return await _measure(run, observer, 1)


async def _measure(run: Run, observer: Observer, tasks: int) -> Outcome:
    async with peers.make(run.peer, run.url, tasks, 30) as peer:
        begin = time.monotonic() + run.warm_up
        end = begin + run.seconds
        counting = asyncio.create_task(growth_between(observer.sent, begin, end))
        with Witness() as witness:
            tally = await Sections(peer, [NAME] * tasks, witness, shared=True).count(begin, end)
        commands = await counting
    return Outcome(tally.measures() | shares(tally, commands), problem=tally.problem)


def shares(tally: Tally, commands: float) -> Measures:
    """The evenness of the tasks' shares, and the cost of a section for the server."""
    if not tally.sections:
        return {}
    fair = tally.sections / len(tally.shares)
    least, most = min(tally.shares) / fair, max(tally.shares) / fair
    return {
        "least_share": least,
        "greatest_share": most,
        "share_deviation": max(1 - least, most - 1),
        "commands_per_section": commands / tally.sections,
    }
