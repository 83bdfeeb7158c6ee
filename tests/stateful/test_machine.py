"""Random histories of several clients, owners and names do what a small model says."""

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from aiolock import AsyncRLock, Lease, LeaseLostError, NotHeldError
from aiolock._embedded_server import Server
from tests.stateful.machine import TASKS, Machine, actors, agrees, clients, few
from tests.stateful.model import Actor, Model
from tests.support.observe import until

NAMES = ("red", "green")
names = st.sampled_from(NAMES)


class LockMachine(Machine):
    """Owners take locks of two names, again and again, and lose some of them."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.model = Model()
        self.tokens = dict.fromkeys(NAMES, 0)

    def lock(self, actor: Actor, name: str) -> AsyncRLock:
        return self.clients[actor.client].lock(name, owner=None if actor.owner in TASKS else actor.owner)

    @rule(actor=actors, name=names, times=few)
    def try_lock(self, actor: Actor, name: str, times: int) -> None:
        for _ in range(times):
            assert self.run(self._try_lock(actor, name)) == self.model.try_lock(actor, name)

    @rule(actor=actors, name=names)
    def release(self, actor: Actor, name: str) -> None:
        assert self.run(self._release(actor, name)) == self.model.release(actor, name)
        self.the_server_and_the_leases_say_the_same()

    @rule(name=names, times=few)
    def nest(self, name: str, times: int) -> None:
        if (holder := self.model.server.get(name)) is not None:
            self.try_lock(holder, name, times)

    @rule(name=names, times=few)
    def unnest(self, name: str, times: int) -> None:
        for _ in range(times):
            if (holder := self.model.server.get(name)) is not None:
                self.release(holder, name)

    @rule(name=names)
    def release_what_was_lost(self, name: str) -> None:
        for actor, held in list(self.model.beliefs):
            if held == name and not self.model.has(actor, name):
                self.release(actor, name)

    @rule(name=names, mishap=st.sampled_from(("deleted", "expired", "flushed", "forced", "restarted")), client=clients)
    def suffer(self, name: str, mishap: str, client: int) -> None:
        if mishap == "forced":
            freed = self.run(self.clients[client].lock(name).force_release())
            assert freed == self.model.force_release(client, name)
        elif mishap == "restarted":
            self.run(self.restart_client(client))
            self.model.restart(client)
        else:
            self.run(self._remove(name, mishap))
            for gone in NAMES if mishap == "flushed" else [name]:
                self.model.expire(gone)

    @rule(actor=actors, name=names)
    def wait_for_the_holder(self, actor: Actor, name: str) -> None:
        """One more owner waits while the holder gives everything back."""
        holder, belief = self.model.server.get(name), self.model.beliefs.get((actor, name))
        if holder is None or holder == actor or (belief and not belief.told_lost):
            return
        holds = self.model.count(holder, name)
        assert self.run(self._hand_over(holder, actor, name, holds)) == ["released"] * holds + ["granted"]
        for _ in range(holds):
            self.model.release(holder, name)
        assert self.model.try_lock(actor, name) == "granted"

    @invariant()
    def the_server_and_the_leases_say_the_same(self) -> None:
        if self.started:
            self.run(self._compare())

    async def _try_lock(self, actor: Actor, name: str) -> str:
        try:
            lease = await self.do(actor, self.lock(actor, name).try_lock)
        except LeaseLostError:
            return "lost"
        return "refused" if lease is None else self._granted(name, lease)

    def _granted(self, name: str, lease: Lease) -> str:
        lease.check()
        assert lease.token >= self.tokens[name]
        fresh = lease.token > self.tokens[name]
        self.tokens[name] = lease.token
        assert (lease.holds == 1) == fresh
        return "granted" if fresh else "nested"

    async def _release(self, actor: Actor, name: str) -> str:
        try:
            await self.do(actor, self.lock(actor, name).release)
        except NotHeldError as error:
            told = error.holder is not None
            return "not held" if told == (name in self.model.server) else "told of the wrong holder"
        except LeaseLostError:
            return "lost"
        return "released"

    async def _remove(self, name: str, how: str) -> None:
        if how == "flushed":
            await self.redis.flushall()
        elif how == "deleted":
            await self.redis.delete(name)
        else:
            await self.redis.pexpire(name, 1)

        async def gone() -> bool:
            return await self.redis.exists(name) == 0

        await until(gone)

    async def _hand_over(self, holder: Actor, waiter: Actor, name: str, holds: int) -> list[str]:
        lock = self.lock(waiter, name)
        waiting = asyncio.create_task(self.do(waiter, lock.acquire))
        await until(lambda: lock.statistics().parked == 1)
        ends = [await self._release(holder, name) for _ in range(holds)]
        return [*ends, self._granted(name, await waiting)]

    async def _compare(self) -> None:
        for name in NAMES:
            holder = self.model.server.get(name)
            for actor in [holder] if holder else []:
                lock = self.lock(actor, name)
                assert await self.do(actor, lock.hold_count) == self.model.count(actor, name)
            assert await self.redis.exists(name) == (holder is not None)
            assert await self.clients[0].lock(name).locked() == (holder is not None)
        for number, client in enumerate(self.clients):
            beliefs = [(key, belief) for key, belief in self.model.beliefs.items() if key[0].client == number]
            assert client.statistics().held == sum(not belief.told_lost for _, belief in beliefs)
            assert client.statistics().parked == 0


@pytest.mark.timeout(600)
def test_random_histories_agree_with_the_model(server: Server) -> None:
    agrees(LockMachine, server.url, 120)
