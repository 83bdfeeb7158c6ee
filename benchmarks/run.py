"""The input and the outcome of one run: plain data that travels between processes as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Measures = dict[str, float]


@dataclass(frozen=True)
class Run:
    """One measurement of one peer, in a process of its own."""

    workload: str
    peer: str
    loop: str
    url: str
    seconds: float
    parameters: Mapping[str, float] = field(default_factory=dict)
    worker: int = 0
    """0 is the process that was started by the runner; others were started by that one."""
    witness: str = ""
    """The file in which processes that share a name watch each other."""

    @property
    def warm_up(self) -> float:
        """Seconds that are run and not measured."""
        return min(1.0, self.seconds / 4)

    def number(self, parameter: str) -> int:
        """A parameter that is a whole number."""
        return int(self.parameters[parameter])


@dataclass
class Outcome:
    """The result of a run: figures, or the reason why there are none."""

    measures: Measures = field(default_factory=dict)
    distribution: list[float] = field(default_factory=list)
    """Seconds, sorted; of the hand-off only."""
    problem: str | None = None
    """The failure: a run with a problem counts in no ratio."""
