"""Random histories of several locks that owners take as one do what a small model says."""

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from aiolock import AsyncMultiLock, AsyncRLock, LeaseLostError, MultiLease, NotHeldError
from aiolock._embedded_server import Server
from tests.stateful.machine import CLIENTS, TASKS, Machine, actors, agrees, clients
from tests.stateful.model import Actor, Model
from tests.support.observe import freed, until

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
sets = st.lists(names, min_size=1, max_size=3, unique=True)


class MultiMachine(Machine):
    """The locks are those of the model of plain locks; several at once are all granted, or none."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.model = Model()
        self.tokens = dict.fromkeys(NAMES, 0)

    def of(self, actor: Actor, chosen: list[str]) -> AsyncMultiLock:
        return self.clients[actor.client].multi(*(self.lock(actor, name) for name in chosen))

    def lock(self, actor: Actor, name: str) -> AsyncRLock:
        owner = None if actor.owner in TASKS else actor.owner
        return self.clients[actor.client].lock(name, owner=owner)

    def believes(self, actor: Actor, name: str) -> bool:
        """Whether *actor* believes to hold the lock."""
        belief = self.model.beliefs.get((actor, name))
        return belief is not None and not belief.told_lost

    def is_unaware(self, actor: Actor, name: str) -> bool:
        """Whether *actor* has lost the lock, and does not know it."""
        return self.believes(actor, name) and not self.model.has(actor, name)

    # All or none.

    @rule(actor=actors, chosen=sets, waits=st.booleans())
    def try_lock(self, actor: Actor, chosen: list[str], waits: bool) -> None:
        """Try at once or, if only a hold of another owner is in the way, after a short wait, which is in vain."""
        unaware = any(self.is_unaware(each, name) for each, name in self.model.beliefs)
        expected = self._tried(actor, chosen)
        wait = 0.001 if waits and expected == "refused" and not unaware else 0
        try:
            lease = self.let(actor, lambda: self.of(actor, chosen).try_lock(wait))
        except LeaseLostError:
            assert expected == "lost"
        else:
            assert expected == ("refused" if lease is None else "granted")
            if lease is not None:
                self._grant(actor, lease)

    @rule(actor=actors, chosen=sets)
    def acquire(self, actor: Actor, chosen: list[str]) -> None:
        """Wait for all, while the holders of some of them give these back one by one, the last name first."""
        if not any(self.is_unaware(actor, name) for name in chosen):
            others = [name for name in sorted(chosen, reverse=True) if self.model.server.get(name, actor) != actor]
            self._grant(actor, self.run(self._hand_over(actor, chosen, others)))

    @rule(actor=actors, chosen=sets)
    def release(self, actor: Actor, chosen: list[str]) -> None:
        lock = self.of(actor, chosen)
        if not all((actor, name) in self.model.beliefs for name in chosen):
            with pytest.raises(NotHeldError):
                self.let(actor, lock.release)
            return
        if "lost" in [self.model.release(actor, name) for name in chosen]:
            with pytest.raises(LeaseLostError):
                self.let(actor, lock.release)
        else:
            self.let(actor, lock.release)

    @rule(actor=actors, name=names)
    def release_one(self, actor: Actor, name: str) -> None:
        """Plain locks and locks of several are the same locks."""
        if (actor, name) in self.model.beliefs:
            assert self.run(self._release(actor, name)) == self.model.release(actor, name)

    # Losses.

    @rule(client=clients, name=names)
    def force_release(self, client: int, name: str) -> None:
        freed = self.run(self.clients[client].lock(name).force_release())
        assert freed == self.model.force_release(client, name)

    @rule(name=names)
    def expire(self, name: str) -> None:
        self.run(self._expire(name))
        self.model.expire(name)

    @rule()
    def forget(self) -> None:
        self.run(self.redis.flushall())
        for name in NAMES:
            self.model.expire(name)

    @rule(client=clients)
    def restart(self, client: int) -> None:
        self.run(self.restart_client(client))
        self.model.restart(client)

    @invariant()
    def the_server_and_the_clients_say_the_same(self) -> None:
        if not self.started:
            return
        for name in NAMES:
            holder = self.model.server.get(name)
            assert self.run(self.redis.exists(name)) == (holder is not None)
            if holder is not None:
                assert self.let(holder, self.lock(holder, name).hold_count) == self.model.count(holder, name)
        for number in CLIENTS:
            believed = [actor for actor, name in self.model.beliefs if self.believes(actor, name)]
            now = self.clients[number].statistics()
            assert (now.held, now.parked) == (sum(actor.client == number for actor in believed), 0)

    def _tried(self, actor: Actor, chosen: list[str]) -> str:
        """The result of a try; if several locks were lost, the owner is told of the first."""
        if unaware := [name for name in sorted(chosen) if self.is_unaware(actor, name)]:
            self.model.beliefs[actor, unaware[0]].told_lost = True
            return "lost"
        if all(self.model.server.get(name, actor) == actor for name in chosen):
            return "granted"
        for name in chosen:
            # The lock is granted, and given back, so the client hears of its loss.
            if name not in self.model.server:
                self.model.try_lock(actor, name)
                self.model.release(actor, name)
        return "refused"

    def _grant(self, actor: Actor, lease: MultiLease) -> None:
        lease.check()
        for name, token in lease.tokens.items():
            outcome = self.model.try_lock(actor, name)
            assert outcome == ("granted" if token > self.tokens[name] else "nested")
            assert token >= self.tokens[name]
            self.tokens[name] = token

    async def _hand_over(self, actor: Actor, chosen: list[str], others: list[str]) -> MultiLease:
        waiting = asyncio.create_task(self._let(actor, self.of(actor, chosen).acquire))
        for name in others:
            await until(lambda: waiting.done() or self.clients[actor.client].statistics().parked == 1)
            holder = self.model.server[name]
            for _ in range(self.model.count(holder, name)):
                assert await self._release(holder, name) == self.model.release(holder, name) == "released"
        return await waiting

    async def _release(self, actor: Actor, name: str) -> str:
        try:
            await self._let(actor, self.lock(actor, name).release)
        except LeaseLostError:
            return "lost"
        return "released"

    async def _expire(self, name: str) -> None:
        await self.redis.pexpire(name, 1)
        await freed(self.redis, name)


@pytest.mark.timeout(300)
def test_random_histories_agree_with_the_model(server: Server) -> None:
    agrees(MultiMachine, server.url, 25)
