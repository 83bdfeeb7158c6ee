"""B6: several processes with several tasks each on one name, without a pause."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import peers
from benchmarks.crew import Worker, hear, say
from benchmarks.observer import Observer
from benchmarks.run import Measures, Outcome, Run
from benchmarks.sections import Sections, Tally, growth_between
from benchmarks.witness import Witness

NAME = "shared"


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameters *processes* and *tasks* of each; this process does no work, it counts."""
    Witness.create(Path(run.witness))
    workers = [await Worker.start(run, number + 1) for number in range(run.number("processes"))]
    for worker in workers:
        await worker.hear()
    begin = time.monotonic() + run.warm_up
    end = begin + run.seconds
    for worker in workers:
        await worker.tell([begin, end])
    commands = await growth_between(observer.sent, begin, end)
    results = [await worker.hear() for worker in workers]
    await asyncio.gather(*(worker.end() for worker in workers))
    return _summed(results, commands)


async def work(run: Run) -> None:
    """The work of each of the processes."""
    tasks = run.number("tasks")
    async with peers.make(run.peer, run.url, tasks, 30) as peer:
        say("ready")
        begin, end = await hear()
        with Witness(path=run.witness) as witness:
            sections = Sections(peer, [NAME] * tasks, witness, shared=True, first=run.worker * 1000)
            tally = await sections.count(begin, end)
    say({"shares": tally.shares, "seconds": tally.seconds, "cpu": tally.cpu, "problems": tally.problems})


def _summed(results: list[dict[str, Any]], commands: float) -> Outcome:
    by_process = [sum(result["shares"]) for result in results]
    by_task = [share for result in results for share in result["shares"]]
    problems = sum((Counter(result["problems"]) for result in results), Counter[str]())
    seconds = fmean(result["seconds"] for result in results)
    tally = Tally(by_task, seconds, sum(result["cpu"] for result in results), {}, problems)
    measures: Measures = tally.measures()
    if tally.sections:
        measures["commands_per_section"] = commands / tally.sections
        measures["least_process"] = min(by_process) * len(by_process) / tally.sections
        measures["least_task"] = min(by_task) * len(by_task) / tally.sections
    return Outcome(measures, problem=tally.problem)
