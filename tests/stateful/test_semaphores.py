"""Random histories of semaphores, of both kinds, and of latches do what small models say."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from aiolock import AsyncCountDownLatch, AsyncCountingSemaphore, AsyncSemaphore, Lease, LeaseLostError
from aiolock._embedded_server import Server
from tests.stateful.machine import SHORT, TASKS, Machine, actors, agrees, clients, few
from tests.stateful.model import Actor

NAME = "places"
# Each client tells this number of permits.
KNOWN = (3, None)
changes = st.integers(-3, 3)


class CountingMachine(Machine):
    """The counting semaphore: *available*, or ``None`` while nobody has set the number."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.available: int | None = None

    def of(self, client: int) -> AsyncCountingSemaphore:
        return self.clients[client].counting_semaphore(NAME, KNOWN[client])

    def before(self, client: int) -> int:
        """The number of permits for this client."""
        return (KNOWN[client] or 0) if self.available is None else self.available

    @rule(client=clients, permits=few)
    def try_acquire(self, client: int, permits: int) -> None:
        granted = self.before(client) >= permits
        assert self.run(self.of(client).try_acquire(permits=permits)) == granted
        if self.available is None:
            self.available = KNOWN[client]
        if granted and self.available is not None:
            self.available -= permits

    @rule(client=clients, permits=few)
    def release(self, client: int, permits: int) -> None:
        self.run(self.of(client).release(permits))
        self.available = self.before(client) + permits

    @rule(client=clients, permits=few)
    def block(self, client: int, permits: int) -> None:
        if self.before(client) >= permits:
            self.run(self._block(client, permits, forgets=False))
            self.available = self.before(client)

    @rule(client=clients, permits=few)
    def block_whose_server_forgets(self, client: int, permits: int) -> None:
        if self.before(client) >= permits:
            self.run(self._block(client, permits, forgets=True))
            self.available = None

    @rule(client=clients, more=changes)
    def add(self, client: int, more: int) -> None:
        self.run(self.of(client).add_permits(more))
        self.available = self.before(client) + more

    @rule(client=clients, permits=few)
    def set(self, client: int, permits: int) -> None:
        assert self.run(self.of(client).try_set_permits(permits)) == (self.available is None)
        if self.available is None:
            self.available = permits

    @rule(client=clients)
    def drain(self, client: int) -> None:
        drained = max(0, self.before(client))
        assert self.run(self.of(client).drain()) == drained
        if drained:
            self.available = 0

    @rule()
    def forget(self) -> None:
        self.run(self.redis.flushall())
        self.available = None

    @rule(client=clients)
    def restart(self, client: int) -> None:
        self.run(self.restart_client(client))

    @invariant()
    def the_server_says_the_same(self) -> None:
        for client in (0, 1) if self.started else ():
            assert self.run(self.of(client).available()) == self.before(client)

    async def _block(self, client: int, permits: int, *, forgets: bool) -> None:
        async with self.of(client).hold(wait=0, permits=permits):
            assert await self.of(client).available() == self.before(client) - permits
            if forgets:
                await self.redis.flushall()


class PermitMachine(Machine):
    """The semaphore whose permits expire: the *total*, and the permits of each lease."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.total: int | None = None
        self.held: list[tuple[Lease, int, int]] = []
        self.lost: list[Lease] = []

    @property
    def acquired(self) -> int:
        return sum(permits for _, _, permits in self.held)

    def of(self, client: int) -> AsyncSemaphore:
        return self.of_actor(Actor(client, "a name"))

    def of_actor(self, actor: Actor) -> AsyncSemaphore:
        owner = None if actor.owner in TASKS else actor.owner
        return self.clients[actor.client].semaphore(NAME, KNOWN[actor.client], owner=owner)

    def all_for(self, client: int) -> int:
        return (KNOWN[client] or 0) if self.total is None else self.total

    def has_enough(self, client: int, permits: int) -> bool:
        """Whether that many are available; an acquire sets the number, if none is set."""
        if self.total is None:
            self.total = KNOWN[client]
        return self.all_for(client) - self.acquired >= permits

    @rule(actor=actors, permits=few)
    def try_acquire(self, actor: Actor, permits: int) -> None:
        lease = self.let(actor, lambda: self.of_actor(actor).try_acquire(permits=permits))
        assert (lease is not None) == self.has_enough(actor.client, permits)
        if lease is not None:
            self.held.append((lease, actor.client, permits))

    @rule(actor=actors, permits=few)
    def let_expire(self, actor: Actor, permits: int) -> None:
        """A lease is not renewed: when the server has ended it, its owner knows."""
        semaphore, before = self.of_actor(actor), self.acquired

        async def take() -> Lease | None:
            return await semaphore.try_acquire(permits=permits, lease=SHORT)

        async def has() -> bool:
            return await semaphore.acquired() > before

        if self.has_enough(actor.client, permits):
            self.expires(actor, take, has)
        else:
            assert self.let(actor, take) is None

    @rule(which=st.integers(0, 9))
    def release(self, which: int) -> None:
        if self.held:
            lease, _, _ = self.held.pop(which % len(self.held))
            self.run(lease.release())

    @rule()
    def release_what_was_lost(self) -> None:
        for lease in self.lost:
            with pytest.raises(LeaseLostError):
                self.run(lease.release())
        self.lost.clear()

    @rule(client=clients, permits=few)
    def set(self, client: int, permits: int) -> None:
        self.run(self.of(client).set_permits(permits))
        self.total = permits

    @rule(client=clients, more=changes)
    def add(self, client: int, more: int) -> None:
        self.run(self.of(client).add_permits(more))
        self.total = self.all_for(client) + more

    @rule(client=clients)
    def force(self, client: int) -> None:
        assert self.run(self.of(client).force_release()) == bool(self.held)
        self._lose(self.held)

    @rule()
    def forget(self) -> None:
        self.run(self.redis.flushall())
        self.total = None
        self._lose(self.held)

    @rule(client=clients)
    def restart(self, client: int) -> None:
        self.run(self.restart_client(client))
        self.held = [each for each in self.held if each[1] != client]
        # A closed client says only that it is closed.
        self.lost.clear()

    @invariant()
    def the_server_says_the_same(self) -> None:
        for client in (0, 1) if self.started else ():
            available, acquired = self.run(self.of(client).available()), self.run(self.of(client).acquired())
            assert (available, acquired) == (self.all_for(client) - self.acquired, self.acquired)

    def _lose(self, held: list[tuple[Lease, int, int]]) -> None:
        self.lost += [lease for lease, _, _ in held]
        self.held = []


class LatchMachine(Machine):
    """The latch: the count that is still to be counted down."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.count = 0

    def of(self, client: int) -> AsyncCountDownLatch:
        return self.clients[client].count_down_latch(NAME)

    @rule(client=clients, count=few)
    def try_set_count(self, client: int, count: int) -> None:
        assert self.run(self.of(client).try_set_count(count)) == (self.count == 0)
        self.count = self.count or count

    @rule(client=clients)
    def count_down(self, client: int) -> None:
        self.run(self.of(client).count_down())
        self.count = max(0, self.count - 1)

    @rule(client=clients)
    def delete(self, client: int) -> None:
        assert self.run(self.of(client).delete()) == (self.count > 0)
        self.count = 0

    @rule()
    def forget(self) -> None:
        self.run(self.redis.flushall())
        self.count = 0

    @invariant()
    def the_server_says_the_same(self) -> None:
        for client in (0, 1) if self.started else ():
            assert self.run(self.of(client).count()) == self.count
            assert self.run(self.of(client).wait(0)) == (self.count == 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("machine", [CountingMachine, PermitMachine, LatchMachine], ids=lambda each: each.__name__)
def test_random_histories_agree_with_the_model(machine: type[Machine], server: Server) -> None:
    agrees(machine, server.url, 25)
