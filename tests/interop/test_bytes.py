"""Redisson's writes, messages and subscriptions are those of aiolock, byte by byte."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from time import time
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from aiolock import AsyncReadWriteLock, LeaseLostError, LockClient
from aiolock._embedded_server import Server
from aiolock._identity import _ID
from tests.interop.monitor import Record, recorded
from tests.interop.service import Redisson
from tests.support.inside import block_of
from tests.support.observe import all_parked, until
from tests.support.waiters import Waiters, waits_quietly

NAMES = ["orders", "shop:orders:42", "{shop}:orders", "orders:{42}", "a{b", "a}b", "{}", "{{x}}", "two words", "ï ☃"]
# By Redisson's rule, a name that has a brace gets no further ones.
CHANNELS = {
    "orders": "redisson_lock__channel:{orders}",
    "{shop}:orders": "redisson_lock__channel:{shop}:orders",
    "a{b": "redisson_lock__channel:a{b",
    "a}b": "redisson_lock__channel:{a}b}",
}
# Only one side uses these keys.
OWN_KEYS = (b"aiolock_", b"redisson_unlock_latch:")
UUID = rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
OWNER = re.compile(rb"(?:%b|%b):[0-9]+" % (UUID, _ID.pattern.encode()))
# A permit of Redisson is random bytes.
PERMIT = re.compile(OWNER.pattern + rb"#[0-9]+#1")


Recording = Callable[[], AbstractAsyncContextManager[Record]]


@pytest.fixture
def record(server: Server, redis: Redis) -> Recording:
    return partial(recorded, server, redis)


def of_redisson(lock: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The fields of the lock without those that aiolock adds."""
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


@contextmanager
def about(name: str) -> Iterator[None]:
    """An error says which name it is about."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"name: {name!r}")
        raise


async def test_key_field_count_and_time_to_live(locks: LockClient, redis: Redis, redisson: Redisson) -> None:
    for name in NAMES:
        with about(name):
            await both_write_the_same(locks, redis, redisson, name)


async def both_write_the_same(locks: LockClient, redis: Redis, redisson: Redisson, name: str) -> None:
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


def visible(record: Record, *others: bytes) -> set[tuple[bytes, bytes]]:
    """The visible commands: messages, times to live, deletions and *others*; not those on the keys of one side only."""
    commands = record.of(b"subscribe", b"publish", b"pexpire", b"del", *others)
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


async def test_a_lock_that_is_handed_over_as_a_server_sees_it(
    record: Recording, locks: LockClient, other: LockClient, redisson: Redisson
) -> None:
    for name in NAMES:
        with about(name):
            async with record() as javas:
                await redisson_hands_over(redisson, name)
            async with record() as pythons:
                await tasks_hand_over(locks, other, name)
            assert visible(pythons) == visible(javas)
            assert {command for command, _ in visible(javas)} == {b"subscribe", b"publish", b"pexpire", b"del"}
            # There are two leases, and one command of each other kind.
            assert len(visible(javas)) == 5


async def next_message(pubsub: PubSub) -> tuple[bytes, bytes]:
    async with asyncio.timeout(10):
        while (message := await pubsub.get_message(timeout=1)) is None:
            pass
    return message["channel"], message["data"]


async def test_the_message_of_an_unlock_as_subscribers_get_it(
    locks: LockClient, redis: Redis, redisson: Redisson
) -> None:
    for name, channel in CHANNELS.items():
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


async def check_permit(redis: Redis, name: str) -> bytes:
    """Check the keys of a semaphore that has one of two permits left; return the id of the acquired permit."""
    permits = (name if "{" in name else f"{{{name}}}") + ":timeout"
    keys: list[Any] = await redis.keys()
    assert {key for key in keys if not key.startswith(OWN_KEYS)} == {name.encode(), permits.encode()}
    assert await redis.get(name) == b"1"
    assert (await redis.pttl(name), await redis.pttl(permits)) == (-1, -1)
    acquired: list[Any] = await redis.zrange(permits, 0, -1, withscores=True)
    [(permit, expires)] = acquired
    assert expires.is_integer()
    assert 50_000 < expires - 1000 * time() <= 60_000
    return bytes(permit)


async def test_keys_of_permits_and_when_they_expire(locks: LockClient, redis: Redis, redisson: Redisson) -> None:
    for name in NAMES:
        with about(name):
            await both_write_the_same_of_permits(locks, redis, redisson, name)


async def both_write_the_same_of_permits(locks: LockClient, redis: Redis, redisson: Redisson, name: str) -> None:
    assert await redisson.ask("trySetPermits", name, permits=2)
    permit = await redisson.ask("tryAcquire", name, lease=60)
    assert (await check_permit(redis, name)).hex() == permit
    await redisson.ask("release", name, permit=permit)
    semaphore = locks.semaphore(name)
    async with semaphore.hold(lease=60):
        assert PERMIT.fullmatch(await check_permit(redis, name))
    assert await redis.get(name) == b"2"
    await redis.delete(name)


async def redisson_hands_a_permit_over(redisson: Redisson, name: str) -> None:
    await redisson.ask("trySetPermits", name, permits=1)
    permit = await redisson.ask("tryAcquire", name, thread=1, lease=40)
    waiting = redisson.post("tryAcquire", name, thread=2, wait=60, lease=50)
    await until(lambda: redisson.parked(2), within=20)
    await redisson.ask("release", name, permit=permit)
    await redisson.ask("release", name, permit=(await waiting).value)


async def tasks_hand_a_permit_over(locks: LockClient, other: LockClient, name: str) -> None:
    await locks.semaphore(name).set_permits(1)
    lease = await locks.semaphore(name).acquire(lease=40)
    semaphore = other.semaphore(name, owner="patient")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(semaphore.acquire(lease=50))
        await until(lambda: waits_quietly(other, semaphore), within=20)
        await lease.release()
        await semaphore.release(await waiting)


async def test_a_permit_that_is_handed_over_as_a_server_sees_it(
    record: Recording, locks: LockClient, other: LockClient, redis: Redis, redisson: Redisson
) -> None:
    for name in NAMES:
        with about(name):
            async with record() as javas:
                await redisson_hands_a_permit_over(redisson, name)
            await redis.delete(name)
            async with record() as pythons:
                await tasks_hand_a_permit_over(locks, other, name)
            seen = visible(javas, b"incrby", b"decrby")
            assert visible(pythons, b"incrby", b"decrby") == seen
            assert {command for command, _ in seen} == {b"subscribe", b"publish", b"incrby", b"decrby"}
            # All messages are equal: one permit is available.
            assert len(seen) == 4


def of_owner(words: bytes) -> bytes:
    """The words of a command, with `O` in place of the holder of the lock."""
    return OWNER.sub(b"O", words)


async def check_read_write(redis: Redis, name: str, fields: dict[bytes, bytes], *holds: bytes) -> None:
    """Check the fields of a lock of one owner, the keys of its *holds*, and the times to live."""
    tag = name if "{" in name else f"{{{name}}}"
    there: list[Any] = await redis.keys()
    keys = [key for key in there if not key.startswith(OWN_KEYS)]
    lock: dict[Any, Any] = await redis.hgetall(name)
    assert {of_owner(key) for key in keys} == {name.encode(), *(tag.encode() + b":" + hold for hold in holds)}
    assert {of_owner(field): value for field, value in lock.items()} == fields
    for key in keys:
        assert 20_000 < await redis.pttl(key) <= 30_000


async def test_keys_fields_and_times_to_live_of_a_read_write_lock(
    locks: LockClient, redis: Redis, redisson: Redisson
) -> None:
    for name in NAMES:
        with about(name):
            await both_write_the_same_of_reads_and_writes(locks, redis, redisson, name)


async def both_write_the_same_of_reads_and_writes(
    locks: LockClient, redis: Redis, redisson: Redisson, name: str
) -> None:
    """The keys of the holds differ: Redisson has one for each time that an owner reads, aiolock one for each field."""
    writes, reads = {b"mode": b"write", b"O:write": b"1"}, {b"mode": b"read", b"O": b"1"}
    check = partial(check_read_write, redis, name)
    read, write = partial(redisson.ask, name=name, half="read"), partial(redisson.ask, name=name, half="write")
    await write("lock")
    await check(writes)
    await read("lock")
    await check(writes | {b"O": b"1"}, b"O:rwlock_timeout:1")
    await write("unlock")
    await check(reads, b"O:rwlock_timeout:1")
    await read("lock")
    await check(reads | {b"O": b"2"}, b"O:rwlock_timeout:1", b"O:rwlock_timeout:2")
    await read("unlock")
    await check(reads, b"O:rwlock_timeout:1")
    await read("unlock")
    lock = locks.read_write_lock(name)
    await lock.write.acquire()
    await check(writes, b"O:write:rwlock_timeout:1")
    await lock.read.acquire()
    await check(writes | {b"O": b"1"}, b"O:write:rwlock_timeout:1", b"O:rwlock_timeout:1")
    await lock.write.release()
    await check(reads, b"O:rwlock_timeout:1")
    await lock.read.acquire()
    await check(reads | {b"O": b"2"}, b"O:rwlock_timeout:1")
    await lock.read.release()
    await check(reads, b"O:rwlock_timeout:1")
    await lock.read.release()
    assert not await redis.exists(name)


async def redisson_writes_and_then_reads(redisson: Redisson, name: str) -> None:
    await redisson.ask("lock", name, half="write", thread=1, lease=40)
    waiting = redisson.post("lock", name, half="read", thread=2, lease=50)
    await until(lambda: redisson.parked(2), within=20)
    await redisson.ask("unlock", name, half="write", thread=1)
    await waiting
    await redisson.ask("unlock", name, half="read", thread=2)


async def tasks_write_and_then_read(locks: LockClient, other: LockClient, name: str) -> None:
    lease = await locks.read_write_lock(name).write.acquire(lease=40)
    lock = other.read_write_lock(name).read

    async def read() -> None:
        await (await lock.acquire(lease=50)).release()

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        await until(lambda: waits_quietly(other, lock), within=20)
        await lease.release()


def seen_of_read_write(record: Record) -> set[tuple[bytes, bytes]]:
    """The subscriptions, messages and times to live, without those of a writer's own key, which Redisson lacks."""
    commands = record.of(b"subscribe", b"publish", b"pexpire")
    shared = {(name, of_owner(words)) for name, words in commands if not words[1:].startswith(OWN_KEYS)}
    return {(name, words) for name, words in shared if b"O:write:rwlock_timeout:1" not in words}


async def test_a_writer_that_makes_way_for_a_reader_as_a_server_sees_it(
    record: Recording, locks: LockClient, other: LockClient, redisson: Redisson
) -> None:
    for name in NAMES:
        with about(name):
            async with record() as javas:
                await redisson_writes_and_then_reads(redisson, name)
            async with record() as pythons:
                await tasks_write_and_then_read(locks, other, name)
            seen = seen_of_read_write(javas)
            assert seen_of_read_write(pythons) == seen
            assert {command for command, _ in seen} == {b"subscribe", b"publish", b"pexpire"}
            # There are two messages, two leases, the key of the reader, and a subscription.
            assert len(seen) == 6


async def redisson_tells(redisson: Redisson, name: str) -> list[bytes]:
    """Let Redisson stop reading, stop writing, and read on after writing; return the messages of it."""
    for halves in (["read"], ["write"], ["write", "read"]):
        for call in ("lock", "unlock"):
            for half in halves:
                await redisson.ask(call, name, half=half)
    return [b"0", b"1", b"0"]


async def tasks_tell(lock: AsyncReadWriteLock) -> list[bytes]:
    """Let tasks do the same with our lock; return the messages."""
    for halves in ([lock.read], [lock.write], [lock.write, lock.read]):
        for half in halves:
            await half.acquire(lease=60)
        for half in halves:
            await half.release()
    return [b"0", b"1", b"1", b"0"]


async def each_side_tells_of_force(lock: AsyncReadWriteLock, redisson: Redisson, name: str) -> list[bytes]:
    for which, half in (("read", lock.read), ("write", lock.write)):
        await redisson.ask("lock", name, half=which)
        assert await half.force_release()
        await half.acquire(lease=60)
        assert await redisson.ask("forceUnlock", name, half=which)
        with pytest.raises(LeaseLostError):
            await half.release()
    return [b"1", b"0", b"1", b"1"]


async def test_the_messages_of_a_read_write_lock_as_subscribers_get_them(
    locks: LockClient, redis: Redis, redisson: Redisson
) -> None:
    """A message `0` wakes one waiting thread, a message `1` wakes all of them."""
    for name, channel in CHANNELS.items():
        lock = locks.read_write_lock(name)
        where = channel.replace("redisson_lock__channel", "redisson_rwlock").encode()
        async with redis.pubsub(ignore_subscribe_messages=True) as pubsub:
            await pubsub.psubscribe("*")
            told = await redisson_tells(redisson, name) + await tasks_tell(lock)
            told += await each_side_tells_of_force(lock, redisson, name)
            assert [await next_message(pubsub) for _ in told] == [(where, message) for message in told]


async def redisson_hands_a_counted_permit_over(redisson: Redisson, name: str) -> None:
    ask, post = (partial(call, name=name, kind="counted") for call in (redisson.ask, redisson.post))
    await ask("trySetPermits", permits=2)
    await ask("acquire", permits=2)
    waiting = post("acquire", thread=2)
    await until(lambda: redisson.parked(2), within=20)
    await ask("release", permits=1)
    await waiting
    assert await ask("addPermits", permits=3) is None


async def tasks_hand_a_counted_permit_over(locks: LockClient, other: LockClient, name: str) -> None:
    semaphore, its = locks.counting_semaphore(name), other.counting_semaphore(name)
    await semaphore.try_set_permits(2)
    await semaphore.acquire(2)
    async with asyncio.TaskGroup() as group:
        group.create_task(its.acquire())
        await until(lambda: waits_quietly(other, block_of(its)), within=20)
        await semaphore.release()
    await semaphore.add_permits(3)


async def test_counted_permits_as_a_server_sees_them(
    record: Recording, locks: LockClient, other: LockClient, redis: Redis, redisson: Redisson
) -> None:
    """Both sides write the same key, value and time to live, and send the same numbers of permits on one channel."""
    for name in NAMES:
        with about(name):
            seen = []
            for hand_over in (
                partial(redisson_hands_a_counted_permit_over, redisson, name),
                partial(tasks_hand_a_counted_permit_over, locks, other, name),
            ):
                async with record() as of_one_side:
                    await hand_over()
                assert (await redis.get(name), await redis.pttl(name)) == (b"3", -1)
                await redis.delete(name)
                seen.append(visible(of_one_side, b"decrby"))
            assert seen[0] == seen[1]
            assert {command for command, _ in seen[0]} == {b"subscribe", b"publish", b"decrby"}


async def redisson_counts_down(redisson: Redisson, name: str) -> None:
    ask, post = (partial(call, name=name, kind="latch") for call in (redisson.ask, redisson.post))
    assert await ask("trySetCount", count=2)
    waiting = post("await", thread=2)
    await until(lambda: redisson.parked(2), within=20)
    await ask("countDown")
    await ask("countDown")
    await waiting


async def tasks_count_down(locks: LockClient, other: LockClient, name: str) -> None:
    latch, its = locks.count_down_latch(name), other.count_down_latch(name)
    assert await latch.try_set_count(2)
    async with asyncio.TaskGroup() as group:
        group.create_task(its.wait())
        await all_parked(other, 1, within=20)
        await latch.count_down()
        await latch.count_down()


async def test_a_latch_as_a_server_sees_it(
    record: Recording, locks: LockClient, other: LockClient, redis: Redis, redisson: Redisson
) -> None:
    """The names have no braces: with them our channel is in the slot of the latch, and Redisson has another one."""
    for name in (name for name in NAMES if "{" not in name):
        with about(name):
            async with record() as javas:
                await redisson_counts_down(redisson, name)
            async with record() as pythons:
                await tasks_count_down(locks, other, name)
            assert visible(pythons) == visible(javas)
            assert {command for command, _ in visible(javas)} == {b"subscribe", b"publish", b"del"}
            for side in (redisson.ask("trySetCount", name, kind="latch", count=7), tasks_set(locks, name, 7)):
                assert await side
                assert (await redis.get(name), await redis.pttl(name)) == (b"7", -1)
                await redis.delete(name)


async def tasks_set(locks: LockClient, name: str, count: int) -> bool:
    return await locks.count_down_latch(name).try_set_count(count)
