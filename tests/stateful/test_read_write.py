"""Random histories of readers and writers do what a small model says."""

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from aiolock import AsyncReadLock, AsyncReadWriteLock, AsyncWriteLock, NotHeldError
from aiolock._embedded_server import Server
from tests.stateful.machine import CLIENTS, Machine, agrees, clients
from tests.stateful.model import Actor

ACTORS = [Actor(client, owner) for client in CLIENTS for owner in ("one", "two")]
actors = st.sampled_from(ACTORS)
halves = st.sampled_from(("read", "write"))


class ReadWriteMachine(Machine):
    """Who reads how often, and who writes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.holds: dict[str, Counter[Actor]] = {"read": Counter(), "write": Counter()}

    def of(self, actor: Actor) -> AsyncReadWriteLock:
        return self.clients[actor.client].read_write_lock("prices", owner=actor.owner)

    def half_of(self, actor: Actor, half: str) -> AsyncReadLock | AsyncWriteLock:
        return self.of(actor).read if half == "read" else self.of(actor).write

    def may(self, actor: Actor, half: str) -> bool:
        """Whether it is granted: nobody else writes and, to write, nobody else reads."""
        others = self.holds["write"].keys() | (self.holds["read"].keys() if half == "write" else set())
        return not others - {actor}

    @rule(actor=actors, half=halves)
    def try_lock(self, actor: Actor, half: str) -> None:
        lock = self.half_of(actor, half)
        if half == "write" and actor in self.holds["read"] and actor not in self.holds["write"]:
            with pytest.raises(RuntimeError):
                self.run(lock.try_lock())
            return
        granted = self.run(lock.try_lock()) is not None
        assert granted == self.may(actor, half)
        self.holds[half][actor] += granted
        self.holds[half] += Counter()  # Without those who have none.

    @rule(actor=actors, half=halves)
    def release(self, actor: Actor, half: str) -> None:
        lock = self.half_of(actor, half)
        if actor not in self.holds[half]:
            with pytest.raises(NotHeldError):
                self.run(lock.release())
            return
        self.run(lock.release())
        self.holds[half] -= Counter([actor])

    @rule(client=clients)
    def restart(self, client: int) -> None:
        self.run(self.restart_client(client))
        for half, holds in self.holds.items():
            self.holds[half] = Counter({actor: times for actor, times in holds.items() if actor.client != client})

    @invariant()
    def the_server_says_the_same(self) -> None:
        for actor in ACTORS if self.started else ():
            for half, holds in self.holds.items():
                assert self.run(self.half_of(actor, half).hold_count()) == holds[actor]
        if self.started:
            assert self.run(self.of(ACTORS[0]).write.locked()) == bool(self.holds["write"])
            assert len(self.run(self.of(ACTORS[0]).read.holders())) == len(self.holds["read"])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_random_histories_agree_with_the_model(server: Server) -> None:
    agrees(ReadWriteMachine, server.url, 40)
