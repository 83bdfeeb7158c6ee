"""A soak from its start to what the judge says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic

from tests.soak import leftovers, sabotage
from tests.soak.crew import Crew
from tests.soak.judge import Evidence
from tests.soak.lives import Life
from tests.soak.schedule import Schedule
from tests.soak.settings import Topology
from tests.soak.stages import STAGES

# The most seconds for which the forms are used.
_LONGEST_FIXED = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """The servers to soak, the forms of work, and the time."""

    on: Topology
    minutes: float
    seed: int
    pythons: Sequence[str]
    server: str | None = None
    sabotage: bool = False


def soak(options: Options, folder: Path, tell: Callable[[str], None] = lambda line: None) -> Evidence:
    """Run it; the journals are in *folder* afterwards."""
    seen: list[str] = []
    with STAGES[options.on](options.server) as stage:
        more = sabotage.faults(stage.servers[0], folder) if options.sabotage else {}
        with Crew(stage.workers_see, options.pythons, folder, options.seed, stays=options.sabotage) as crew:
            schedule = Schedule(stage, crew, Random(options.seed), more, tell)
            begin = monotonic()
            try:
                schedule.run(begin + 60 * options.minutes)
            except AssertionError as error:
                seen.append(f"servers: did not become whole again, {error}")
            end = monotonic()
            crew.rest(lambda: seen.extend(leftovers.subscriptions(stage.servers)))
            seen += crew.seen
        seen += leftovers.keys(stage.primaries(), max(_LONGEST_FIXED, stage.workers_see.lease))
    lives = [Life.read(path) for path in sorted(folder.glob("*.jsonl"))]
    return Evidence(lives, schedule.done, begin, end, seen)
