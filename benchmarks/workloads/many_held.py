"""B7: one process holds thousands of locks for several leases, and does nothing else."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from benchmarks import peers
from benchmarks.memory import resident
from benchmarks.observer import Observer
from benchmarks.peers.adapter import Lock, Peer
from benchmarks.run import Measures, Outcome, Run
from benchmarks.sections import described

_AT_ONCE = 100


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameters *locks*, *lease* in seconds, *leases* to hold them for; seconds do not matter."""
    names = [f"held:{number}" for number in range(run.number("locks"))]
    problems: Counter[str] = Counter()
    async with peers.make(run.peer, run.url, _AT_ONCE, run.parameters["lease"]) as peer:
        async with peer.lock("warm"):
            before = resident()
        locks = [peer.renewed(name) for name in names]
        await _each(locks, lambda lock: lock.__aenter__(), problems)
        memory = resident() - before
        measures = await _hold(peer, observer, run.parameters["lease"] * run.parameters["leases"])
        failed = problems.total()
        await _each(locks, lambda lock: lock.__aexit__(None, None, None), problems)
        lost = max(peer.lost(), problems.total() - failed)
    measures |= {"lost": lost, "bytes_per_lock": memory / len(locks)}
    problem = "; ".join(f"{times} × {what}" for what, times in problems.most_common(3)) or None
    return Outcome(measures, problem=problem or (f"{lost} locks lost" if lost else None))


async def _hold(peer: Peer, observer: Observer, seconds: float) -> Measures:
    sent, counted = await observer.sent(), peer.counters()
    cpu, started = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    cpu, seconds = time.process_time() - cpu, time.monotonic() - started
    measures: Measures = {"cpu_share": cpu / seconds, "commands_per_second": (await observer.sent() - sent) / seconds}
    if counted:
        change = {name: value - counted[name] for name, value in peer.counters().items()}
        measures |= {"renewals": change["renewals"], "batches": change["batches"]}
        measures["renewals_per_batch"] = change["renewals"] / max(1, change["batches"])
    return measures


async def _each(locks: Sequence[Lock], do: Callable[[Lock], Awaitable[object]], problems: Counter[str]) -> None:
    """Call *do* with every lock, with some at once."""
    for start in range(0, len(locks), _AT_ONCE):
        for result in await asyncio.gather(*map(do, locks[start : start + _AT_ONCE]), return_exceptions=True):
            if isinstance(result, BaseException):
                problems[described(result)] += 1
