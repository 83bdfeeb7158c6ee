"""The scripts of a read-write lock: turns, times, messages, and late commands."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from aiolock._keys import LockKeys
from aiolock._scripts import READ
from aiolock._scripts.replies import EXPIRED, FORCED, FREED, GRANTED, LOST, REFUSED
from tests.lua import read_write as states
from tests.lua.read_write import JAVA, KEEPS, LEASE, LOCK, ME, MINE, OTHER, READS, THIRD, TOKENS, Table, record

# The script of a release looks at fewer readers.
MANY = 40
# Milliseconds for the next owner to follow others, as in acquire.lua.
SOON = 100


@pytest.fixture
def table(redis: Redis) -> Table:
    return Table(redis)


@pytest.fixture
async def channel(table: Table) -> AsyncIterator[PubSub]:
    """Subscribed to the channel where Redisson listens."""
    async with table.redis.pubsub() as pubsub:
        await pubsub.subscribe("redisson_rwlock:{orders}")
        assert (await pubsub.get_message(timeout=5))["type"] == "subscribe"
        yield pubsub


async def messages(table: Table, channel: PubSub) -> list[bytes]:
    """All messages so far; we publish one ourselves that marks the end."""
    await table.redis.publish(READS.channel, "end")
    seen: list[bytes] = []
    while seen[-1:] != [b"end"]:
        message: dict[str, Any] = await channel.get_message(timeout=5)
        seen.append(message["data"])
    return seen[:-1]


# Turns.


async def test_a_reader_that_a_writer_keeps_out_lets_no_other_writer_in(table: Table) -> None:
    await states.others_write(table)
    assert await table.acquire("read") == [REFUSED, 0, KEEPS / 2, 1]
    await table.release("write", OTHER)
    status, _, again = await table.acquire("write", OTHER, id="other:w2")
    assert status == REFUSED
    assert 0 < again <= KEEPS
    assert (await table.acquire("read", THIRD))[0] == GRANTED, "it is the turn of all readers"
    assert (await table.look()).turn == f"read {MINE['read']}"
    assert (await table.acquire("read"))[0] == GRANTED
    assert (await table.look()).turn is None
    assert await table.acquire("write", OTHER, id="other:w2") == [REFUSED, 0, KEEPS / 2, 1]


async def test_a_reader_that_does_not_follow_others_loses_its_turn_soon(table: Table) -> None:
    await states.reader_is_next(table)
    refused = await table.acquire("write")
    assert 0 < refused[2] <= SOON, "readers may come in meanwhile"
    assert (await table.acquire("read", OTHER))[0] == GRANTED
    assert (await table.look()).turn == f"read {THIRD}.read"
    await table.age(SOON)
    assert (await table.acquire("write"))[3:] == [1]
    assert (await table.acquire("read", THIRD))[0] == REFUSED


async def test_a_clock_that_was_set_back_keeps_no_dead_waiter_next(table: Table) -> None:
    await states.writer_is_next(table)
    await table.release("read", OTHER)
    turn = f"turn {(await table.look()).turn}"
    await table.redis.zincrby(TOKENS, -3_600_000, turn)
    assert await table.acquire("read", waits=False) == [REFUSED, 0, KEEPS]
    await table.redis.zincrby(TOKENS, KEEPS, turn)
    assert (await table.acquire("read", waits=False))[0] == GRANTED


async def test_a_writer_that_reads_leaves_the_next_ones_their_time(table: Table) -> None:
    await states.i_write(table)
    await table.acquire("read", THIRD)
    await table.acquire("read")
    await table.age(SOON)
    await table.release("write")
    assert (await table.acquire("write", OTHER))[0] == REFUSED
    assert (await table.look()).turn == f"read {THIRD}.read"


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_an_acquire_that_does_not_wait_takes_no_turn(table: Table, kind: str) -> None:
    await (states.others_write if kind == "read" else states.others_read)(table)
    status, _, again = await table.acquire(kind, waits=False)
    assert status == REFUSED
    assert again > KEEPS, "the answer must have the rest of the others' lease"
    assert (await table.look()).turn is None


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_waiter_that_gives_up_ends_its_turn_and_wakes_the_others(
    table: Table, channel: PubSub, kind: str
) -> None:
    await (states.i_wait_to_read if kind == "read" else states.i_wait_to_write)(table)
    assert (await table.look()).turn == f"{kind} {MINE[kind]}"
    for _ in range(2):
        assert (await table.release(kind, step=2))[0] == LOST
    assert (await table.look()).turn is None
    assert await messages(table, channel) == [b"1"]


# Times.


async def test_the_lock_lives_as_long_as_the_longest_of_its_holds(table: Table) -> None:
    await table.acquire("read", ms=5_000)
    await table.acquire("read", THIRD, ms=10_000)
    await table.acquire("read", OTHER)
    assert LEASE - 10_000 < (await table.look()).lock_ttl <= LEASE
    await table.release("read", OTHER)
    assert 5_000 < (await table.look()).lock_ttl <= 10_000
    await table.release("read")
    assert 5_000 < (await table.look()).lock_ttl <= 10_000
    await table.release("read", THIRD)
    assert (await table.look()).lock is None


async def test_remains_of_redisson_go_with_the_last_reader(table: Table, channel: PubSub) -> None:
    """A thread of Redisson may have written for long, and then read for a moment."""
    await states.redisson_reads(table)
    await table.acquire("read", ms=1_000)
    for number in (1, 2):
        await table.redis.delete(f"{{{LOCK}}}:{JAVA}:rwlock_timeout:{number}")
    await table.release("read")
    assert (await table.look()).lock is None
    assert await messages(table, channel) == [b"0"]


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_nested_leases_neither_add_up_nor_shorten(table: Table, kind: str) -> None:
    await table.acquire(kind)
    await table.acquire(kind, step=2, holds=2, ms=1_000)
    assert LEASE - 10_000 < (await table.look()).lock_ttl <= LEASE
    await table.acquire(kind, step=3, holds=3, ms=2 * LEASE)
    sight = await table.look()
    assert LEASE < sight.lock_ttl <= 2 * LEASE
    assert LEASE < sight.records[record(ME, kind)][1] <= 2 * LEASE


async def test_a_writer_of_redisson_has_no_record_and_counts_as_long_as_the_lock(table: Table) -> None:
    """The writer counts so also while it reads; the records of its reads are no hashes."""
    await table.redis.hset(LOCK, mapping={"mode": "write", f"{JAVA}:write": "1", JAVA: "1"})
    await table.redis.pexpire(LOCK, LEASE)
    await table.redis.set(f"{{{LOCK}}}:{JAVA}:rwlock_timeout:1", "1", px=LEASE)
    for kind in ("read", "write"):
        assert (await table.acquire(kind))[0] == REFUSED
    await table.force("read")
    sight = await table.look()
    assert sight.holds == "J1"
    assert LEASE - 10_000 < sight.lock_ttl <= LEASE


async def test_one_of_many_readers_leaves_without_a_look_at_the_others_and_no_dead_one_blocks_a_writer(
    table: Table,
) -> None:
    await table.acquire("read", OTHER)
    for number in range(MANY):
        await table.acquire("read", f"gone:{number}", ms=1_000)
    await table.age(1_000)
    await table.acquire("read")
    await table.release("read")
    assert len((await table.look()).fields) == 1 + 1 + MANY, "the release looked at the other readers"
    await table.release("read", OTHER)
    assert (await table.acquire("write"))[0] == GRANTED
    assert (await table.look()).holds == "M1"


async def test_a_hold_of_redisson_counts_for_its_time(table: Table) -> None:
    """A thread has a record for each hold."""
    await states.redisson_reads(table)
    await table.redis.pexpire(f"{{{LOCK}}}:{JAVA}:rwlock_timeout:1", 1_000)
    await table.redis.pexpire(f"{{{LOCK}}}:{JAVA}:rwlock_timeout:2", 20_000)
    await table.acquire("read")
    await table.release("read")
    sight = await table.look()
    assert sight.holds == "j2"
    assert 10_000 < sight.lock_ttl <= 20_000


async def test_a_writer_is_not_kept_out_by_a_lock_that_outlives_its_readers(table: Table) -> None:
    """Redisson leaves the lock so when one of its writers reads on."""
    await table.acquire("read", OTHER, ms=5_000)
    await table.acquire("read", THIRD, ms=10_000)
    await table.redis.pexpire(LOCK, 600_000)
    assert await table.acquire("write") == [REFUSED, 0, KEEPS / 2, 1]
    assert 5_000 < (await table.look()).lock_ttl <= 10_000
    await table.redis.pexpire(LOCK, 600_000)
    await table.age(10_000)
    assert (await table.acquire("write"))[0] == GRANTED
    assert (await table.look()).holds == "M1"


# Messages.


async def test_one_is_woken_by_the_last_reader_and_all_by_a_writer(table: Table, channel: PubSub) -> None:
    await states.we_read(table)
    assert await table.release("read", OTHER) == [GRANTED, 0, 0]
    assert await messages(table, channel) == []
    assert await table.release("read") == [GRANTED, 1, 0]
    assert await table.release("read") == [GRANTED, 0, 0]
    assert await messages(table, channel) == [b"0"]
    await table.acquire("write")
    assert await table.release("write") == [GRANTED, 1, 0]
    assert await messages(table, channel) == [b"1"]


async def test_readers_are_woken_when_a_writer_goes_on_reading(table: Table, channel: PubSub) -> None:
    await states.i_write_and_read(table)
    await table.release("write")
    assert await messages(table, channel) == [b"1"]
    assert (await table.acquire("read", OTHER))[0] == GRANTED


async def test_the_reader_that_is_next_wakes_the_others(table: Table, channel: PubSub) -> None:
    """A writer of Redisson sends no message when it reads on, nor when its time is over."""
    await states.redisson_writes(table)
    await table.acquire("read")
    await table.redis.hset(LOCK, mapping={"mode": "read", JAVA: "1"})
    await table.redis.hdel(LOCK, f"{JAVA}:write")
    assert (await table.acquire("read"))[0] == GRANTED
    assert await messages(table, channel) == [b"1"]
    assert (await table.acquire("read", OTHER))[0] == GRANTED
    assert (await table.acquire("read"))[0] == GRANTED
    assert await messages(table, channel) == []


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_all_are_woken_by_force(table: Table, channel: PubSub, kind: str) -> None:
    await states.i_write_and_read(table)
    await table.force(kind)
    assert await messages(table, channel) == [b"1"]
    assert (await table.look()).holds == ("M1" if kind == "read" else "m1")
    assert (await table.renew(kind))[:2] == [LOST, FORCED]
    assert (await table.renew("write" if kind == "read" else "read"))[0] == GRANTED


async def test_a_late_end_of_a_hold_that_expired_wakes_a_waiter(table: Table, channel: PubSub) -> None:
    await states.write_expired_and_i_read(table)
    assert (await table.release("write"))[:2] == [LOST, EXPIRED]
    assert await messages(table, channel) == [b"1"]
    assert (await table.look()).holds == "m1"


@pytest.mark.parametrize("how", ["renewed", "asked for"])
async def test_the_discovery_of_an_expired_writer_that_reads_on_wakes_the_waiters(
    table: Table, channel: PubSub, how: str
) -> None:
    await states.write_expired_and_i_read(table)
    for number in (1, 2):
        await (table.renew("read", number=number) if how == "renewed" else table.acquire("read", OTHER, step=number))
    assert await messages(table, channel) == [b"1"]


# Tokens, and the memory of ends.


async def test_ends_that_no_command_can_be_late_for_are_forgotten(table: Table) -> None:
    await states.read_freed(table)
    await table.acquire("read", id="me:r3")
    await table.release("read", id="me:r3", forget=MINE["read"])
    assert (await table.look()).tokens.keys() == {b"token", b"me:r3"}
    assert (await table.look()).tokens[b"me:r3"] % 10 == FREED


async def test_a_question_names_as_many_holds_as_it_may(table: Table) -> None:
    await states.we_read(table)
    assert len(await table.inspect(1)) == 1 + 3
    named = await table.inspect()
    assert {named[1], named[4]} == {ME.encode(), OTHER.encode()}
    assert [named[2], named[5]] == [1, 1]
    assert LEASE - 10_000 < named[3] <= LEASE


async def test_names_in_braces_keep_all_keys_in_their_slot(redis: Redis) -> None:
    async def every_key() -> set[str]:
        return {cast(bytes, key).decode() for key in await redis.keys("*")}

    async def keys(name: str) -> set[str]:
        reads, _ = LockKeys.of_read_write(name, "")
        assert reads.record is not None
        every = (*reads.all, f"{reads.record[0]}{ME}{reads.record[1]}")
        how = (ME, "me:r1", "1", "1", str(LEASE), "3600000", "60000", "0", reads.channel, "PUBLISH")
        assert (await redis.eval(READ.acquire.source, len(every), *every, *how))[0] == GRANTED
        force = ("op:1", "3600000", "60000", reads.channel, "PUBLISH")
        found = await every_key()
        assert (await redis.eval(READ.force_release.source, 2, *reads.all, *force))[:2] == [GRANTED, 1]
        assert await every_key() == {reads.tokens}
        await redis.flushdb()
        return found

    assert await keys("a") == {"a", "aiolock_token:{a}", f"{{a}}:{ME}:rwlock_timeout:1"}
    assert await keys("{a}:b") == {"{a}:b", "aiolock_token::{a}:b", f"{{a}}:b:{ME}:rwlock_timeout:1"}


async def test_a_token_grows_by_one_when_the_clock_has_stepped_back(table: Table) -> None:
    future = (await table.redis.time())[0] * 1_000_000 + 3_600_000_000
    # The next reader is granted beside this one, by another branch of the script.
    await table.acquire("read", OTHER)
    await table.redis.zadd(TOKENS, {"token": future})
    assert (await table.acquire("read", THIRD))[:2] == [GRANTED, future + 1]
    await table.redis.delete(LOCK)
    assert (await table.acquire("write"))[:2] == [GRANTED, future + 2]
