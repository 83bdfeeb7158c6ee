"""A round of cancelling: a client is cancelled while it uses a lock that is in some state, and must leave nothing."""

import asyncio
import functools
import itertools
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from redis.asyncio import Redis, RedisCluster

from aiolock import Lease, LockClient, LockConfig, LockEvent, Orphaned
from tests.conftest import chosen_servers
from tests.support.cancellation import MODES, Mode, Outcome, cancel_at, every_suspension
from tests.support.observe import connected, pubsub_channels, until
from tests.support.waiters import waits_quietly

# The client under test has done nothing before ("cold"), or everything ("warm"); then the server may have forgotten the
# scripts ("flushed"), or another server of the cluster may have got the lock ("moved").
Temperature = Literal["cold", "warm", "flushed", "moved"]
TEMPERATURES: tuple[Temperature, ...] = ("cold", "warm", "flushed")

# The lock is free; or we have it already ("nested", "waited"); or another client has it to the end of the round
# ("held"), or until we wait ("message"); or another owner of our client hands it over while we wait ("handed").
State = Literal["free", "nested", "held", "message", "handed", "waited"]

AT_ONCE = 10.0
ME = "me"

# The client decides on all of this, so that a test on one kind of server is enough.
one_server = pytest.mark.parametrize("server", chosen_servers()[:1], indirect=True, scope="session")
each_temperature = pytest.mark.parametrize("temperature", TEMPERATURES)

_numbers = itertools.count(1)


@dataclass
class Arena:
    """The server of the rounds; `redis` is the client of the observer."""

    redis: Redis | RedisCluster
    user: Callable[[], Redis | RedisCluster]
    record: Callable[[str, object], None]
    servers: list[Redis]

    async def forget_scripts(self) -> None:
        for server in self.servers:
            await server.script_flush()

    async def connected(self) -> int:
        """How many clients are connected."""
        return sum([await connected(server) for server in self.servers])

    async def channels(self) -> set[str]:
        """The channels that have a subscriber."""
        return set().union(*[await pubsub_channels(server) for server in self.servers])

    def move(self, name: str) -> None:
        """Give the lock to another server."""
        raise NotImplementedError


class Round:
    """One coroutine, to be cancelled at one point, and all that surrounds it."""

    @classmethod
    async def begin(cls, arena: Arena, temperature: Temperature, state: State, owner: str | None) -> "Round":
        """Prepare a round; `owner` is the named owner that acts, or the coroutine's task."""
        round_ = cls(arena, owner)
        round_.connected = await arena.connected()
        if temperature == "cold":
            await arena.forget_scripts()
        else:
            await round_._warm_up()
        await round_._prepare(state)
        await until(round_._is_answered)
        if temperature == "flushed":
            await arena.forget_scripts()
        elif temperature == "moved":
            arena.move(round_.name)
        return round_

    def __init__(self, arena: Arena, owner: str | None) -> None:
        self.events: list[LockEvent] = []
        self.arena = arena
        self.user = arena.user()
        self.mine = LockClient(self.user, config=LockConfig(on_event=self.events.append))
        self.other = LockClient(arena.redis)
        self.third = LockClient(arena.redis)
        self.owner = owner
        # In a cluster all that is named after it is where it is.
        self.name = f"{{round {next(_numbers)}}}:"
        self.lock = self.of(self.mine, owner)
        self.lease: Lease | None = None
        self.over = asyncio.Event()
        self.connected = 0
        self._tasks = asyncio.all_tasks()
        self._beside: list[asyncio.Task[None]] = []

    def of(self, client: LockClient, owner: str | None = None) -> Any:
        """The lock or other primitive that is acquired in the round, as *client* has it."""
        return client.lock(self.name, owner=owner)

    async def attempt(self, **how: float | None) -> object:
        """Try to acquire it."""
        return await self.lock.try_lock(**how)

    async def end(self, outcome: Outcome[Any], fails: type[Exception] | None = None) -> None:
        """All other waiters get the lock at once, and nothing is left behind."""
        try:
            self.over.set()
            _check_outcome(outcome, fails)
            if isinstance(outcome.result, Lease) and self.owner is not None:
                await outcome.result.release()
            await self._release_nested()
            async with asyncio.timeout(AT_ONCE):
                await self._others_end()
            await self._nothing_is_held()
            await self._another_gets_it()
            await until(lambda: self.mine.statistics().subscriptions == 0)
            self._no_task_but_of_connections()
            self._no_orphan(outcome)
        finally:
            await self._leave()
        await self._no_trace()

    def follow(self, client: LockClient) -> None:
        """Another owner waits for the lock, gets it, and releases it."""

        async def holds() -> None:
            async with self.of(client).hold(wait=AT_ONCE):
                pass

        self._beside.append(asyncio.create_task(holds(), name="follower"))

    async def _warm_up(self) -> None:
        """Open every connection, and let the server know every script."""
        lock = self.mine.lock(f"{self.name} before", owner=ME)
        lease = await lock.acquire()
        await lease.renew()
        assert await self.mine.lock(lock.name, owner="another").try_lock(wait=0.01) is None
        await lock.holder()
        await lock.force_release()
        with pytest.raises(Exception, match="lost"):
            await lock.release()
        again = await lock.acquire()
        await again.release()
        self.events.clear()
        await until(lambda: self.mine.statistics().subscriptions == 0)

    async def _prepare(self, state: State) -> None:
        if state == "nested":
            self.lease = await self.lock.acquire()
        elif state == "waited":
            self.lease = await self.lock.acquire()
            await self._line_up()
        elif state != "free":
            client = self.mine if state == "handed" else self.other
            holder = await self.of(client, "holder").acquire()
            self._beside.append(asyncio.create_task(self._release(holder, state), name="director"))

    async def _release(self, holder: Lease, state: State) -> None:
        """Line others up behind the coroutine while it waits, and release; in "held", release once it has ended."""
        if state == "held":
            await self.over.wait()
        else:
            await until(self._waits_or_has_ended)
            await self._line_up(remote=state == "handed")
        await holder.release()

    async def _line_up(self, *, remote: bool = True) -> None:
        """A task of our client waits behind us, and one of another client."""
        first = self._parked()
        self.follow(self.mine)
        await until(lambda: self._parked() == 1 + (first if not self.over.is_set() else 0))
        if remote:
            self.follow(self.third)
            await until(lambda: self.of(self.third).statistics().parked == 1)

    def _waits_or_has_ended(self) -> bool:
        """Whether the coroutine has ended, or is parked: it was refused, for the last time after its subscription."""
        return self.over.is_set() or (self._parked() == 1 and waits_quietly(self.mine, self.lock))

    def _parked(self) -> int:
        return int(self.of(self.mine).statistics().parked)

    def _is_answered(self) -> bool:
        return self.mine.statistics().pending == 0

    async def _others_end(self) -> None:
        while waiting := [task for task in self._beside if not task.done()]:
            await asyncio.wait(waiting)
        for task in self._beside:
            task.result()

    async def _release_nested(self) -> None:
        """We still have our lock, exactly once, unless the coroutine gave it back."""
        if self.lease is not None and not self.lease.given_back:
            await until(self._is_held_once)
            self.lease.check()
            await self.lease.release()

    async def _is_held_once(self) -> bool:
        return bool(await self.lock.hold_count() == 1)

    async def _nothing_is_held(self) -> None:
        await until(self._is_free)
        await until(self._is_idle)

    async def _is_free(self) -> bool:
        """Whether nobody holds the lock, nor another lock that is named after it."""
        keys: list[bytes] = await self.arena.redis.keys(f"*{self.name}*")  # type: ignore[assignment]
        return all(key.startswith(b"aiolock_token:") for key in keys)

    def _is_idle(self) -> bool:
        now = self.mine.statistics()
        return (now.held, now.parked, now.pending) == (0, 0, 0)

    async def _another_gets_it(self) -> None:
        async with self.of(self.other).hold(wait=AT_ONCE):
            pass

    def _no_task_but_of_connections(self) -> None:
        """Only tasks of connections are left, two for each; the client of a cluster may ask for the slots."""
        names = r"Connection\._|Cluster\._ask|Discovery\._ask"
        lasting = {task for task in asyncio.all_tasks() if re.search(names, repr(task.get_coro()))}
        assert asyncio.all_tasks() - lasting <= self._tasks

    def _no_orphan(self, outcome: Outcome[Any]) -> None:
        """The client gives up a grant to a cancelled acquire by itself, not because the task of it has ended."""
        orphans = [event for event in self.events if isinstance(event, Orphaned)]
        assert len(orphans) == (isinstance(outcome.result, Lease) and self.owner is None)

    async def _leave(self) -> None:
        for task in self._beside:
            task.cancel()
        if self._beside:
            await asyncio.wait(self._beside)
        for client in (self.mine, self.other, self.third):
            await client.aclose()
        await self.user.aclose()

    async def _no_trace(self) -> None:
        assert asyncio.all_tasks() <= self._tasks
        assert await self._is_free()
        await until(self._nobody_listens)
        await until(self._as_many_connections)
        assert not _made_by(self.user)

    async def _nobody_listens(self) -> bool:
        return not await self.arena.channels()

    async def _as_many_connections(self) -> bool:
        return await self.arena.connected() <= self.connected


def _made_by(user: Redis | RedisCluster) -> list[Any]:
    """The connections that the user's client has, or had."""
    if isinstance(user, RedisCluster):
        return [connection for node in user.get_nodes() for connection in node._connections]
    pool: Any = user.connection_pool
    return [*pool._in_use_connections, *pool._available_connections]


def _check_outcome(outcome: Outcome[Any], fails: type[Exception] | None) -> None:
    """The coroutine ended as if alone, or with the cancellation that we sent; it swallowed no other cancellation."""
    assert outcome.swallowed == 0
    if isinstance(outcome.error, asyncio.CancelledError):
        assert outcome.cancelled
    else:
        assert type(outcome.error) is (type(None) if fails is None else fails)


async def visit(
    arena: Arena,
    mode: Mode,
    temperature: Temperature,
    state: State,
    run: Callable[[Round], Coroutine[Any, Any, Any]],
    *,
    owner: str | None = ME,
    fails: type[Exception] | None = None,
    kind: type[Round] = Round,
) -> None:
    """Cancel `run` wherever it suspends; `fails` is the error with which it ends by itself."""
    begin = functools.partial(kind.begin, arena, temperature, state, owner)

    async def end(round_: Round, outcome: Outcome[Any]) -> None:
        # A scope does not cancel a task that waits for nothing any more; the other modes do.
        if mode != "scope" and outcome.cancelled:
            assert isinstance(outcome.error, asyncio.CancelledError)
        await round_.end(outcome, fails)

    undisturbed = await begin()
    outcome = await cancel_at(0, mode, functools.partial(run, undisturbed))
    await end(undisturbed, outcome)
    visited = await every_suspension(mode, begin, run, end)
    # In three cases the number of suspensions varies. In "flushed" with "handed" the server has forgotten the script of
    # the release before the attempt that it hands over, so that the attempt is refused: how often the waiter parks
    # before it hears of the release depends on the two connections. In "held" the clock ends the wait, and the machine
    # decides how far the coroutine comes before that. With several locks, some of the answers may come together.
    if state != "held" and (temperature, state) != ("flushed", "handed") and "several" not in run.__name__:
        assert visited == outcome.suspended
    assert visited >= 1
    arena.record("suspensions", visited)


Run = Callable[[Round], Coroutine[Any, Any, Any]]
each_mode = pytest.mark.parametrize("mode", MODES)


def named(scenario: tuple[State, Run, str | None]) -> str:
    state, run, owner = scenario
    return f"{run.__name__}-{state}-{'named' if owner else 'task'}"
