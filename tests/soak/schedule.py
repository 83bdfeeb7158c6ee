"""Faults come one after the other, from a seed, with time in between in which all workers go on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from signal import SIGCONT, SIGSTOP
from time import monotonic

from tests.soak.crew import Crew, Worker
from tests.soak.faults import Fault
from tests.soak.stages import Faults, Stage

# Seconds without a fault before the first one, and between two.
CALM = 4.0
# Seconds beyond the lease of a worker that is gone.
SETTLING = 2.0


class Schedule:
    """Each kind of fault in turn, in an order of its own every time; now and then two at once."""

    def __init__(self, stage: Stage, crew: Crew, chance: Random, more: Faults, tell: Callable[[str], None]) -> None:
        self.done: list[Fault] = []
        self._stage = stage
        self._crew = crew
        self._chance = chance
        self._more = more
        self._tell = tell
        self._lease = stage.workers_see.lease
        self._kinds = {**stage.faults(), **self._of_workers()}

    def run(self, until: float) -> None:
        """Faults until then, and the time in which the last one settles."""
        time.sleep(CALM / 2)
        for kind, fault in self._more.items():
            self._do(kind, fault)
        for kind in self._deck():
            if monotonic() >= until:
                break
            self._do(kind, self._kinds[kind])
            if self._chance.random() < 0.3:
                continue
            time.sleep(self._lease + SETTLING + CALM + self._chance.uniform(0.1, 1))
            self._crew.look()

    def _deck(self) -> Iterator[str]:
        while True:
            kinds = list(self._kinds)
            self._chance.shuffle(kinds)
            yield from kinds

    def _do(self, kind: str, fault: Callable[[Random], None]) -> None:
        begin = monotonic()
        self._stage.able = None
        fault(self._chance)
        end = monotonic()
        self.done.append(Fault(kind, begin, end, end + self._lease + SETTLING, self._stage.able))
        self._tell(f"{begin:.1f} {kind}, {end - begin:.1f} s")

    def _of_workers(self) -> Faults:
        return {
            "worker killed": lambda chance: chance.choice(self._crew.mortals).kill(),
            "worker shut down": lambda chance: chance.choice(self._crew.mortals).shut_down(),
            "worker paused": lambda chance: self._pause(chance, chance.uniform(0.1, 0.8) * self._lease),
            "worker paused for longer than its lease": lambda chance: self._pause(chance, 1.5 * self._lease),
            "all workers paused": self._pause_all,
            "worker paused, servers harmed meanwhile": self._pause_through,
        }

    def _pause(self, chance: Random, seconds: float) -> None:
        with paused(chance.choice(self._crew.workers)):
            time.sleep(seconds)

    def _pause_all(self, chance: Random) -> None:
        for worker in self._crew.workers:
            worker.signal(SIGSTOP)
        time.sleep(chance.uniform(0.5, 1) * self._lease)
        for worker in self._crew.workers:
            worker.signal(SIGCONT)

    def _pause_through(self, chance: Random) -> None:
        with paused(chance.choice(self._crew.workers)):
            chance.choice(list(self._stage.own_faults().values()))(chance)


@contextmanager
def paused(worker: Worker) -> Iterator[None]:
    worker.signal(SIGSTOP)
    try:
        yield
    finally:
        worker.signal(SIGCONT)
