"""Clients learn of a new primary from most Sentinels, while the old one still answers and grants."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
from redis.asyncio import Redis
from redis.asyncio.sentinel import Sentinel

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.support.calls import acquire, acquire_and_release
from tests.support.inside import keys_of, watch_of
from tests.support.observe import renewed, until
from tests.support.topologies import NAME as PRIMARY
from tests.support.topologies import Replicated, ask, named_by, role, wait_until, waited
from tests.support.waiters import parked

NAME = "orders"
PATIENCE = 2.0


class Counting(Sentinel):
    """Counts the questions to Sentinels, and lets answers wait."""

    asked = 0
    late: ClassVar[dict[object, asyncio.Event]] = {}
    waiting: ClassVar[set[object]] = set()

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        Counting.asked += 1
        one = self.sentinels[0]
        if one in Counting.late:
            Counting.waiting.add(one)
            await Counting.late[one].wait()
        address: tuple[str, int] = await super().discover_master(service_name)
        return address

    @classmethod
    async def more(cls, count: int) -> None:
        """Return when Sentinels were asked that many more times."""
        wanted = cls.asked + count
        await until(lambda: cls.asked >= wanted, within=20)


@pytest.fixture
def stubborn(server: Server) -> Iterator[Replicated]:
    """A primary that stays a primary after the Sentinels have promoted another server."""
    with Replicated(server._executable, sentinels=3, stubborn=True) as running:
        yield running


@pytest.fixture
def lone(server: Server) -> Iterator[Replicated]:
    """Sentinels over a primary without replicas: they will name another when they are told to (`name`)."""
    with Replicated(server._executable, replicas=0, sentinels=3) as running:
        yield running


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Sentinel that is slow because the machine is busy is not silent."""
    monkeypatch.setattr("aiolock._redis.sentinel.watch._PATIENCE", PATIENCE)


def name(server: Server, *sentinels: Server) -> None:
    """Let these Sentinels name another primary, without an announcement."""
    for sentinel in sentinels:
        ask(sentinel, "SENTINEL", "REMOVE", PRIMARY)
        ask(sentinel, "SENTINEL", "MONITOR", PRIMARY, server.host, server.port, 2)
    wait_until(lambda: all(named_by(each)["flags"] == "master" for each in sentinels), "the Sentinels have reached it")


@asynccontextmanager
async def users_client(setup: Replicated, **settings: Any) -> AsyncIterator[Redis]:
    sentinel = Counting(setup.addresses, **({"socket_timeout": 1} | settings))  # type: ignore[no-untyped-call]
    redis = sentinel.master_for(PRIMARY)
    yield redis
    await redis.aclose()
    for each in sentinel.sentinels:
        await each.aclose()


@asynccontextmanager
async def client_of(redis: Redis, *, command_timeout: float = 15, **settings: Any) -> AsyncIterator[LockClient]:
    config = LockConfig(renew_interval=10, command_timeout=command_timeout, client_name="ours", **settings)
    async with LockClient(redis, config=config) as client:
        yield client


def left(server: Server) -> Callable[[], bool]:
    """Whether the server has no connection of ours any more."""
    return lambda: "name=ours" not in str(ask(server, "CLIENT", "LIST"))


def are_listened_to(sentinels: list[Server], clients: int) -> bool:
    """Whether that many clients hear the announcements of the Sentinels."""
    return all(str(ask(each, "CLIENT", "LIST")).count("cmd=subscribe") == clients for each in sentinels)


def knows(client: LockClient) -> bool:
    """Whether the client has heard most Sentinels name the same primary."""
    return watch_of(client)._heard < math.inf


async def test_no_client_stays_on_a_primary_that_is_not_demoted(
    stubborn: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiolock._redis.sentinel.watch._INTERVAL", 600)
    old = stubborn.primary
    async with (
        users_client(stubborn) as redis,
        client_of(redis, replicas=1) as holder,
        client_of(redis, replicas=1) as locks,
        parked(locks, holder, NAME, 3, go=True) as (lease, waiters),
    ):
        async with holder.lock("watched") as watched:
            await waited(lambda: are_listened_to(stubborn.sentinels, 2), "the announcements are heard")
            ask(stubborn.sentinels[0], "SENTINEL", "FAILOVER", PRIMARY)
            new = await asyncio.to_thread(stubborn.promoted, old)
            await until(left(old), within=20)
            await renewed(holder, 1, within=20)
            watched.check()
        assert role(old) == "master"
        channel = keys_of(waiters.lock).channel
        await until(lambda: channel in ask(new, "PUBSUB", "CHANNELS"), within=20)
        await until(waiters.quiet, within=20)
        lease.check()
        await lease.release()
        await waiters.granted(3, within=10)
        assert holder.statistics().losses == 0


async def test_the_primary_that_most_sentinels_name_is_found_by_asking(lone: Replicated) -> None:
    old, new = lone.primary, lone.start()
    one, *others = lone.sentinels
    async with users_client(lone) as redis, client_of(redis, command_timeout=3) as locks:
        for sentinel in lone.sentinels:
            sentinel.restart()
        lease = await locks.lock(NAME, owner="job").acquire(lease=60)
        for silent in others:
            silent.pause()
        name(new, one)
        await Counting.more(9)
        assert not left(old)(), "the client believes a single Sentinel"
        for silent in others:
            silent.resume()
        name(new, others[0])
        assert await asyncio.wait_for(lease.lost, 10) == "expired", "the new primary was not asked for the lock"
        await until(left(old))
        async with locks.lock(NAME):
            assert ask(new, "EXISTS", NAME)


async def test_after_a_pause_nothing_is_sent_before_the_sentinels_were_asked(lone: Replicated, patient: None) -> None:
    old, new = lone.primary, lone.start()
    async with users_client(lone) as redis, client_of(redis) as locks:
        await acquire_and_release(locks.lock(NAME))
        await until(lambda: knows(locks))
        # The process is paused: nothing runs until the Sentinels name another primary.
        time.sleep(1.1)
        name(new, *lone.sentinels)
        await locks.lock(NAME, owner="job").acquire()
        assert ask(new, "EXISTS", NAME)
        assert not ask(old, "EXISTS", NAME)
        for sentinel in lone.sentinels:
            sentinel.pause()
        time.sleep(1.1)
        await asyncio.wait_for(acquire(locks.lock("other", owner="job")), 10)
        for sentinel in lone.sentinels:
            sentinel.resume()


async def test_a_pause_while_the_sentinels_are_asked_is_no_silence_of_theirs(
    lone: Replicated, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = lone.primary, lone.start()
    async with users_client(lone, socket_timeout=None) as redis, client_of(redis) as locks:
        await acquire_and_release(locks.lock(NAME))
        await until(lambda: knows(locks))
        questions = {each: asyncio.Event() for each in watch_of(locks)._due}
        monkeypatch.setattr(Counting, "late", questions)
        await until(lambda: Counting.waiting.issuperset(questions))
        for question in questions.values():
            question.set()
        await asyncio.sleep(0)
        # The questions are under way, and their time is over when the process goes on.
        time.sleep(1.6 * PATIENCE)
        name(new, *lone.sentinels)
        await locks.lock(NAME, owner="job").acquire()
        assert ask(new, "EXISTS", NAME)
        assert not ask(old, "EXISTS", NAME)


async def test_a_connection_is_not_given_up_for_answers_that_are_older(
    lone: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = lone.primary, lone.start()
    monkeypatch.setattr("aiolock._redis.sentinel.watch._CERTAIN", 600)
    async with users_client(lone) as redis, client_of(redis, command_timeout=30) as locks:
        await acquire_and_release(locks.lock(NAME))
        await until(lambda: knows(locks))
        asked = list(watch_of(locks)._due)
        monkeypatch.setattr(Counting, "late", {each: asyncio.Event() for each in asked})
        await until(lambda: Counting.waiting.issuperset(asked))
        name(new, *lone.sentinels)
        ask(old, "CLIENT", "KILL", "TYPE", "normal")
        await until(lambda: locks.statistics().connections == 0)
        async with locks.lock(NAME) as lease:
            assert ask(new, "EXISTS", NAME)
            # The other Sentinels, still the majority, have named the old primary.
            Counting.late[asked[0]].set()
            await until(lambda: asked[0].named == (new.host, new.port))
            assert locks.statistics().connections == 1
            for gate in Counting.late.values():
                gate.set()
            await until(lambda: all(each.named == (new.host, new.port) for each in asked))
            lease.check()
        assert locks.statistics().connections == 1


async def test_a_lock_is_renewed_while_most_sentinels_are_silent(lone: Replicated) -> None:
    """Also with a long command timeout, the client notices a silent Sentinel before its last answer is too old."""
    config = LockConfig(lease=3, command_timeout=30)
    async with users_client(lone, socket_timeout=None) as redis, LockClient(redis, config=config) as locks:
        async with locks.lock(NAME):
            await until(lambda: knows(locks))
            for sentinel in lone.sentinels[1:]:
                sentinel.pause()
            await renewed(locks, 5, within=30)
        for sentinel in lone.sentinels[1:]:
            sentinel.resume()
