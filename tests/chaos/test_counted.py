"""What only counts when something fails: each verb counts once, and who waits is let go though messages are lost."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from aiolock import AsyncCountDownLatch, AsyncSemaphore, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._scripts import ADD_PERMITS, COUNT_DOWN, DRAIN, SEMAPHORE, SET_COUNT, SET_PERMITS, Script
from tests.chaos.test_permits import CONFIG, FAULTS
from tests.support.inside import notifier_of
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, script

SEATS, JOBS = "seats", "jobs"


@dataclass
class Stage:
    """Five permits, and a latch of three."""

    semaphore: AsyncSemaphore
    latch: AsyncCountDownLatch


async def block(stage: Stage) -> None:
    async with stage.semaphore.hold(permits=2):
        pass


async def acquire(stage: Stage) -> None:
    await stage.semaphore.acquire(2)


async def release(stage: Stage) -> None:
    await stage.semaphore.release(2)


async def add(stage: Stage) -> None:
    await stage.semaphore.add_permits(3)


async def drain(stage: Stage) -> None:
    assert await stage.semaphore.drain() == 5


async def count_down(stage: Stage) -> None:
    await stage.latch.count_down()


async def delete(stage: Stage) -> None:
    assert await stage.latch.delete()


# What is called, the script that it sends, and how many permits are available and how much is left after it.
CALLS: dict[str, tuple[Callable[[Stage], Awaitable[None]], Script, tuple[int, int]]] = {
    "enter": (block, SEMAPHORE.acquire, (5, 3)),
    "leave": (block, SEMAPHORE.release, (5, 3)),
    "acquire": (acquire, SEMAPHORE.acquire, (3, 3)),
    "release": (release, ADD_PERMITS, (7, 3)),
    "add": (add, ADD_PERMITS, (8, 3)),
    "drain": (drain, DRAIN, (0, 3)),
    "count_down": (count_down, COUNT_DOWN, (5, 2)),
    "delete": (delete, COUNT_DOWN, (5, 0)),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
async def test_a_disturbed_call_counts_once(
    proxy: Proxy, through: Redis, other: LockClient, call: str, fault: str
) -> None:
    act, sent, counted = CALLS[call]
    semaphore, latch = other.semaphore(SEATS), other.count_down_latch(JOBS)
    assert await semaphore.try_set_permits(5)
    assert await latch.try_set_count(3)
    async with LockClient(through, config=CONFIG) as locks:
        await locks.ping()
        await answered(locks)
        action, times = FAULTS[fault]
        rule = proxy.install(Rule(script(sent), action, times))
        await act(Stage(locks.semaphore(SEATS), locks.count_down_latch(JOBS)))
        await rule.caught(times)
        assert (await semaphore.available(), await latch.count()) == counted
        if fault == "held_back":
            await rule.deliver()
    assert (await semaphore.available(), await latch.count()) == counted


@pytest.mark.parametrize("kind", ["semaphore", "latch"])
async def test_who_says_a_number_first_is_told_so_though_the_reply_is_lost(
    proxy: Proxy, through: Redis, kind: str
) -> None:
    async with LockClient(through, config=CONFIG) as locks:
        lost = proxy.install(Rule(script(SET_PERMITS if kind == "semaphore" else SET_COUNT), *FAULTS["reply_dropped"]))
        if kind == "semaphore":
            assert await locks.semaphore(SEATS).try_set_permits(5)
        else:
            assert await locks.count_down_latch(JOBS).try_set_count(5)
        await lost.caught()


async def waiting(locks: LockClient) -> list[asyncio.Task[object]]:
    """A task that waits for a permit, and one that waits at a latch."""
    tasks: list[asyncio.Task[object]] = [
        asyncio.ensure_future(locks.semaphore(SEATS).try_acquire(wait=None)),
        asyncio.ensure_future(locks.count_down_latch(JOBS).wait()),
    ]
    channels = [f"redisson_sc:{{{SEATS}}}", f"redisson_countdownlatch__channel__{{{JOBS}}}"]
    await until(lambda: all(notifier_of(locks).confirmed(channel) for channel in channels))
    await until(lambda: (locks.statistics().parked, locks.statistics().pending) == (2, 0))
    return tasks


async def test_without_messages_who_waits_asks(proxy: Proxy, through: Redis, other: LockClient) -> None:
    """After five seconds."""
    await other.count_down_latch(JOBS).try_set_count(1)
    async with LockClient(through) as locks:
        tasks = await waiting(locks)
        proxy.swallow_messages()
        await other.semaphore(SEATS).release()
        await other.count_down_latch(JOBS).count_down()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*tasks) == [True, True]


async def test_a_connection_for_messages_that_is_killed_wakes_who_waits(redis: Redis, other: LockClient) -> None:
    await other.count_down_latch(JOBS).try_set_count(1)
    async with LockClient(redis) as locks:
        tasks = await waiting(locks)
        await redis.client_kill_filter(_type="pubsub")
        await other.semaphore(SEATS).release()
        await other.count_down_latch(JOBS).count_down()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*tasks) == [True, True]


async def test_the_server_stops_and_starts_without_what_it_had(own: Server) -> None:
    """There are as many permits as the semaphore was made with, and nothing is to be counted down."""
    async with LockClient.from_url(own.url, config=LockConfig(command_timeout=10)) as locks:
        await locks.count_down_latch(JOBS).try_set_count(1)
        waits = asyncio.create_task(locks.count_down_latch(JOBS).wait())
        await until(lambda: locks.statistics().parked == 1)
        async with locks.semaphore(SEATS, 2):
            own.stop()
            own.start()
        async with asyncio.timeout(20):
            assert await waits
        assert await locks.semaphore(SEATS, 2).available() == 2
