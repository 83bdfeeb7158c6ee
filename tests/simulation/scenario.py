"""One seed: its world, its servers and processes, from the beginning to the last look at everything."""

import asyncio
import logging
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from types import FrameType

from tests.simulation.acts import PERMITS
from tests.simulation.checks import Checks
from tests.simulation.checks.leftovers import check_closed, check_settled
from tests.simulation.faults import Faults
from tests.simulation.fleet import Act, Fleet, Settings
from tests.simulation.network import Network
from tests.simulation.profiles import LEASES, Fault, plan_of
from tests.simulation.topologies import TOPOLOGIES, drawn
from tests.simulation.world import HangError, World

# Seconds after which no trace of ended clients and locks may be left.
_SETTLED = 4.0
# A lock whose release ran on a primary that was replaced, or was refused for good, lasts as long as its lease, which a
# renewal that was on its way begins again.
_SETTLED_WITH_LEASES = 8.5
# Seconds within which an act that runs at the horizon ends, and within which a client is closed.
_LONGEST = 60.0
_CLOSED = 6.0
_LATENCIES = ((0.0001, 0.002), (0.0005, 0.02), (0.0001, 0.08))


@dataclass(frozen=True)
class Choice:
    """
    A seed, and the choices that are not left to the seed. A shrunken run has fewer *faults* and an earlier *horizon*.

    With an *act*, the acts of the seed are a mix that contains it.
    """

    seed: int
    profile: str | None = None
    # The name of a topology.
    on: str | None = None
    faults: tuple[int, ...] | None = None
    # Seconds in which acts begin; without a choice, those of the topology.
    horizon: float | None = None
    act: str | None = None
    # Whether each task of every process begins at once; Python 3.11 cannot do that.
    eager: bool = False

    def mixes(self, on: str) -> list[list[Act]]:
        """The possible mixes of acts on that topology."""
        mixes = TOPOLOGIES[on].mixes
        return [mix for mix in mixes if self.act is None or self.act in [act.__name__ for act in mix]]

    def topology(self, drawn: str) -> str:
        """The topology of the seed: the one that was *drawn* for it, unless there is a choice that rules it out."""
        if self.on is not None:
            return self.on
        fits = [
            name
            for name, kind in TOPOLOGIES.items()
            if self.mixes(name) and (self.profile is None or self.profile in kind.profiles)
        ]
        return drawn if drawn in fits else fits[-1]


@dataclass
class Outcome:
    choice: Choice
    digest: int
    turns: int
    seconds: float
    violations: list[str]
    lines: list[str]
    plan: list[Fault]
    profile: str
    horizon: float
    struck: dict[str, int] = field(default_factory=dict)
    acts: dict[str, int] = field(default_factory=dict)

    @property
    def kinds(self) -> set[str]:
        return {violation.split(":")[0] for violation in self.violations}


class ErrorsAreViolations(logging.Handler):
    """Each error that aiolock logs is a violation."""

    def emit(self, record: logging.LogRecord) -> None:
        here = World.here
        if here is not None:
            here.trace("log", f"{record.levelname} {record.getMessage()}"[:300])
            if record.levelno >= logging.ERROR:
                here.violation("logged", record.getMessage())


def simulate(choice: Choice, *, tracing: bool = False, acts: list[Act] | None = None) -> Outcome:
    """Run one seed to its end; with the *acts*, in place of those that the seed chooses."""
    world = World(choice.seed, tracing=tracing)
    draw = world.generator("world")
    on = choice.topology(drawn(draw))
    profile = choice.profile or draw.choice(TOPOLOGIES[on].profiles)
    network = Network(world, draw.choice(_LATENCIES))
    topology = TOPOLOGIES[on](network, draw, profile)
    plan = plan_of(choice.seed, profile, topology.horizon)
    if choice.faults is not None:
        plan = [plan[number] for number in choice.faults]
    leases = [lease for lease in LEASES if lease >= 72 * network.latency[1]]
    settings = Settings(
        acts=acts or draw.choice(choice.mixes(on)),
        lease=draw.choice(leases),
        leases=leases,
        horizon=choice.horizon or topology.horizon,
        replicas=topology.replicas(draw),
        cancelled=draw.choice((0.1, 0.25, 0.6)),
        cancelled_on_arrival=draw.choice((0.005, 0.02, 0.2)),
        eager=choice.eager,
    )
    fleet = Fleet(topology, settings)
    fleet.faults = Faults(topology, fleet, plan)
    fleet.checks = Checks(fleet.faults, {"permits": PERMITS, "sem": PERMITS}, network.latency[1])
    names = [act.__name__ for act in settings.acts]
    world.trace("world", f"profile {profile}, {on} of {len(topology.servers)}, lease {settings.lease}, {names}")
    for _ in range(draw.choice((2, 2, 2, 3, 4))):
        fleet.start()
    _run(world, fleet)
    outcome = Outcome(
        choice, world.digest, world.turns, world.now, list(world.violations), list(world.lines or ()), plan, profile,
        settings.horizon, fleet.faults.struck, dict(fleet.shared.counts),
    )  # fmt: skip
    for process in fleet.members:
        process.end()
    return outcome


def _run(world: World, fleet: Fleet) -> None:
    fleet.checks.look()
    try:
        world.run_until(max([fleet.topology.horizon, *(fault.at + fault.lasts for fault in fleet.faults.plan)]))
        _let_acts_end(world, fleet)
        lasts_long = fleet.topology.replaces_primaries or fleet.faults.refused_for_good
        settle(world, fleet, _SETTLED_WITH_LEASES if lasts_long else _SETTLED)
        check_settled(world, fleet)
        fleet.checks.judge_load()
        for member in fleet.alive():
            member.process.call_soon(member.over.set, context=Context())
        world.run(lambda: all(member.is_closed for member in fleet.alive()), world.now + _CLOSED)
        world.run_until(world.now + 0.5)
        check_closed(world, fleet)
    except HangError:
        _describe_hang(world, fleet)
    finally:
        World.here = None


def settle(world: World, fleet: Fleet, seconds: float) -> None:
    """Let *seconds* pass in which no process stands still: it may freeze within a turn long after that was planned."""
    until = world.now + seconds
    while world.now < until:
        world.run_until(until)
        until = max([until, *(member.process.froze_last + seconds for member in fleet.alive())])


def _let_acts_end(world: World, fleet: Fleet) -> None:
    """Acts may stand in line for long, but the line goes on."""

    def one_has_ended(before: int) -> bool:
        return fleet.shared.ended > before or not fleet.is_at_work()

    while fleet.is_at_work():
        world.run(partial(one_has_ended, fleet.shared.ended), world.now + _LONGEST)


def _describe_hang(world: World, fleet: Fleet) -> None:
    for member in fleet.alive():
        for task in member.process.unfinished_tasks():
            frames = [f"{frame.f_code.co_name}:{frame.f_lineno}" for frame in _stack(task)]
            world.trace(member.process.name, f"hangs: {task.get_name()} {' > '.join(frames)}")
    world.violation("hang", f"at {world.now:.2f}: {fleet.checks.waits.still_waiting()}")


def _stack(task: "asyncio.Task[object]") -> list[FrameType]:
    found: list[FrameType] = []
    coroutine: object = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        found.append(frame)
        coroutine = getattr(coroutine, "cr_await", None)
    return found
