"""Waking when messages are lost: a waiter gets the lock within the remaining lease plus a moment, or sooner."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

import aiolock._redis.notifier
from aiolock import LockClient, LockConfig
from aiolock._scripts import LOCK
from tests.support.inside import notifier_of, queue_of
from tests.support.observe import until
from tests.support.proxy import Connection, Proxy, Rule, command, drop_reply, script, withhold_reply
from tests.support.waiters import Waiters, parked

NAME = "waking"
CHANNEL = f"redisson_lock__channel:{{{NAME}}}"
LEASE = 1.0
# A waiter that misses the end of the lease asks only after half a minute.
MOMENT = 5.0


@pytest.fixture
async def near(redis: Redis, proxy: Proxy) -> AsyncIterator[LockClient]:
    """A client behind the proxy, which soon gives up a silent connection."""
    async with LockClient.from_url(proxy.url, config=LockConfig(command_timeout=1.5)) as client:
        yield client


def subscriber(connection: Connection) -> bool:
    return connection.subscriber


@pytest.mark.parametrize("count", [1, 100])
async def test_swallowed_messages_cost_the_rest_of_the_lease(
    proxy: Proxy, near: LockClient, other: LockClient, count: int
) -> None:
    async with Waiters(near, NAME, go=True) as waiters:
        await other.lock(NAME).acquire(lease=60)
        await waiters.park(count)
        proxy.swallow_messages()
        assert await other.lock(NAME).force_release()
        await other.lock(NAME).acquire(lease=LEASE)
        await _look(near)
        await other.lock(NAME).release()
        await waiters.granted(1, within=LEASE + MOMENT)
        await asyncio.wait(waiters.tasks, timeout=20)
        assert waiters.order == list(range(count))


async def _look(client: LockClient) -> None:
    """Make the head try, as a message would."""
    queue = queue_of(client.lock(NAME))
    assert queue is not None
    before = client.statistics().commands
    queue.wake()
    await until(lambda: client.statistics().commands > before and client.statistics().pending == 0)


async def test_a_killed_pubsub_connection_is_made_again_and_the_waiters_look_again(
    redis: Redis, proxy: Proxy, near: LockClient, other: LockClient
) -> None:
    async with parked(near, other, NAME, 10, go=True) as (theirs, waiters):
        await proxy.refuse()
        await redis.client_kill_filter(_type="pubsub")
        await until(lambda: near.statistics().connections == 1)
        await theirs.release()
        await proxy.accept()
        await waiters.granted(10)


async def test_a_pubsub_connection_killed_again_and_again_loses_no_wake_up(
    redis: Redis, near: LockClient, other: LockClient
) -> None:
    theirs = other.lock(NAME)
    for _ in range(10):
        lease = await theirs.acquire(lease=60)
        async with Waiters(near, NAME, go=True) as waiters:
            await waiters.park(2)
            await asyncio.gather(redis.client_kill_filter(_type="pubsub"), lease.release())
            await waiters.granted(2)
            await asyncio.wait(waiters.tasks)


async def test_after_a_gap_a_message_is_news_even_if_one_of_ours_is_still_expected(
    redis: Redis, proxy: Proxy, near: LockClient, other: LockClient
) -> None:
    lease = await near.lock(NAME, owner="first").acquire()
    async with Waiters(near, NAME) as waiters:
        await waiters.park(2)
        proxy.swallow_messages()
        await lease.release()
        await waiters.granted(1)
        proxy.swallow_messages(False)
        await redis.client_kill_filter(_type="pubsub")
        await proxy.saw(command(b"SUBSCRIBE"), 2)
        await until(lambda: notifier_of(near).confirmed(CHANNEL))
        await until(waiters.quiet)
        assert await other.lock(NAME).force_release()
        await waiters.granted(2)


async def test_a_half_open_pubsub_connection_is_noticed_and_made_again(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, near: LockClient, other: LockClient
) -> None:
    monkeypatch.setattr(aiolock._redis.notifier, "PING_INTERVAL", 0.3)
    async with parked(near, other, NAME, 10, go=True) as (theirs, waiters):
        assert proxy.half_open(subscriber) == 1
        await theirs.release()
        await waiters.granted(10)


async def test_an_idle_pubsub_connection_is_pinged_and_kept(
    monkeypatch: pytest.MonkeyPatch, proxy: Proxy, near: LockClient, other: LockClient
) -> None:
    monkeypatch.setattr(aiolock._redis.notifier, "PING_INTERVAL", 0.2)
    async with parked(near, other, NAME, 1):
        await proxy.saw(command(b"PING"), count=4)
        pings = [request.connection for request in proxy.requests if request.name == b"PING"]
        assert len(set(pings)) == 1
        assert sum(map(subscriber, proxy.connections)) == 1


async def test_a_subscription_that_is_never_confirmed_is_tried_on_a_new_connection(
    proxy: Proxy, near: LockClient, other: LockClient
) -> None:
    lost = proxy.install(Rule(command(b"SUBSCRIBE"), drop_reply(reset=False)))
    theirs = other.lock(NAME)
    await theirs.acquire(lease=60)
    async with Waiters(near, NAME, go=True) as waiters:
        starting = asyncio.create_task(waiters.park(3))
        await lost.caught()
        await theirs.release()
        await waiters.granted(3)
        starting.cancel()


async def test_messages_that_another_name_gets_wake_nobody_here(other: LockClient, near: LockClient) -> None:
    await other.lock(NAME).acquire(lease=60)
    theirs = other.lock("another")
    await theirs.acquire(lease=60)
    async with Waiters(near, NAME) as here, Waiters(near, "another") as there:
        await here.park(2)
        await there.park(2)
        await theirs.release()
        await there.granted(1)
        assert here.order == []
        assert there.order == [0]


async def test_a_wake_up_is_passed_on_by_a_place_that_another_was_put_before(
    proxy: Proxy, near: LockClient, other: LockClient
) -> None:
    lock = near.lock(NAME)
    assert not await lock.locked()
    held = await other.lock(NAME).acquire(lease=60)
    asked, tried = (proxy.install(Rule(script(LOCK.acquire), withhold_reply())) for _ in range(2))
    first = asyncio.create_task(_use(near))
    await asked.caught()
    # The first task asks already, so that the second one takes a place in the queue, and tries once it is subscribed.
    second = asyncio.create_task(_use(near))
    await until(lambda: near.statistics().pending == 2)
    queue = queue_of(lock)
    assert queue is not None
    place = queue.head
    await held.release()
    await until(place.woken.is_set)
    asked.let_go()
    await until(lambda: lock.statistics().parked == 2)
    second.cancel()
    tried.let_go()
    await asyncio.wait_for(first, 10)


async def _use(client: LockClient) -> None:
    async with client.lock(NAME):
        pass
