"""Random histories of readers and writers, some of whom lose what they have, do what a small model says."""

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from aiolock import AsyncReadLock, AsyncReadWriteLock, AsyncWriteLock, LeaseLostError, NotHeldError
from aiolock._embedded_server import Server
from tests.stateful.machine import ACTORS, CLIENTS, SHORT, TASKS, Machine, actors, agrees, clients
from tests.stateful.model import Actor

halves = st.sampled_from(("read", "write"))


class Holds:
    """The hold counts of one half: *live* owners have it, *unaware* ones lost it, and *told* ones know of the loss."""

    def __init__(self) -> None:
        self.live: Counter[Actor] = Counter()
        self.unaware: Counter[Actor] = Counter()
        self.told: Counter[Actor] = Counter()

    def believed(self, actor: Actor) -> bool:
        return bool(self.live[actor] or self.unaware[actor])

    def lose(self) -> None:
        """The server forgets all holds of this half."""
        self.unaware += self.live
        self.live.clear()

    def tell(self, actor: Actor) -> None:
        self.told[actor] += self.unaware.pop(actor, 0) + self.live.pop(actor, 0)

    def forget(self, client: int) -> None:
        for holds in (self.live, self.unaware, self.told):
            for actor in ACTORS:
                if actor.client == client:
                    holds.pop(actor, None)


class ReadWriteMachine(Machine):
    """The readers with their counts, and the writer."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.holds = {"read": Holds(), "write": Holds()}

    def of(self, actor: Actor) -> AsyncReadWriteLock:
        owner = None if actor.owner in TASKS else actor.owner
        return self.clients[actor.client].read_write_lock("prices", owner=owner)

    def half_of(self, actor: Actor, half: str) -> AsyncReadLock | AsyncWriteLock:
        return self.of(actor).read if half == "read" else self.of(actor).write

    def may(self, actor: Actor, half: str) -> bool:
        """Whether *actor* is granted the half: nobody else writes and, if it is to write, nobody else reads."""
        excludes = ("write",) if half == "read" else ("read", "write")
        return all(self.holds[each].live[other] == 0 for each in excludes for other in ACTORS if other != actor)

    @rule(actor=actors, half=halves)
    def try_lock(self, actor: Actor, half: str) -> None:
        lock, holds = self.half_of(actor, half), self.holds[half]
        if half == "write" and self.holds["read"].believed(actor) and not holds.believed(actor):
            with pytest.raises(RuntimeError):
                self.let(actor, lock.try_lock)
        elif holds.unaware[actor]:
            with pytest.raises(LeaseLostError):
                self.let(actor, lock.try_lock)
            holds.tell(actor)
        else:
            granted = self.let(actor, lock.try_lock) is not None
            assert granted == self.may(actor, half)
            if granted:
                self._grant(actor, half)

    @rule(actor=actors, half=halves)
    def release(self, actor: Actor, half: str) -> None:
        lock, holds = self.half_of(actor, half), self.holds[half]
        if holds.live[actor]:
            self.let(actor, lock.release)
            holds.live[actor] -= 1
            return
        lost = holds.unaware[actor] + holds.told[actor]
        with pytest.raises(LeaseLostError if lost else NotHeldError):
            self.let(actor, lock.release)
        holds.tell(actor)
        holds.told[actor] = max(0, lost - 1)

    @rule(actor=actors, half=halves)
    def let_expire(self, actor: Actor, half: str) -> None:
        """A lease is not renewed: when the server has ended it, its owner knows."""
        lock = self.half_of(actor, half)
        if not self.may(actor, half) or any(holds.believed(actor) for holds in self.holds.values()):
            return
        if self.expires(actor, lambda: lock.try_lock(lease=SHORT), lock.held):
            self._grant(actor, half)
            self.holds[half].tell(actor)

    @rule(client=clients, half=halves)
    def force_release(self, client: int, half: str) -> None:
        holds = self.holds[half]
        freed = self.run(self.half_of(Actor(client, "a name"), half).force_release())
        assert freed == bool(+holds.live)
        holds.lose()
        for actor in ACTORS:
            if freed and actor.client == client:
                holds.tell(actor)

    @rule()
    def forget(self) -> None:
        self.run(self.redis.flushall())
        for holds in self.holds.values():
            holds.lose()

    @rule(client=clients)
    def restart(self, client: int) -> None:
        self.run(self.restart_client(client))
        for holds in self.holds.values():
            holds.forget(client)

    @invariant()
    def the_server_says_the_same(self) -> None:
        if not self.started:
            return
        for half, holds in self.holds.items():
            for actor in holds.live.keys() | holds.unaware.keys() | holds.told.keys():
                assert self.let(actor, self.half_of(actor, half).hold_count) == holds.live[actor]
            assert self.run(self.half_of(Actor(0, "a name"), half).locked()) == bool(+holds.live)
        for client in CLIENTS:
            believed = [actor for actor in ACTORS for holds in self.holds.values() if holds.believed(actor)]
            assert self.clients[client].statistics().held == sum(actor.client == client for actor in believed)

    def _grant(self, actor: Actor, half: str) -> None:
        holds = self.holds[half]
        holds.live[actor] += 1
        holds.told.pop(actor, None)
        # The client knows what its other owners cannot have: anything beside a writer, the write lock beside a reader.
        for excluded in ("read", "write") if half == "write" else ("write",):
            for other in ACTORS:
                if other != actor and other.client == actor.client:
                    self.holds[excluded].tell(other)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_random_histories_agree_with_the_model(server: Server) -> None:
    agrees(ReadWriteMachine, server.url, 15)
