"""B12: one task enters and leaves sections under several locks without other takers."""

import time

from benchmarks import peers
from benchmarks.observer import Observer
from benchmarks.peers.adapter import Lock
from benchmarks.run import Outcome, Run


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *names*: the number of locks."""
    names = [f"several:{number}" for number in range(run.number("names"))]
    async with peers.make(run.peer, run.url, 1, 30) as peer:
        several = peer.several(names)
        await _enter_until(several, time.monotonic() + run.warm_up)
        cpu, started = time.process_time(), time.monotonic()
        sections = await _enter_until(several, started + run.seconds)
        seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    return Outcome(
        {
            "sections_per_second": sections / seconds,
            "seconds_per_section": seconds / sections,
            "cpu_per_section": cpu / sections,
        }
    )


async def _enter_until(several: Lock, end: float) -> int:
    sections = 0
    while time.monotonic() < end:
        async with several:
            sections += 1
    return sections
