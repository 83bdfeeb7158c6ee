"""Tasks that enter and leave critical sections as fast as they can, counted over a window of time."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.peers.adapter import Peer
from benchmarks.run import Measures
from benchmarks.witness import Witness


@dataclass
class Tally:
    """The counts between *begin* and *end*."""

    shares: list[int]
    seconds: float
    cpu: float
    counted: dict[str, float]
    """The peer's own counts meanwhile."""
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def sections(self) -> int:
        return sum(self.shares)

    @property
    def problem(self) -> str | None:
        """The failures, the most frequent first."""
        told = "; ".join(f"{times} × {what}" for what, times in self.problems.most_common(3))
        return told or (None if self.sections else f"not one section in {self.seconds:.1f} s")

    def measures(self) -> Measures:
        """The figures that all workloads of sections share; none where there was not one section."""
        if not self.sections:
            return {}
        per_section = {f"{name}_per_section": self.counted.get(name, 0) / self.sections for name in ("batches",)}
        return {
            "sections_per_second": self.sections / self.seconds,
            "seconds_per_section": self.seconds / self.sections,
            "cpu_per_section": self.cpu / self.sections,
            **(per_section if self.counted else {}),
        }


class Sections:
    """One task for each name in *names*; tasks are numbered from *first* on, uniquely among all processes."""

    def __init__(self, peer: Peer, names: Sequence[str], witness: Witness, *, shared: bool, first: int = 1) -> None:
        self._peer = peer
        self._names = names
        self._witness = witness
        self._shared = shared
        self._first = first
        self._over = False
        self._counts = [0] * len(names)
        self._problems: Counter[str] = Counter()

    async def count(self, begin: float, end: float) -> Tally:
        """
        Count from *begin* to *end* on the monotonic clock; sections before that are warm-up.

        A loop that is too busy to begin in time ends as much later.
        """
        tasks = [asyncio.create_task(self._work(place)) for place in range(len(self._names))]
        await asyncio.sleep(begin - time.monotonic())
        before, counted, cpu, started = list(self._counts), self._peer.counters(), time.process_time(), time.monotonic()
        await asyncio.sleep(max(end, started + end - begin) - time.monotonic())
        after, counted_after = list(self._counts), self._peer.counters()
        cpu, seconds = time.process_time() - cpu, time.monotonic() - started
        self._over = True
        await _finish(tasks, self._problems)
        if self._witness.overlaps:
            self._problems["two holders at a time"] = self._witness.overlaps
        shares = [late - early for early, late in zip(before, after, strict=True)]
        counted = {name: value - counted[name] for name, value in counted_after.items()}
        return Tally(shares, seconds, cpu, counted, self._problems)

    async def _work(self, place: int) -> None:
        lock, witness, who = self._peer.lock(self._names[place]), self._witness, self._first + place
        word = 0 if self._shared else place
        while not self._over:
            async with lock:
                witness.enter(who, word)
                if self._shared:
                    # The others get a turn, so that a second holder is seen.
                    await asyncio.sleep(0)
                witness.leave(who, word)
            self._counts[place] += 1


async def _finish(tasks: Sequence[asyncio.Task[None]], problems: Counter[str]) -> None:
    """Wait until every task has ended its section; a peer may starve a task for long: then cancel it."""
    done, pending = await asyncio.wait(tasks, timeout=5)
    for task in pending:
        task.cancel()
    if pending:
        await asyncio.wait(pending, timeout=5)
    for task in done:
        error = asyncio.CancelledError("by the peer") if task.cancelled() else task.exception()
        if error is not None:
            problems[described(error)] += 1


def described(error: BaseException) -> str:
    """An error in one short line."""
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text if len(text) <= 150 else text[:147] + "..."


async def growth_between(ask: Callable[[], Awaitable[float]], begin: float, end: float) -> float:
    """The growth of the number that *ask* gives, between the two times."""
    await asyncio.sleep(begin - time.monotonic())
    late = max(0.0, time.monotonic() - begin)
    before = await ask()
    await asyncio.sleep(end + late - time.monotonic())
    return await ask() - before
