"""Many seeds, in one process or in several; a count of what they exercised; and how a seed is shrunk."""

import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.profiles import PROFILES
from tests.simulation.scenario import Choice, Outcome, simulate
from tests.simulation.topologies import TOPOLOGIES

# Garbage of killed processes is collected between seeds, never within one.
_SEEDS_PER_COLLECTION = 20
_LEAST_HORIZON = 0.5


@dataclass
class Tally:
    """Counts of the faults and acts of the seeds, and of the violations that they found."""

    seeds: int = 0
    turns: int = 0
    seconds: float = 0.0
    found: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    acts: dict[str, int] = field(default_factory=dict)
    profiles: dict[str, int] = field(default_factory=dict)
    digest: int = 0

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.turns += outcome.turns
        self.seconds += outcome.seconds
        # The order of seeds does not matter, so that several processes have the digest of one.
        self.digest ^= outcome.digest
        _count(self.found, dict.fromkeys(outcome.kinds, 1))
        _count(self.faults, outcome.struck)
        _count(self.acts, outcome.acts)
        _count(self.profiles, {outcome.profile: 1})

    def merge(self, other: dict[str, Any]) -> None:
        """Add the tally of another process, as `vars` gives it."""
        self.seeds += other["seeds"]
        self.turns += other["turns"]
        self.seconds += other["seconds"]
        self.digest ^= other["digest"]
        for mine, theirs in (
            (self.found, other["found"]),
            (self.faults, other["faults"]),
            (self.acts, other["acts"]),
            (self.profiles, other["profiles"]),
        ):
            _count(mine, theirs)


def unexercised(tally: Tally, choice: Choice) -> list[str]:
    """The kinds of faults and the acts that seeds of this *choice* may have, but that no seed of the *tally* had."""
    kinds = [TOPOLOGIES[choice.on]] if choice.on is not None else list(TOPOLOGIES.values())
    profiles = [each for kind in kinds for each in kind.profiles if choice.profile in (None, each)]
    faults = [fault for profile in profiles for fault in PROFILES[profile]]
    acts = [act.__name__ for kind in kinds for mix in kind.mixes for act in mix if choice.act in (None, act.__name__)]
    return [each for each in dict.fromkeys((*faults, *acts)) if each not in tally.faults and each not in tally.acts]


def _count(counts: dict[str, int], more: dict[str, int]) -> None:
    for each, number in more.items():
        counts[each] = counts.get(each, 0) + number


def is_same_twice(choice: Choice) -> bool:
    """Whether two runs of the seed are the same."""
    _collect_only_between_seeds()
    return simulate(choice).digest == simulate(choice).digest


def _collect_only_between_seeds() -> None:
    """Keep garbage until a seed is over: a collection within a seed would destroy tasks at another moment each time."""
    gc.collect()
    gc.freeze()
    gc.disable()


def run(choices: Iterable[Choice], tell: Callable[[Outcome], None], goes_on: Callable[[Tally], bool]) -> Tally:
    """Run seeds while it *goes on*; *tell* is called with each that found something."""
    _collect_only_between_seeds()
    tally = Tally()
    for choice in choices:
        outcome = simulate(choice)
        tally.add(outcome)
        if outcome.violations:
            tell(outcome)
        del outcome
        if tally.seeds % _SEEDS_PER_COLLECTION == 0:
            gc.collect()
        if not goes_on(tally):
            break
    return tally


def shrink(outcome: Outcome) -> Outcome:
    """The seed again with fewer faults and fewer acts, as long as it finds one of the same kinds of violation."""
    best = outcome
    for smaller in _fewer_faults(best):
        tried = simulate(smaller(best.choice))
        if tried.kinds & outcome.kinds:
            best = tried
    horizon = outcome.horizon
    while horizon / 2 >= _LEAST_HORIZON:
        horizon /= 2
        tried = simulate(replace(best.choice, horizon=horizon))
        if not tried.kinds & outcome.kinds:
            break
        best = tried
    return best


def _fewer_faults(outcome: Outcome) -> Iterator[Callable[[Choice], Choice]]:
    """The smaller plans: first no fault, then all faults but one, for each of them."""
    yield lambda choice: replace(choice, faults=())
    for number in range(len(outcome.plan)):

        def without(choice: Choice, number: int = number) -> Choice:
            now = range(len(outcome.plan)) if choice.faults is None else choice.faults
            return replace(choice, faults=tuple(each for each in now if each != number))

        yield without


def command(choice: Choice) -> str:
    """The command that runs *choice* again."""
    words = [f"python -m tests.simulation --seed {choice.seed} --trace"]
    if choice.profile is not None:
        words.append(f"--profile {choice.profile}")
    if choice.on is not None:
        words.append(f"--on {choice.on}")
    if choice.act is not None:
        words.append(f"--act {choice.act}")
    if choice.eager:
        words.append("--eager")
    if choice.faults is not None:
        words.append(f"--faults {','.join(map(str, choice.faults)) or 'none'}")
    if choice.horizon is not None:
        words.append(f"--horizon {choice.horizon:g}")
    return " ".join(words)


def most_common(counts: dict[str, int]) -> str:
    return ", ".join(f"{each} {number}" for each, number in Counter(counts).most_common()) or "none"


def start_job(arguments: list[str]) -> "subprocess.Popen[str]":
    """Another process for a share of the seeds; it prints its findings and, last, its tally as JSON."""
    return subprocess.Popen([sys.executable, "-m", "tests.simulation", *arguments], stdout=subprocess.PIPE, text=True)
