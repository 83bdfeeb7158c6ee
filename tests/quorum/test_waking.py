"""A waiter on several servers gets a free lock soon, though the servers tell of its release at different times."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import LockClient
from aiolock._redis.quorum.notifier import QuorumNotifier
from tests.quorum.several import everywhere
from tests.support.observe import until
from tests.support.proxy import ALWAYS, Proxy, Rule, anything, delay
from tests.support.waiters import waits_quietly

NAME = "orders"
SOON = 10.0


class Server:
    """The notifier of one server, which a test speaks for."""

    hear: Callable[[bool], None]

    def watch(self, name: str, hear: Callable[[bool], None]) -> None:
        self.hear = hear

    def unwatch(self, name: str, hear: Callable[[bool], None]) -> None:
        pass


class Told:
    """The signals of three servers' messages to one watcher, after its subscriptions."""

    def __init__(self) -> None:
        self.servers = [Server(), Server(), Server()]
        self.signals: list[bool] = []
        ours: Any = self.servers
        self.notifier = QuorumNotifier(ours)
        self.signal: Callable[[bool], None] = self.signals.append
        self.notifier.watch(NAME, self.signal)
        for server in self.servers:
            server.hear(False)
        self.signals.clear()


async def test_the_messages_after_the_first_one_cause_one_more_try() -> None:
    told = Told()
    for server in told.servers:
        server.hear(True)
    assert told.signals == [True]
    await until(lambda: told.signals == [True, False])


async def test_a_server_with_fewer_messages_is_counted_with_the_others_after_that_try() -> None:
    """An acquire that had one server was given up: the others have no message about that."""
    told = Told()
    told.servers[0].hear(True)
    told.servers[0].hear(True)
    told.servers[1].hear(True)
    assert told.signals == [True, True]
    await until(lambda: told.signals == [True, True, False])
    told.servers[2].hear(True)
    assert told.signals == [True, True, False, True]


async def test_a_watcher_that_has_left_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiolock._redis.quorum.notifier._AGAIN", 0.0)
    told, other = Told(), Told()
    for each in (told, other):
        for server in each.servers:
            server.hear(True)
    told.notifier.unwatch(NAME, told.signal)
    await until(lambda: other.signals == [True, False])
    assert told.signals == [True]


async def test_a_waiter_that_was_woken_before_a_majority_was_free_is_woken_again(
    proxies: list[Proxy], through: list[Redis], redises: list[Redis], other: LockClient
) -> None:
    async with LockClient.redlock(through) as locks:
        # The holder is farther from two servers than from the first one, whose message wakes the waiter too early.
        for proxy in proxies[1:]:
            proxy.install(Rule(anything, delay(0.2), ALWAYS))
        lease = await locks.lock(NAME).acquire()
        await everywhere(redises, NAME)
        waiting = asyncio.create_task(other.lock(NAME, owner="next").acquire())
        await until(lambda: waits_quietly(other, other.lock(NAME)))
        await lease.release()
        async with asyncio.timeout(SOON):
            await (await waiting).release()
