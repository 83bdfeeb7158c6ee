"""A scenario: one story, told with another library and with aiolock, and the judge's verdict on each."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.record.stage import Block, Stage

Story = Callable[[Stage], None]


@dataclass(frozen=True)
class Scenario:
    name: str
    library: str
    # The public report of the fault: an issue or a pull request.
    issue: str
    # The promise of aiolock that the fault would break.
    promise: str
    # The events there, in one or two sentences.
    happened: str
    # The kind of violation that the judge finds in the other library.
    kind: str
    story: Story
    theirs: Block
    ours: Block
    # The other library itself runs here, and not only its commands.
    is_library: bool = False
    latency: float = 0.001

    def run(self, *, ours: bool) -> "Verdict":
        stage = Stage(self.ours if ours else self.theirs, is_ours=ours, latency=self.latency)
        self.story(stage)
        return Verdict(stage.judge.found, stage.lines, stage.world.violations)

    @property
    def url(self) -> str:
        repository, number = self.issue.split("#")
        return f"https://github.com/{repository}/issues/{number}"


@dataclass(frozen=True)
class Verdict:
    found: list[str]
    lines: list[str]
    # Exceptions that nobody handled, and scripts that failed: the scenario itself is wrong.
    broken: list[str]

    @property
    def kinds(self) -> list[str]:
        return [each.split(":")[0] for each in self.found]


@dataclass(frozen=True)
class Result:
    scenario: Scenario
    theirs: Verdict
    ours: Verdict

    @property
    def is_right(self) -> bool:
        """The other library shows its fault, and nothing else; aiolock shows none."""
        is_sound = not self.theirs.broken and not self.ours.broken
        return is_sound and self.theirs.kinds == [self.scenario.kind] and not self.ours.found


def run(scenario: Scenario) -> Result:
    return Result(scenario, scenario.run(ours=False), scenario.run(ours=True))
