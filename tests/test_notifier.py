"""The notifier: one connection for every name, kept a moment and reused."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

import aiolock._redis.notifier
from aiolock import AsyncFairLock, AsyncRLock, LockClient
from aiolock._redis.connector import Connector
from aiolock._redis.notifier import Notifier
from tests.support.calls import acquire_and_release
from tests.support.contexts import outlives_its_task
from tests.support.holding import client_behind
from tests.support.inside import hears, keys_of, notifier_of, session_of
from tests.support.observe import answered, commandstats, pubsub_channels, subscribed_clients, until
from tests.support.proxy import ALWAYS, Action, Proxy, Rule, command, refuse, reset, withhold_reply

ORDERS = ("subscribe", "unsubscribe")


@pytest.fixture
async def notifier(redis: Redis) -> AsyncIterator[Notifier]:
    running = Notifier(Connector.of(redis, None, 5), patience=2)
    yield running
    await running.aclose()


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels linger for a tenth of a second."""
    monkeypatch.setattr(aiolock._redis.notifier, "LINGER", 0.1)


def ignore(message: bool) -> None:
    pass


async def test_every_message_and_every_gap_is_signalled(redis: Redis, notifier: Notifier) -> None:
    signals: list[bool] = []
    notifier.watch("news", signals.append)
    # The watcher is subscribed, and has missed earlier messages.
    await until(lambda: signals == [False])
    assert notifier.confirmed("news")
    await redis.publish("news", "0")
    await redis.publish("other", "0")
    await redis.publish("news", "anything")
    await until(lambda: signals == [False, True, True])
    await redis.client_kill_filter(_type="pubsub")
    await until(lambda: signals == [False, True, True, False])


async def test_it_does_not_keep_the_context_of_the_first_waiter(notifier: Notifier) -> None:
    async def watch() -> None:
        notifier.watch("news", ignore)
        await until(lambda: notifier.confirmed("news"))

    assert not await outlives_its_task(watch)
    assert notifier.connection.connected


async def test_each_watcher_of_a_channel_hears_every_message(redis: Redis, notifier: Notifier) -> None:
    one: list[bool] = []
    another: list[bool] = []
    notifier.watch("news", one.append)
    await until(lambda: one == [False])
    notifier.watch("news", another.append)
    await until(lambda: another == [False])
    await redis.publish("news", "0")
    await until(lambda: one[1:] == another[1:] == [True])
    notifier.unwatch("news", one.append)
    await redis.publish("news", "0")
    await until(lambda: another[1:] == [True, True])
    assert one[1:] == [True]


async def test_two_locks_that_share_a_channel_are_both_waited_for(redis: Redis, locks: LockClient) -> None:
    names = ("a", "{a}")
    async with LockClient(redis) as other:
        holders = [other.lock(name, owner="holder") for name in names]
        for lock in holders:
            await lock.acquire(lease=60)
        waiting = [asyncio.create_task(acquire_and_release(locks.lock(name))) for name in names]
        await until(lambda: locks.statistics().parked == 2)
        await until(lambda: notifier_of(locks).confirmed(keys_of(holders[0]).channel))
        await answered(locks)
        for lock, waiter in zip(holders, waiting, strict=True):
            await lock.release()
            await asyncio.wait_for(waiter, 10)


async def test_two_hundred_names_share_a_connection(redis: Redis, notifier: Notifier) -> None:
    names = {f"name {number}" for number in range(200)}
    for name in names:
        notifier.watch(name, ignore)
    await until(lambda: all(notifier.confirmed(name) for name in names))
    assert await pubsub_channels(redis) == names
    assert len(await subscribed_clients(redis)) == 1


async def test_two_hundred_names_waited_for_at_once_share_a_connection(redis: Redis, locks: LockClient) -> None:
    async with LockClient(redis) as other:
        holders = [other.lock(f"name {number}", owner="holder") for number in range(200)]
        for lock in holders:
            await lock.acquire(lease=60)
        waiting = [asyncio.create_task(acquire_and_release(locks.lock(lock.name))) for lock in holders]
        await until(lambda: locks.statistics().parked == 200)
        notifier = notifier_of(locks)
        await until(lambda: all(notifier.confirmed(keys_of(lock).channel) for lock in holders))
        assert locks.statistics().subscriptions == 200
        assert locks.statistics().connections <= 3
        assert len(await subscribed_clients(redis)) == 1
        for lock in holders:
            await lock.release()
        await asyncio.wait_for(asyncio.gather(*waiting), 10)


@pytest.mark.usefixtures("brief")
async def test_a_channel_is_left_a_moment_after_its_last_watcher(redis: Redis, notifier: Notifier) -> None:
    notifier.watch("news", ignore)
    notifier.watch("weather", ignore)
    await until(lambda: notifier.confirmed("news") and notifier.confirmed("weather"))
    notifier.unwatch("news", ignore)
    assert notifier.subscriptions == 2
    await until(lambda: notifier.subscriptions == 1)

    async def left() -> bool:
        return await pubsub_channels(redis) == {"weather"}

    await until(left)


async def test_a_channel_that_is_watched_again_in_that_moment_is_not_ordered_again(
    redis: Redis, notifier: Notifier
) -> None:
    signals: list[bool] = []
    notifier.watch("news", ignore)
    await until(lambda: notifier.confirmed("news"))
    before = await commandstats(redis)
    notifier.unwatch("news", ignore)
    notifier.watch("news", signals.append)
    # Messages of the gap went to nobody.
    await until(lambda: signals == [False])
    after = await commandstats(redis)
    assert [after.get(name) for name in ORDERS] == [before.get(name) for name in ORDERS]


@pytest.mark.usefixtures("brief")
async def test_an_idle_connection_is_kept_and_used_again(redis: Redis, notifier: Notifier) -> None:
    notifier.watch("news", ignore)
    await until(lambda: notifier.confirmed("news"))
    [first] = await subscribed_clients(redis)
    notifier.unwatch("news", ignore)
    await until(lambda: notifier.subscriptions == 0)
    signals: list[bool] = []
    notifier.watch("weather", signals.append)
    await until(lambda: notifier.confirmed("weather"))
    assert await subscribed_clients(redis) == [first]
    await redis.publish("weather", "0")
    await until(lambda: signals == [False, True])


@pytest.mark.usefixtures("brief")
async def test_a_name_that_nobody_uses_any_more_leaves_no_subscription(redis: Redis, locks: LockClient) -> None:
    both = (locks.lock("used"), locks.fair_lock("used in order"))

    async def work(lock: AsyncRLock | AsyncFairLock) -> None:
        async with lock:
            await asyncio.sleep(0)

    await asyncio.gather(*(work(lock) for lock in both for _ in range(10)))
    await until(lambda: locks.statistics().subscriptions == 0)

    async def left() -> bool:
        return await pubsub_channels(redis) == set()

    await until(left)
    assert locks.statistics().parked == locks.statistics().held == 0
    assert list(session_of(locks).entries) == []


@pytest.mark.usefixtures("brief")
async def test_a_connection_that_dies_while_nobody_watches_is_made_again_when_somebody_does(
    redis: Redis, notifier: Notifier
) -> None:
    notifier.watch("news", ignore)
    await until(lambda: notifier.confirmed("news"))
    [first] = await subscribed_clients(redis)
    notifier.unwatch("news", ignore)
    await until(lambda: notifier.subscriptions == 0)
    await redis.client_kill_filter(_id=first)
    await until(lambda: not notifier.connection.connected)
    signals: list[bool] = []
    notifier.watch("news", signals.append)
    await until(lambda: signals == [False])
    await redis.publish("news", "0")
    await until(lambda: signals == [False, True])


@pytest.mark.usefixtures("brief")
async def test_orders_do_not_pile_up_while_there_is_no_connection(proxy: Proxy, through: Redis) -> None:
    notifier = Notifier(Connector.of(through, None, 5), patience=2)
    await proxy.refuse()
    for number in range(50):
        notifier.watch(f"name {number}", ignore)
        notifier.unwatch(f"name {number}", ignore)
    notifier.watch("news", ignore)
    await until(lambda: notifier.subscriptions == 1)
    assert notifier.outgoing() == []
    await proxy.accept()
    await until(lambda: notifier.confirmed("news"))
    assert [request.args[1:] for request in filter(command(b"SUBSCRIBE"), proxy.requests)] == [(b"news",)]
    await notifier.aclose()


async def test_closing_leaves_no_connection(redis: Redis, notifier: Notifier) -> None:
    notifier.watch("news", ignore)
    await until(lambda: notifier.confirmed("news"))
    await notifier.aclose()

    async def gone() -> bool:
        return await subscribed_clients(redis) == []

    await until(gone)


async def test_a_subscription_that_is_overdue_as_its_connection_dies_is_made_again(proxy: Proxy) -> None:
    """The silence and the reset both give the connection up; the second time there is none any more."""
    user = Redis.from_url(proxy.url)
    notifier = Notifier(Connector.of(user, None, 5), patience=0.15)
    unanswered = proxy.install(Rule(command(b"SUBSCRIBE"), withhold_reply()))
    notifier.watch("news", ignore)
    await unanswered.caught()
    # This is longer than its patience, and shorter than the time from one look to the next.
    await asyncio.sleep(0.2)
    proxy.clear_rules()
    proxy.reset_all()
    await until(lambda: notifier.confirmed("news"))
    await notifier.aclose()
    await user.aclose()


@pytest.mark.parametrize("error", [b"BUSY for the moment", b"NOPERM for the moment"])
async def test_a_subscription_that_the_server_refuses_is_made_again(
    redis: Redis, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, error: bytes
) -> None:
    """The connection stays, and a channel that is always watched is never left: nothing else would subscribe again."""
    monkeypatch.setattr(aiolock._redis.notifier, "AGAIN", 0.1)
    user = Redis.from_url(proxy.url)
    notifier = Notifier(Connector.of(user, None, 5), patience=2)
    refused = proxy.install(Rule(command(b"SUBSCRIBE"), refuse(error), times=ALWAYS))
    signals: list[bool] = []
    notifier.watch("news", signals.append)
    await until(lambda: len(refused.requests) >= 2)
    assert not notifier.confirmed("news")
    proxy.clear_rules()
    await until(lambda: signals == [False])
    await redis.publish("news", "0")
    await until(lambda: signals == [False, True])
    await notifier.aclose()
    await user.aclose()


async def test_a_connection_for_messages_that_cannot_be_made_is_logged_once(
    redis: Redis, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """A waiter then waits for the end of the lease. Its commands go by another connection, which works."""
    made = proxy.install(Rule(command(b"CLIENT"), reset(), times=ALWAYS))
    async with client_behind(proxy, command_timeout=0.6) as locks, LockClient(redis) as others:
        proxy.clear_rules()
        await acquire_and_release(locks.lock("another"))
        proxy.install(made)
        async with others.lock("a"):
            waiting = asyncio.create_task(acquire_and_release(locks.lock("a")))
            await until(lambda: warnings(caplog) == 1)
            attempts = len(made.requests)
            await until(lambda: len(made.requests) >= attempts + 3)
            assert warnings(caplog) == 1
            proxy.clear_rules()
            await until(lambda: hears(locks, locks.lock("a")))
        await waiting


@pytest.mark.parametrize("fault", [reset, withhold_reply])
async def test_subscriptions_that_die_on_good_connections_are_logged_once(
    redis: Redis, proxy: Proxy, caplog: pytest.LogCaptureFixture, fault: Callable[[], Action]
) -> None:
    """A proxy may close a connection at its first command of pub/sub."""
    died = proxy.install(Rule(command(b"SUBSCRIBE"), fault(), times=ALWAYS))
    async with client_behind(proxy, command_timeout=0.6) as locks, LockClient(redis) as others:
        async with others.lock("a"):
            waiting = asyncio.create_task(acquire_and_release(locks.lock("a")))
            await until(lambda: warnings(caplog) == 1)
            attempts = len(died.requests)
            await until(lambda: len(died.requests) >= attempts + 2)
            assert warnings(caplog) == 1
            proxy.clear_rules()
            await until(lambda: hears(locks, locks.lock("a")))
        await waiting


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    """The number of warnings about it; their words name the consequence, and the failure."""
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return sum("the holder's lease ends: no subscription can be made (" in each for each in said)
