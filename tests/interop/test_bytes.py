"""What Redisson writes, sends and listens to is, byte by byte, what aiolock does."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from aiolock import LockClient
from aiolock._server import Server
from tests.interop.monitor import Record, recorded
from tests.interop.service import Redisson
from tests.support.observe import until
from tests.support.waiters import Waiters

NAMES = ["orders", "shop:orders:42", "{shop}:orders", "orders:{42}", "a{b", "a}b", "{}", "{{x}}", "two words", "ï ☃"]
CHANNELS = {  # By Redisson's rule: no braces are added where there is one already.
    "orders": "redisson_lock__channel:{orders}",
    "{shop}:orders": "redisson_lock__channel:{shop}:orders",
    "a{b": "redisson_lock__channel:a{b",
    "a}b": "redisson_lock__channel:{a}b}",
}
OWN_KEYS = (b"aiolock_", b"redisson_unlock_latch:")  # What each side notes for itself.
OWNER = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}:[0-9]+")


Recording = Callable[[], AbstractAsyncContextManager[Record]]


@pytest.fixture
def record(server: Server, redis: Redis) -> Recording:
    return partial(recorded, server, redis)


def of_redisson(lock: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The fields that aiolock does not add."""
    return {name: value for name, value in lock.items() if not name.startswith(b"aiolock:")}


async def check_lock(redis: Redis, name: str, holds: int) -> bytes:
    """Check the key, its field and its time to live; return the field."""
    keys: list[Any] = await redis.keys()
    assert [key for key in keys if not key.startswith(OWN_KEYS)] == [name.encode()]
    fields: dict[Any, Any] = await redis.hgetall(name)
    [(field, count)] = of_redisson(fields).items()
    assert OWNER.fullmatch(field)
    assert count == str(holds).encode()
    assert 20_000 < await redis.pttl(name) <= 30_000
    return bytes(field)


@pytest.mark.parametrize("name", NAMES)
async def test_key_field_count_and_time_to_live(locks: LockClient, redis: Redis, redisson: Redisson, name: str) -> None:
    for holds in (1, 2):
        await redisson.ask("lock", name)
        assert await check_lock(redis, name, holds) == (await redisson.ask("owner")).encode()
    await redisson.ask("unlock", name)
    await check_lock(redis, name, 1)
    await redisson.ask("unlock", name)
    assert not await redis.exists(name)
    lock = locks.lock(name)
    for holds in (1, 2):
        await lock.acquire()
        await check_lock(redis, name, holds)
    await lock.release()
    await check_lock(redis, name, 1)
    await lock.release()
    assert not await redis.exists(name)


def visible(record: Record) -> set[tuple[bytes, bytes]]:
    """What others see: channel and message, the lock's time to live and its end; not what a side keeps for itself."""
    commands = record.of(b"subscribe", b"publish", b"pexpire", b"del")
    return {(name, words) for name, words in commands if not words[1:].startswith(OWN_KEYS)}


async def redisson_hands_over(redisson: Redisson, name: str) -> None:
    await redisson.ask("lock", name, thread=1, lease=40)
    waiting = redisson.post("lock", name, thread=2, lease=50)
    await until(lambda: redisson.parked(2), within=20)
    await redisson.ask("unlock", name, thread=1)
    await waiting
    await redisson.ask("unlock", name, thread=2)


async def tasks_hand_over(locks: LockClient, other: LockClient, name: str) -> None:
    lease = await locks.lock(name).acquire(lease=40)
    async with Waiters(other, name, go=True, lease=50) as waiters:
        await waiters.park(1)
        await lease.release()
        await waiters.granted(1)
        await asyncio.wait(waiters.tasks)


@pytest.mark.parametrize("name", NAMES)
async def test_what_a_server_sees_of_a_lock_that_is_handed_over(
    record: Recording, locks: LockClient, other: LockClient, redisson: Redisson, name: str
) -> None:
    async with record() as javas:
        await redisson_hands_over(redisson, name)
    async with record() as pythons:
        await tasks_hand_over(locks, other, name)
    assert visible(pythons) == visible(javas)
    assert {command for command, _ in visible(javas)} == {b"subscribe", b"publish", b"pexpire", b"del"}
    assert len(visible(javas)) == 5  # Two leases, and one each of the others.


async def next_message(pubsub: PubSub) -> tuple[bytes, bytes]:
    async with asyncio.timeout(10):
        while (message := await pubsub.get_message(timeout=1)) is None:
            pass
    return message["channel"], message["data"]


@pytest.mark.parametrize(("name", "channel"), CHANNELS.items(), ids=CHANNELS)
async def test_the_message_of_an_unlock_as_subscribers_get_it(
    locks: LockClient, redis: Redis, redisson: Redisson, name: str, channel: str
) -> None:
    async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.psubscribe("*")
        await redisson.ask("lock", name)
        await redisson.ask("unlock", name)
        async with locks.lock(name):
            pass
        await redisson.ask("lock", name)
        assert await locks.lock(name).force_release()
        await locks.lock(name).acquire(lease=60)
        assert await redisson.ask("forceUnlock", name)
        got = [await next_message(pubsub) for _ in range(4)]
    assert got == [(channel.encode(), b"0")] * 4
