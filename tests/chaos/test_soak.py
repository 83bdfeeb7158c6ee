"""A soak: two clients, a network that fails at random, and a checker that stands outside of Redis."""

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LockClient, LockConfig
from tests.chaos.operations import leftovers
from tests.support.observe import answered
from tests.support.proxy import ALWAYS, Action, Connection, Proxy, Request, Rule, delay, drop_reply, hold, reset

DURATION = 4.0
NAMES = ("a", "b")
TASKS = 4  # For each client.
# Far above what a call can meet in a row (see Weather), so that none may fail.
CONFIG = LockConfig(lease=10, renew_interval=0.3, command_timeout=4.5, release_timeout=4.5)


class Weather(Action):
    """Does harm to some script calls, at random: to any one call twice at most, and seldom by silence."""

    def __init__(self, pick: random.Random, late: set[asyncio.Task[None]]) -> None:
        self.done: Counter[str] = Counter()
        self._pick = pick
        self._late = late
        self._suffered: Counter[tuple[bytes, ...]] = Counter()
        self._silent = 0.0

    async def on_request(self, link: Connection, rule: Rule, request: Request) -> None:
        action = self._choose(request)
        if action is None:
            link.forward(request, None)
            return
        self.done[type(action).__name__] += 1
        await action.on_request(link, rule, request)
        if request.name.startswith(b"EVAL") and isinstance(action, type(hold())):
            self._late.add(asyncio.create_task(self._deliver(rule)))

    async def on_reply(self, link: Connection, rule: Rule, request: Request, reply: bytes) -> None:
        await drop_reply(reset=not self._may_be_silent()).on_reply(link, rule, request, reply)

    def _choose(self, request: Request) -> Action | None:
        call = request.args[2:]  # Without EVAL or EVALSHA.
        if not request.name.startswith(b"EVAL") or self._suffered[call] == 2 or self._pick.random() > 0.15:
            return None
        self._suffered[call] += 1
        late = hold(reset=not self._may_be_silent())
        return self._pick.choice([drop_reply(), late, reset(), delay(self._pick.uniform(0.001, 0.05))])

    def _may_be_silent(self) -> bool:
        """Silence costs a third of a command's time, so there must be some time between two of them."""
        if self._pick.random() > 0.1 or monotonic() < self._silent + 4:
            return False
        self._silent = monotonic()
        return True

    async def _deliver(self, rule: Rule) -> None:
        await asyncio.sleep(self._pick.choice([0, 0.01, 0.1, 1]))
        with suppress(OSError):
            await rule.deliver()


class Resource:
    """What a lock protects; not in Redis."""

    def __init__(self) -> None:
        self.user: object = None
        self.token = 0
        self.sections = 0

    async def use(self, token: int, seconds: float) -> None:
        me = object()
        assert self.user is None, f"overlap: token {token} with {self.token}"
        assert token > self.token, f"token {token} after {self.token}"
        self.user, self.token = me, token
        try:
            await asyncio.sleep(seconds)
        finally:
            assert self.user is me
            self.user = None
        self.sections += 1


class Worker:
    """Enters sections, in each way there is, and gives some waits up."""

    def __init__(self, client: LockClient, resources: dict[str, Resource], pick: random.Random) -> None:
        self._client = client
        self._resources = resources
        self._pick = pick

    async def run(self, ends: float) -> None:
        while monotonic() < ends:
            name = self._pick.choice(NAMES)
            enter = self._pick.choice([self._scoped, self._tried, self._nested, self._given_up])
            await enter(self._client.lock(name), self._resources[name])

    async def _scoped(self, lock: AsyncRLock, resource: Resource) -> None:
        async with lock as lease:
            await resource.use(lease.token, self._moment())

    async def _tried(self, lock: AsyncRLock, resource: Resource) -> None:
        lease = await lock.try_lock(self._pick.choice([0, 0, 0.02]))
        if lease is not None:
            await resource.use(lease.token, self._moment())
            await lock.release()

    async def _nested(self, lock: AsyncRLock, resource: Resource) -> None:
        async with lock as outer:
            inner = await lock.acquire(lease=5)
            assert inner.token == outer.token
            assert inner.holds == 2
            await resource.use(inner.token, self._moment())
            await inner.renew()
            await inner.release()
            assert await lock.hold_count() == 1

    async def _given_up(self, lock: AsyncRLock, resource: Resource) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._moment()), lock as lease:
                await resource.use(lease.token, 2 * self._moment())

    def _moment(self) -> float:
        return self._pick.choice([0, 0, 0.001, 0.01])


@pytest.mark.slow
async def test_a_stormy_network_breaks_no_promise(redis: Redis, proxy: Proxy) -> None:
    seed = int(os.environ.get("AIOLOCK_SEED", random.randrange(2**32)))
    try:
        await soak(redis, proxy, seed)
    except BaseException as error:
        error.add_note(f"again with AIOLOCK_SEED={seed}")
        raise


async def soak(redis: Redis, proxy: Proxy, seed: int) -> None:
    pick = random.Random(seed)
    resources = {name: Resource() for name in NAMES}
    late: set[asyncio.Task[None]] = set()
    weather = Weather(random.Random(pick.random()), late)
    proxy.install(Rule(lambda request: True, weather, ALWAYS))
    first, second = Redis.from_url(proxy.url), Redis.from_url(proxy.url, protocol=3)
    async with LockClient(first, config=CONFIG) as one, LockClient(second, config=CONFIG) as two:
        ends = monotonic() + DURATION
        async with asyncio.timeout(DURATION + 30), asyncio.TaskGroup() as group:
            for client in (one, two) * TASKS:
                group.create_task(Worker(client, resources, random.Random(pick.random())).run(ends))
        for client in (one, two):
            await answered(client, within=10)
            statistics = client.statistics()
            assert statistics.held == statistics.parked == statistics.losses == 0
        proxy.clear_rules()
        await asyncio.gather(*late)
        assert not await leftovers(redis) & {name.encode() for name in NAMES}
    await first.aclose()
    await second.aclose()
    assert all(resource.sections > 10 for resource in resources.values())
    assert len(weather.done) == 4, f"too fine a weather: {weather.done}"
