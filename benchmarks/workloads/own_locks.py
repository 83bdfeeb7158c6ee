"""B1, B2, B3: every task of one process has a lock of its own, and no task ever waits for one."""

import time

from benchmarks import peers
from benchmarks.by_hand import Arguments, ByHand, check, load
from benchmarks.observer import Observer
from benchmarks.peers.bare import Bare
from benchmarks.run import Outcome, Run
from benchmarks.sections import Sections
from benchmarks.witness import Witness


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *tasks*: the number of tasks."""
    tasks = run.number("tasks")
    names = [f"own:{number}" for number in range(tasks)]
    async with peers.make(run.peer, run.url, tasks, 30) as peer:
        begin = time.monotonic() + run.warm_up
        with Witness(tasks) as witness:
            tally = await Sections(peer, names, witness, shared=False).count(begin, begin + run.seconds)
        measures = tally.measures()
        measures["connections"] = await observer.connections()
    return Outcome(measures, problem=tally.problem)


async def pipelined(run: Run, observer: Observer) -> Outcome:
    """
    Baseline: no tasks at all.

    One loop puts the acquires of all names into one `pipeline(transaction=False)`, executes it, and then the same
    with the releases. Nobody can send these commands over redis-py's public interface with less work.
    """
    calls = [ByHand(f"own:{number}") for number in range(run.number("tasks"))]
    peer = Bare(run.url, 1, 30)
    async with peer:
        await load(peer.redis)
        begin = time.monotonic() + run.warm_up
        sections, cpu, started = 0, 0.0, 0.0
        while (now := time.monotonic()) < begin + run.seconds:
            if now >= begin and not started:
                sections, cpu, started = 0, time.process_time(), now
            await _batch(peer, [call.acquire() for call in calls])
            await _batch(peer, [call.release() for call in calls])
            sections += len(calls)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
        measures = {
            "sections_per_second": sections / seconds,
            "seconds_per_section": seconds / sections,
            "cpu_per_section": cpu / sections,
            "batches_per_section": 2 / len(calls),
            "connections": float(await observer.connections()),
        }
    return Outcome(measures)


async def _batch(peer: Bare, batch: list[Arguments]) -> None:
    pipeline = peer.redis.pipeline(transaction=False)
    for arguments in batch:
        _ = pipeline.evalsha(*arguments)
    for reply in await pipeline.execute():
        check(reply, "pipelined")
