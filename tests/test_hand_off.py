"""A release and the acquire behind it leave as one command."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LockClient
from aiolock._core.queue import MOST_HAND_OFFS
from aiolock._scripts import HAND_OFF
from tests.support.faults import script
from tests.support.holding import client_behind
from tests.support.inside import expected_echoes
from tests.support.observe import all_parked, answered, commandstats, until
from tests.support.proxy import Proxy, Rule, drop_reply, withhold_reply
from tests.support.waiters import waits_quietly

MANY = 200
SECTIONS = 600


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[LockClient]:
    async with client_behind(proxy) as client:
        yield client


async def scripts(redis: Redis) -> int:
    stats = await commandstats(redis)
    return stats.get("eval", 0) + stats.get("evalsha", 0)


async def used(lock: AsyncRLock) -> AsyncRLock:
    """The same lock, once it was released: the first clean release of a name leaves a mark."""
    async with lock:
        pass
    return lock


async def hand_off(lock: AsyncRLock, client: LockClient, redis: Redis) -> tuple[int, int]:
    """Pass the lock on to another task; returns that task's hold count, and the number of scripts that were run."""

    async def take() -> tuple[int, int]:
        async with lock:
            run = await scripts(redis) - before
            return await lock.hold_count(), run

    async with lock:
        task = asyncio.create_task(take())
        # Once messages arrive, the waiter asks again.
        await until(lambda: waits_quietly(client, lock))
        before = await scripts(redis)
    return await task


async def test_a_hand_off_is_one_command(client: LockClient, redis: Redis) -> None:
    lock = await used(client.lock("a"))
    for _ in range(3):
        assert await hand_off(lock, client, redis) == (1, 1)


async def test_each_call_of_a_hand_off_counts(client: LockClient, redis: Redis) -> None:
    lock = await used(client.lock("a"))
    run, counted = await scripts(redis), client.statistics().commands
    await hand_off(lock, client, redis)
    await answered(client)
    assert client.statistics().commands - counted == await scripts(redis) - run + 1


async def test_a_lost_reply_to_a_hand_off_frees_once_and_grants_once(
    client: LockClient, proxy: Proxy, redis: Redis
) -> None:
    lock = await used(client.lock("a"))
    dropped = proxy.install(Rule(script(HAND_OFF), drop_reply()))
    holds, _ = await hand_off(lock, client, redis)
    assert holds == 1
    assert len(dropped.requests) == 1
    await answered(client)
    assert not await redis.exists("a")
    assert client.statistics().losses == 0


async def test_a_server_that_forgot_its_scripts_hands_off(client: LockClient, redis: Redis) -> None:
    lock = await used(client.lock("a"))
    for _ in range(3):
        await redis.script_flush()
        holds, _ = await hand_off(lock, client, redis)
        assert holds == 1
    assert client.statistics().losses == 0


async def test_a_first_hand_off_is_one_command(client: LockClient, redis: Redis) -> None:
    """The client has released the name by nothing else before."""
    assert await hand_off(client.lock("a"), client, redis) == (1, 1)


async def test_the_next_hold_has_a_later_token(client: LockClient) -> None:
    lock, tokens = await used(client.lock("a")), []

    async def once() -> None:
        async with lock as lease:
            tokens.append(lease.token)
            await asyncio.sleep(0)

    await asyncio.gather(*(once() for _ in range(20)))
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 20


async def test_releases_that_told_nobody_are_not_kept(client: LockClient) -> None:
    """A client ignores the message of its own release before a hand-off; a hand-off sends none."""
    lock = await used(client.lock("a"))
    most = 0

    async def pass_around() -> None:
        nonlocal most
        for _ in range(MANY):
            async with lock:
                await asyncio.sleep(0)
                most = max(most, expected_echoes(lock))

    await asyncio.gather(*(pass_around() for _ in range(3)))
    assert 0 < most <= 3


async def test_clients_take_turns_after_a_number_of_hand_offs(client: LockClient, locks: LockClient) -> None:
    holders: list[int] = []

    async def take(which: int, lock: AsyncRLock) -> None:
        while len(holders) < SECTIONS:
            async with lock:
                holders.append(which)
                await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await asyncio.gather(
            *(take(which, each.lock("a")) for which, each in enumerate((client, locks)) for _ in range(5))
        )
    runs = 1 + sum(first != second for first, second in pairwise(holders))
    assert len(holders) / runs <= 2 * MOST_HAND_OFFS


@pytest.mark.parametrize("lease", [None, 5], ids=["same lease", "shorter lease"])
async def test_the_next_waiter_is_woken_when_the_one_before_it_is_cancelled(
    client: LockClient, proxy: Proxy, lease: float | None
) -> None:
    """Its acquire is on the way to the server, behind the release."""
    lock = await used(client.lock("a"))
    holder = await lock.acquire()
    first = asyncio.create_task(taken(lock, lease))
    await all_parked(client, 1)
    second = asyncio.create_task(taken(lock, None))
    await all_parked(client, 2)
    await until(lambda: waits_quietly(client, lock))
    withheld = proxy.install(Rule(script(HAND_OFF), withhold_reply()))
    releasing = asyncio.create_task(holder.release())
    await withheld.caught()
    first.cancel()
    withheld.let_go()
    async with asyncio.timeout(5):
        await releasing
        await second


async def taken(lock: AsyncRLock, lease: float | None) -> None:
    async with lock.hold(lease=lease):
        pass
