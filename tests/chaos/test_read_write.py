"""Reading and writing when something fails: a call does what one undisturbed call does, and losses are told in time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis

from aiolock import AsyncReadWriteLock, Lease, LeaseLostError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._scripts import READ, WRITE, Script
from tests.support.observe import answered, pubsub_channels, until
from tests.support.proxy import Action, Proxy, Rule, drop_reply, hold, reset, script
from tests.support.waiters import waits_quietly

NAME = "report"
CONFIG = LockConfig(command_timeout=12)


@dataclass
class Stage:
    """A lock behind a proxy, that the user writes and reads, each once; and the same without a proxy."""

    lock: AsyncReadWriteLock
    direct: AsyncReadWriteLock
    writing: Lease
    reading: Lease


async def read_again(stage: Stage) -> None:
    await stage.lock.read.acquire()


async def write_again(stage: Stage) -> None:
    await stage.lock.write.acquire()


async def read_anew(stage: Stage) -> None:
    await stage.reading.release()
    await stage.lock.read.acquire()


async def write_anew(stage: Stage) -> None:
    await stage.reading.release()
    await stage.writing.release()
    await stage.lock.write.acquire()


async def stop_writing(stage: Stage) -> None:
    await stage.writing.release()


async def stop_reading(stage: Stage) -> None:
    await stage.reading.release()


async def renew(stage: Stage) -> None:
    await stage.reading.renew(60)
    await stage.writing.renew(60)


async def force_readers(stage: Stage) -> None:
    assert await stage.lock.read.force_release()


async def force_writer(stage: Stage) -> None:
    assert await stage.lock.write.force_release()


# What is called, the script that it sends, and how often the owner writes and reads after it.
CALLS: dict[str, tuple[Callable[[Stage], Awaitable[None]], Script, tuple[int, int]]] = {
    "read_again": (read_again, READ.acquire, (1, 2)),
    "write_again": (write_again, WRITE.acquire, (2, 1)),
    "read_anew": (read_anew, READ.acquire, (1, 1)),
    "write_anew": (write_anew, WRITE.acquire, (1, 0)),
    "stop_writing": (stop_writing, WRITE.release, (0, 1)),
    "stop_reading": (stop_reading, READ.release, (1, 0)),
    "renew": (renew, READ.renew, (1, 1)),
    "force_readers": (force_readers, READ.force_release, (1, 0)),
    "force_writer": (force_writer, WRITE.force_release, (0, 1)),
}
FAULTS: dict[str, tuple[Action, int]] = {
    "reply_dropped": (drop_reply(), 1),
    "reply_dropped_thrice": (drop_reply(), 3),
    "reply_swallowed": (drop_reply(reset=False), 1),
    "reset_before": (reset(), 1),
    "held_back": (hold(), 1),
}


async def counts(lock: AsyncReadWriteLock) -> tuple[int, int]:
    """How often somebody writes, and reads, by the server."""
    writer = await lock.write.holder()
    return 0 if writer is None else writer.holds, sum(reader.holds for reader in await lock.read.holders())


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", CALLS)
async def test_a_disturbed_call_counts_once(
    proxy: Proxy, through: Redis, other: LockClient, call: str, fault: str
) -> None:
    act, sent, counted = CALLS[call]
    direct = other.read_write_lock(NAME)
    async with LockClient(through, config=CONFIG) as locks:
        lock = locks.read_write_lock(NAME, owner="job")
        stage = Stage(lock, direct, await lock.write.acquire(), await lock.read.acquire())
        await answered(locks)
        action, times = FAULTS[fault]
        rule = proxy.install(Rule(script(sent), action, times))
        await act(stage)
        await rule.caught(times)
        assert await counts(direct) == counted
        if fault == "held_back":
            await rule.deliver()
            assert await counts(direct) == counted
    assert await counts(direct) == (0, 0)
    async with direct.write:
        pass


async def test_all_readers_get_in_though_the_reply_to_one_is_lost(
    proxy: Proxy, through: Redis, other: LockClient
) -> None:
    theirs = other.read_write_lock(NAME)
    writing = await theirs.write.acquire(lease=60)
    inside = asyncio.Barrier(6)

    async def meet(lock: AsyncReadWriteLock) -> None:
        async with lock.read:
            await inside.wait()

    async with LockClient(through, config=CONFIG) as locks:
        mine = locks.read_write_lock(NAME)
        tasks = [asyncio.create_task(meet(mine)) for _ in range(5)]
        await until(lambda: mine.read.statistics().parked == 5 and waits_quietly(locks, mine.read))
        lost = proxy.install(Rule(script(READ.acquire), drop_reply()))
        await writing.release()
        await lost.caught()
        await asyncio.wait_for(inside.wait(), 20)
        await asyncio.gather(*tasks)
    assert await counts(theirs) == (0, 0)


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_release_that_comes_late_leaves_the_next_holder_alone(
    proxy: Proxy, through: Redis, other: LockClient, kind: str
) -> None:
    theirs = other.read_write_lock(NAME)
    async with LockClient(through, config=CONFIG) as locks:
        lease = await getattr(locks.read_write_lock(NAME), kind).acquire()
        late = proxy.install(Rule(script(READ.release), hold()))
        await lease.release()
        async with theirs.write as its:
            await late.deliver()
            assert await counts(theirs) == (1, 0)
            its.check()


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_an_acquire_that_comes_after_its_caller_gave_up_takes_nothing(
    proxy: Proxy, through: Redis, other: LockClient, kind: str
) -> None:
    theirs = other.read_write_lock(NAME)
    async with LockClient(through, config=CONFIG) as locks:
        mine = getattr(locks.read_write_lock(NAME), kind)
        late = proxy.install(Rule(script(READ.acquire), hold(reset=False)))

        async def wait() -> None:
            await mine.try_lock(wait=30)

        task = asyncio.create_task(wait())
        await late.caught()
        task.cancel()
        await asyncio.wait([task])
        proxy.reset_all()
        await until(lambda: locks.statistics().pending == 0, within=20)
        await late.deliver()
        assert await counts(theirs) == (0, 0)


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_server_that_forgot_everything_is_told_to_who_held(redis: Redis, other: LockClient, kind: str) -> None:
    async with LockClient(redis, config=LockConfig(lease=6, renew_interval=0.1)) as locks:
        lease = await getattr(locks.read_write_lock(NAME), kind).acquire()
        await redis.flushall()
        assert await asyncio.wait_for(lease.lost, 10) == "expired"
        assert await other.read_write_lock(NAME).write.try_lock(wait=10) is not None


@pytest.mark.parametrize("gone", ["lock", "record"])
async def test_a_hold_of_which_a_part_is_gone_is_lost(redis: Redis, locks: LockClient, gone: str) -> None:
    """As when Redisson takes the lock away by force, or somebody deletes keys."""
    lease = await locks.read_write_lock(NAME).read.acquire(lease=30)
    [record] = [key async for key in redis.scan_iter("*:rwlock_timeout:1")]
    await redis.delete(NAME if gone == "lock" else record)
    with pytest.raises(LeaseLostError):
        await lease.renew()
    with pytest.raises(LeaseLostError):
        await lease.release()


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_waiter_without_a_message_tries_when_the_holder_must_be_gone(
    proxy: Proxy, through: Redis, other: LockClient, kind: str
) -> None:
    theirs = other.read_write_lock(NAME)
    held = await (theirs.write if kind == "read" else theirs.read).acquire(lease=1)
    proxy.swallow_messages()
    async with LockClient(through) as locks, getattr(locks.read_write_lock(NAME), kind).hold(wait=20) as lease:
        assert lease.token > held.token


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_connection_for_messages_that_is_killed_wakes_who_waits(
    redis: Redis, other: LockClient, kind: str
) -> None:
    theirs = other.read_write_lock(NAME)
    held = await (theirs.write if kind == "read" else theirs.read).acquire(lease=60)
    async with LockClient(redis) as locks:
        mine = getattr(locks.read_write_lock(NAME), kind)

        async def wait() -> None:
            async with mine:
                pass

        task = asyncio.create_task(wait())
        await until(lambda: mine.statistics().parked == 1)
        await until(lambda: _is_heard(redis))
        await redis.client_kill_filter(_type="pubsub")
        await held.release()
        await asyncio.wait_for(task, 20)


async def _is_heard(redis: Redis) -> bool:
    return f"redisson_rwlock:{{{NAME}}}" in {str(each) for each in await pubsub_channels(redis)}


async def test_a_client_that_is_closed_ends_its_waits_and_leaves_no_turn(redis: Redis, other: LockClient) -> None:
    theirs = other.read_write_lock(NAME)
    async with theirs.read:
        locks = LockClient(redis)
        mine = locks.read_write_lock(NAME)

        async def write() -> None:
            async with mine.write:
                pass

        task = asyncio.create_task(write())
        await until(lambda: locks.statistics().parked == 1 and locks.statistics().pending == 0)
        await locks.aclose()
        await asyncio.wait([task])
        assert type(task.exception()).__name__ == "ClientClosedError"
        assert not await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0")
        async with other.read_write_lock(NAME, owner="another").read.hold(wait=10):
            pass


async def test_scripts_that_are_flushed_are_sent_again(redis: Redis, locks: LockClient, other: LockClient) -> None:
    mine, theirs = locks.read_write_lock(NAME), other.read_write_lock(NAME)
    for _ in range(3):
        async with mine.write as writing, mine.read as reading:
            await redis.script_flush()
            await writing.renew()
            await redis.script_flush()
            await reading.renew()
            await redis.script_flush()
            assert await theirs.read.try_lock() is None
    assert await counts(theirs) == (0, 0)


async def test_the_server_stops_and_starts_without_what_it_had(own: Server) -> None:
    config = LockConfig(lease=2, renew_interval=0.2, command_timeout=10)
    async with LockClient.from_url(own.url, config=config) as locks:
        lock = locks.read_write_lock(NAME, owner="job")
        writing, reading = await lock.write.acquire(), await lock.read.acquire()
        own.stop()
        own.start()
        await asyncio.wait_for(writing.lost, 20)
        await asyncio.wait_for(reading.lost, 20)
        async with locks.read_write_lock(NAME).write.hold(wait=20):
            pass
        with pytest.raises(LeaseLostError):
            await writing.release()
