"""SCRIPT FLUSH between any two commands: no user of a lock notices it."""

import asyncio
from itertools import count

from redis.asyncio import Redis

from aiolock import LockClient
from tests.chaos.operations import leftovers
from tests.support.calls import acquire_and_release
from tests.support.observe import all_parked, until
from tests.support.proxy import ALWAYS, Action, Connection, Proxy, Request, Rule

NAME = "forgotten"


class FlushBefore(Action):
    """Forget every script, then forward the request."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def on_request(self, link: Connection, rule: Rule, request: Request) -> None:
        await link.flush_requests()
        await self._redis.script_flush()
        rule.note(request)
        link.forward(request, None)


class Nth:
    """Matches the script call with this number, counted from one."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, request: Request) -> bool:
        self._left -= request.name in (b"EVAL", b"EVALSHA")
        return self._left == 0 and request.name in (b"EVAL", b"EVALSHA")


async def session(client: LockClient) -> None:
    """Every script, two tasks, and a hand-off from the one to the other."""
    lock = client.lock(NAME)
    tokens = []

    async def follow() -> None:
        async with lock as lease:
            tokens.append(lease.token)

    outer = await lock.acquire()
    tokens.append(outer.token)
    assert await lock.try_lock() is not None
    following = asyncio.create_task(follow())
    await all_parked(client, 1)
    await outer.renew()
    assert await lock.hold_count() == 2
    await lock.release()
    await outer.release()
    async with asyncio.timeout(5):
        await following
    await lock.acquire()
    assert await lock.force_release()
    assert await lock.holder() is None
    assert tokens == sorted(set(tokens))
    assert client.statistics().held == 0


async def test_flushed_before_any_command(redis: Redis, proxy: Proxy, through: Redis) -> None:
    for number in count(1):
        rule = proxy.install(Rule(Nth(number), FlushBefore(redis)))
        async with LockClient(through) as client:
            await session(client)
        if not rule.requests:
            break
        assert await leftovers(redis) == set()
    assert number > 10


async def test_flushed_before_every_command(redis: Redis, proxy: Proxy, through: Redis) -> None:
    async with LockClient(through) as client:
        await session(client)
        rule = proxy.install(Rule(lambda request: request.name == b"EVALSHA", FlushBefore(redis), ALWAYS))
        for _ in range(3):
            await session(client)
        assert len(rule.requests) > 15
    assert await leftovers(redis) == set()


async def test_a_waiter_is_woken_when_only_its_release_was_forgotten(redis: Redis, locks: LockClient) -> None:
    """The acquire that is sent along with a release runs before the release, and is refused."""
    lock = locks.lock(NAME)
    async with lock:
        # Both scripts are sent whole here, so they go by their digest from now on.
        pass
    lease = await lock.acquire()
    following = asyncio.create_task(acquire_and_release(lock))
    await all_parked(locks, 1)
    await until(lambda: confirmed(redis))
    await redis.script_flush()
    async with LockClient(redis) as other:
        theirs = await other.lock("another").acquire()
        await lease.release()
        async with asyncio.timeout(5):
            await following
        await theirs.release()


async def confirmed(redis: Redis) -> bool:
    return bool(await redis.pubsub_channels())
