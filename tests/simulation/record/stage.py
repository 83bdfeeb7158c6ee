"""The stage of a story: a simulated world with a server, the parties that use locks, and the faults."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.simulation.network import Link, Network
from tests.simulation.process import Process
from tests.simulation.record.judge import Judge, Visit
from tests.simulation.server import Server
from tests.simulation.world import HangError, World

Belief = Callable[[], bool]
Block = Callable[["Party"], AbstractAsyncContextManager[Belief]]

NAME = "job"
# Seconds between two things that a holder does under its lock.
_ACTS = 0.05
_CLOSES = 6.0


@dataclass(eq=False)
class Party:
    """A user of the lock: a task in a process. Tasks of one process share the objects in *kept*."""

    name: str
    process: Process
    stage: "Stage"
    shared: bool = False
    kept: dict[str, Any] = field(default_factory=dict)

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """The process's object of this kind, made at its first use."""
        if what not in self.kept:
            self.kept[what] = make()
        return self.kept[what]

    @property
    def redis(self) -> Redis:
        """A client as other libraries use it; it sends nothing twice."""

        def make() -> Redis:
            host = self.stage.server.name
            return Redis(host=host, protocol=2, retry=Retry(NoBackoff(), 0), decode_responses=True)

        made: Redis = self.once("redis", make)
        return made

    # Acts of parties.

    def begin(self, when: float, act: Coroutine[Any, Any, None]) -> None:
        self.stage.coroutines.append(act)
        self.stage.world.at(when, self._start, act)

    def _start(self, act: Coroutine[Any, Any, None]) -> None:
        if not self.process.killed:
            self.kept.setdefault("tasks", []).append(self.process.start(act, self.name))

    async def holds(self, seconds: float, last: Callable[[], object] | None = None) -> None:
        """Take the lock, work under it for *seconds*, do the *last* thing, and give the lock back."""
        judge, world = self.stage.judge, self.stage.world
        judge.asks(self.name)
        self.tells("asks for the lock")
        ended = None
        try:
            async with self.stage.block(self) as believes:
                try:
                    await self._works(Visit(self.name, self.process, believes, self.shared), seconds)
                    if last is not None:
                        last()
                finally:
                    ended = world.now
            self.tells("gave the lock back")
        except Exception as error:
            judge.fails(self.name, error)
            self.tells(f"gets {type(error).__name__}: {error}")
        except asyncio.CancelledError:
            self.tells("is cancelled")
        finally:
            judge.is_gone(self.name)
            if ended is not None:
                judge.has_left(self.name, world.now - ended)

    async def _works(self, visit: Visit, seconds: float) -> None:
        judge, world = self.stage.judge, self.stage.world
        self.tells("has the lock")
        judge.enters(visit)
        ends = world.now + seconds
        try:
            while world.now < ends:
                await asyncio.sleep(min(_ACTS, ends - world.now))
                judge.acts(visit)
        finally:
            judge.leaves(visit)
            self.tells("leaves its block")

    def tells(self, what: str) -> None:
        self.stage.world.trace(self.name, what)


class Stage:
    def __init__(self, block: Block, *, is_ours: bool, latency: float = 0.001) -> None:
        self.world = World(1, tracing=True)
        self.block, self.is_ours = block, is_ours
        self.network = Network(self.world, (latency, latency))
        self.server = Server(self.world, "server")
        self.network.servers = {self.server.address: self.server}
        self.judge = Judge(self.world)
        # The events, once the story is over.
        self.lines: list[str] = []
        self.parties: list[Party] = []
        self.coroutines: list[Coroutine[Any, Any, None]] = []

    def party(self, name: str, *, beside: Party | None = None, shared: bool = False) -> Party:
        """A party in a process of its own, or *beside* another one in its process."""
        if beside is None:
            party = Party(name, Process(self.network, name), self, shared)
        else:
            party = Party(name, beside.process, self, shared, beside.kept)
        self.parties.append(party)
        return party

    def play(self, seconds: float) -> None:
        """Let the story go on until it is *seconds* old."""
        self.world.run_until(seconds)
        self.judge.ends()
        # The arguments of scripts are left out.
        self.lines = [line for line in self.world.lines or [] if " -> " not in line]
        self._close()

    def _close(self) -> None:
        """The clients of aiolock are closed, and all else is forgotten."""
        closing = [
            party.process.start(party.kept.pop("client").aclose(), "closing")
            for party in self.parties
            if "client" in party.kept and not party.process.killed
        ]
        try:
            self.world.run(lambda: all(task.done() for task in closing), self.world.now + _CLOSES)
        except HangError:
            self.judge.violation("stuck", "a client cannot be closed")
        finally:
            for process in list(self.world.processes):
                process.kill()
            for act in self.coroutines:
                act.close()
            World.here = None

    # Faults.

    def at(self, when: float, what: Callable[..., object], *args: Any) -> None:
        self.world.at(when, what, *args)

    def links(self, party: Party) -> list[Link]:
        return [link for link in self.network.links if link.process is party.process]

    def lose_reply(self, party: Party) -> None:
        """The connection breaks after the next command was run: its reply is lost."""
        for link in self.links(party):
            link.replies_left = 0

    def hold_up(self, party: Party, seconds: float) -> None:
        """Data that the party sends on its open connections arrive late."""
        for link in self.links(party):
            link.hold(seconds)

    def cut(self, party: Party, seconds: float) -> None:
        """Data between the party and the server arrive late."""
        self.world.trace("network", f"{party.name} is cut off for {seconds:g} s")
        self.network.path(party.process.name, self.server.name).cut_until = self.world.now + seconds

    def restart(self, seconds: float) -> None:
        """The server is down for *seconds*, and comes back with its data."""
        self.server.crash()
        self.world.after(seconds, self.server.restart)

    def freeze(self, party: Party, seconds: float, lease: float) -> None:
        self.judge.excuses(lease)
        party.process.freeze(seconds)

    def kill(self, party: Party, lease: float) -> None:
        self.judge.dies(party.name, party.process, lease)
        party.process.kill()
        for link in self.links(party):
            link.finish()


async def until_done(attempt: Callable[[], Awaitable[Any]], pause: float = 0.02) -> Any:
    """Try until the *attempt* gives something, as libraries do whose waiters poll."""
    while not (got := await attempt()):
        await asyncio.sleep(pause)
    return got
