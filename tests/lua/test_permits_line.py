"""The line of clients that wait for permits, by the scripts: permits are kept for a client, or it is passed over."""

import pytest
from redis.asyncio import Redis

from aiolock._scripts.replies import GRANTED, REFUSED
from tests.lua.permits import COUNT, HEARTBEAT, KEYS, LEASE, PERMITS, SILENCE, TOKENS, Reply, Table

HOLDER, WIDE, NARROW, NEXT = "h:1#1", "w:1#1", "n:1#1", "o:1#1"
MOST_OVERTAKEN, MOST_PASSED = 16, 64


@pytest.fixture
def table(redis: Redis) -> Table:
    return Table(redis)


async def is_asked(table: Table) -> bool:
    """Whether the first in line has to give a sign of life."""
    return await table.redis.zscore(TOKENS, "next") is not None


async def narrow(table: Table, id: str = NARROW, *, waits: bool = True, arrived: int = 0) -> Reply:
    return await table.acquire(id, number=1, waits=waits, arrived=arrived)


async def asks_seldom(table: Table) -> None:
    """The waiter for three permits is refused, and need not give a sign of life."""
    status, _, again, stands = await table.acquire(WIDE, number=3)
    assert (status, stands) == (REFUSED, 1)
    assert again > LEASE - 10_000


async def a_wide_waiter(table: Table) -> None:
    """One of three permits is held, and a client waits for all three."""
    await narrow(table, HOLDER)
    await asks_seldom(table)


async def test_a_waiter_for_one_permit_is_overtaken_by_a_few_acquires_of_one(table: Table) -> None:
    """A client may hand a permit from task to task, but not for ever."""
    await table.acquire(HOLDER, number=3)
    await narrow(table)
    await table.release(HOLDER, number=3)
    await table.acquire(WIDE)
    for number in range(MOST_OVERTAKEN):
        assert (await narrow(table, f"b:1#{number}"))[0] == GRANTED
        await table.release(f"b:1#{number}", number=1)
    assert (await narrow(table, "b:1#last"))[0] == REFUSED
    assert (await narrow(table))[0] == GRANTED
    assert (await table.look()).tokens.keys() >= {b"turn 1 b:1#last"}
    assert not {b"next", b"overtaken"} & (await table.look()).tokens.keys()


async def test_the_first_in_line_is_asked_for_a_sign_of_life_when_it_keeps_others_out(table: Table) -> None:
    await a_wide_waiter(table)
    await asks_seldom(table)
    async with table.redis.pubsub() as listener:
        await listener.subscribe(KEYS.channel)
        await listener.get_message(timeout=5)
        status, _, again, _ = await narrow(table)
        assert (status, again) == (REFUSED, SILENCE)
        told = await listener.get_message(timeout=5)
        assert told is not None
        assert told["data"] == b"2"
    for _ in range(3):
        await table.age(SILENCE - 100)
        assert (await table.acquire(WIDE, number=3))[::2] == [REFUSED, HEARTBEAT]
        assert (await narrow(table))[0] == REFUSED
    assert (await table.look()).line == [WIDE, NARROW]


async def test_a_place_in_the_middle_of_the_century_is_in_the_line(table: Table) -> None:
    await a_wide_waiter(table)
    # This is the year 2049.
    await table.acquire(NEXT, number=3, arrived=2_500_000_000_000_000)
    await table.release(WIDE, number=3)
    assert (await narrow(table))[0] == REFUSED


async def test_the_later_one_stands_in_line_the_later_it_asks_again(table: Table) -> None:
    await a_wide_waiter(table)
    again = [(await narrow(table, f"c{number}:1#1"))[2] for number in range(3)]
    # Some of the silence may have passed before a script runs.
    assert 0 < again[0] <= SILENCE < again[1] <= 2 * SILENCE < again[2] <= 3 * SILENCE


async def test_a_first_in_line_that_keeps_nobody_out_any_more_need_not_ask(table: Table) -> None:
    await a_wide_waiter(table)
    await narrow(table)
    assert await is_asked(table)
    await table.redis.set(COUNT, "0")
    await table.redis.zadd(PERMITS, {bytes(range(16)): 9e12, bytes(range(1, 17)): 9e12})
    await asks_seldom(table)
    assert not await is_asked(table)


async def test_a_waiter_that_gives_up_leaves_the_line_and_tells_the_others(table: Table) -> None:
    await a_wide_waiter(table)
    await narrow(table)
    await table.release(WIDE, number=3)
    assert (await table.look()).line == [NARROW]
    assert not await is_asked(table)
    assert (await narrow(table))[0] == GRANTED
    assert (await table.acquire(WIDE, number=3))[0] != GRANTED
    # A late copy of an acquisition that has ended gets no place.
    assert (await table.look()).line == []


async def test_permits_that_are_put_back_by_force_leave_no_line(table: Table) -> None:
    await a_wide_waiter(table)
    await narrow(table)
    await table.force()
    assert (await table.look()).line == []
    assert not await is_asked(table)


async def test_a_clock_that_was_set_back_keeps_no_permits_for_a_dead_waiter(table: Table) -> None:
    await a_wide_waiter(table)
    _, arrived, *_ = await narrow(table)
    assert await is_asked(table)
    await table.redis.zincrby(TOKENS, 3_600_000, "next")
    assert (await narrow(table, arrived=arrived))[0] == REFUSED
    await table.redis.zincrby(TOKENS, -SILENCE, "next")
    assert (await narrow(table, arrived=arrived))[0] == GRANTED


async def test_nobody_overtakes_the_line_after_the_clock_was_set_back(table: Table) -> None:
    # Nothing is available, so that the first in line need not ask in time.
    await table.acquire(HOLDER, number=3)
    await asks_seldom(table)
    await table.redis.zincrby(TOKENS, 3_600_000_000, f"turn 3 {WIDE}")
    for id in (NARROW, NEXT):
        assert (await narrow(table, id))[0] == REFUSED
    assert (await table.look()).line == [WIDE, NARROW, NEXT]
