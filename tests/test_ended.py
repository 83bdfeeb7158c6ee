"""The ends of acquisitions that a client lets the server remember, so that no copy of an acquire is granted late."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, AsyncWriteLock, LockClient
from aiolock._core.commands import _MOST_FORGETTABLE
from aiolock._keys import LockKeys
from aiolock._scripts import ACQUIRE
from tests.support.proxy import Proxy, Rule, drop_reply, hold, script

NAME = "orders"


@pytest.fixture
async def behind(proxy: Proxy) -> AsyncIterator[AsyncRLock]:
    """A lock of a client behind the proxy."""
    async with LockClient.from_url(proxy.url) as client:
        yield client.lock(NAME)


async def remembered(redis: Redis, name: str = NAME) -> int:
    members = set(await redis.zrange(LockKeys.of(name, "").tokens, 0, -1))
    return len(members - {b"token"})


async def sections(lock: AsyncRLock | AsyncWriteLock, count: int) -> None:
    for _ in range(count):
        async with lock:
            pass


async def test_a_name_that_is_used_all_the_time_remembers_some_few_ends_for_each_client(
    locks: LockClient, other: LockClient, redis: Redis
) -> None:
    most = 0
    async with asyncio.TaskGroup() as tasks:
        for client in (locks, other):
            for _ in range(4):
                tasks.create_task(sections(client.lock(NAME), 250))
        for _ in range(50):
            most = max(most, await remembered(redis))
    most = max(most, await remembered(redis))
    assert 0 < most <= 6


async def test_an_acquisition_whose_acquire_was_sent_twice_is_not_forgotten(
    proxy: Proxy, behind: AsyncRLock, redis: Redis
) -> None:
    await sections(behind, 3)
    assert await remembered(redis) == 1
    # The end of the second one names those that may be forgotten.
    for sent_twice in (1, 2):
        proxy.install(Rule(script(ACQUIRE), drop_reply()))
        await sections(behind, 3)
        assert await remembered(redis) == 1 + sent_twice


async def test_a_copy_of_an_acquire_that_arrives_after_many_sections_is_granted_nothing(
    proxy: Proxy, behind: AsyncRLock, redis: Redis
) -> None:
    held_back = proxy.install(Rule(script(ACQUIRE), hold()))
    await sections(behind, 20)
    await held_back.deliver()
    assert not await redis.exists(NAME)


async def test_a_client_remembers_the_ends_to_forget_of_a_limited_number_of_names(
    locks: LockClient, redis: Redis
) -> None:
    for number in range(_MOST_FORGETTABLE + 1):
        await sections(locks.read_write_lock(f"{NAME}:{number}").write, 1)
    for number in (1, 0):
        await sections(locks.read_write_lock(f"{NAME}:{number}").write, 1)
    counts = [await remembered(redis, f"{NAME}:{number}") for number in (1, 0)]
    assert counts == [1, 2]
