"""The line of clients that wait for permits, by the scripts: permits are kept for a client, or it is passed over."""

import pytest
from redis.asyncio import Redis

from aiolock._scripts.replies import GRANTED, REFUSED
from tests.lua.permits import COUNT, HEARTBEAT, KEYS, LEASE, MINE, PERMITS, SILENCE, THEIRS, TOKENS, Reply, Table

HOLDER, WIDE, NARROW, NEXT = "h:1#1", "w:1#1", "n:1#1", "o:1#1"
MOST_OVERTAKEN, MOST_PASSED = 16, 64
LINE = -7_000_000_000_000_000


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


async def stands_since(table: Table, waiter: str, number: int) -> float:
    """The time of *waiter*'s arrival in the line, by its score there."""
    score = await table.redis.zscore(TOKENS, f"turn {number} {waiter}")
    assert score is not None
    return score - LINE


async def a_wide_waiter(table: Table) -> None:
    """One of three permits is held, and a client waits for all three."""
    await narrow(table, HOLDER)
    await asks_seldom(table)


async def test_waiters_stand_in_line_in_the_order_of_arrival(table: Table) -> None:
    await table.acquire(HOLDER, number=3)
    for waiter in (NARROW, WIDE, NEXT, NARROW):  # NARROW asks again, and keeps its place.
        assert (await table.acquire(waiter, number=1 if waiter == NARROW else 2))[::3] == [REFUSED, 1]
    assert (await table.look()).line == [NARROW, WIDE, NEXT]
    await table.release(HOLDER, number=3)
    assert (await table.acquire(WIDE))[0] == GRANTED  # One permit more is kept for the first.
    assert (await table.look()).line == [NARROW, NEXT]
    assert (await table.acquire(NEXT))[0] == REFUSED
    assert (await narrow(table))[0] == GRANTED
    assert (await table.look()).line == [NEXT]


async def test_one_who_wants_one_is_not_overtaken_by_those_who_want_two(table: Table) -> None:
    """Two clients that want both permits take turns, and ask again at once."""
    await table.resize(permits=2)
    await table.acquire(THEIRS)
    assert (await table.acquire(MINE))[0] == REFUSED
    _, since, *_ = await narrow(table)
    await table.release(THEIRS)
    assert (await table.acquire("other:7#2"))[0] == REFUSED
    assert (await narrow(table, arrived=since))[0] == REFUSED  # The waiter gives the sign of life.
    assert (await table.acquire(MINE))[0] == GRANTED
    await table.release(MINE)
    assert (await table.acquire("other:7#2"))[0] == REFUSED
    assert (await narrow(table))[0] == GRANTED


async def test_permits_beyond_those_of_the_first_in_line_go_to_others(table: Table) -> None:
    await table.acquire(HOLDER, number=3)
    await table.acquire(WIDE)
    await table.release(HOLDER, number=3)
    assert (await narrow(table))[0] == GRANTED
    assert (await narrow(table, NEXT))[0] == REFUSED
    assert (await table.acquire(WIDE))[0] == GRANTED


async def test_one_who_wants_one_is_overtaken_by_a_few_who_want_one(table: Table) -> None:
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
    await asks_seldom(table)  # No other client wants a permit.
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


@pytest.mark.parametrize("waits", [True, False])
async def test_the_first_in_line_is_passed_over_when_it_gives_no_sign_of_life(table: Table, waits: bool) -> None:
    """A process that died must not keep others out, also if these only try, and do not wait."""
    await a_wide_waiter(table)
    assert (await narrow(table, waits=waits))[0] == REFUSED
    await table.age(SILENCE)
    assert (await narrow(table, waits=waits))[0] == GRANTED
    assert (await table.look()).line == []


@pytest.mark.parametrize("dead", [1, 2, 12])
async def test_any_number_of_dead_waiters_costs_one_silence(table: Table, dead: int) -> None:
    await a_wide_waiter(table)
    for number in range(dead - 1):
        await table.acquire(f"d{number}:1#1", number=3)
    waited, reply = 0, await narrow(table)
    while reply[0] == REFUSED:
        waited += reply[2]
        await table.age(reply[2])
        reply = await narrow(table, arrived=reply[1])
    assert waited == SILENCE


async def test_those_that_answer_stand_in_line_as_they_arrived(table: Table) -> None:
    """Two living clients stand behind a dead one, and the later of the two hears the message first."""
    await a_wide_waiter(table)
    arrived = [(await table.acquire(waiter, number=3))[1] for waiter in (NEXT, MINE)]
    assert arrived == [await stands_since(table, waiter, 3) for waiter in (NEXT, MINE)]
    assert (await narrow(table))[0] == REFUSED
    assert (await table.look()).line == [WIDE, NARROW]
    for waiter, since in ((MINE, arrived[1]), (NEXT, arrived[0])):
        assert (await table.acquire(waiter, number=3, arrived=since))[:2] == [REFUSED, since]
    assert (await table.look()).line == [WIDE, NEXT, MINE, NARROW]
    await table.age(SILENCE)
    await table.acquire(NEXT, number=3, arrived=arrived[0])
    assert (await table.look()).line == [NEXT, MINE, NARROW]


async def test_one_that_was_passed_over_comes_back_to_its_place(table: Table) -> None:
    await narrow(table, HOLDER)
    _, since, *_ = await table.acquire(WIDE, number=3)
    await narrow(table, waits=False)
    await table.age(SILENCE)
    await table.acquire(NEXT, number=3)
    assert (await table.look()).line == [NEXT]
    await table.acquire(WIDE, number=3, arrived=since)
    assert (await table.look()).line == [WIDE, NEXT]


async def test_a_place_in_the_middle_of_the_century_is_in_the_line(table: Table) -> None:
    await a_wide_waiter(table)
    await table.acquire(NEXT, number=3, arrived=2_500_000_000_000_000)  # The year 2049.
    await table.release(WIDE, number=3)
    assert (await narrow(table))[0] == REFUSED


async def test_nothing_is_kept_for_waiters_that_were_passed_over(table: Table) -> None:
    """One command passes over as many waiters as it may."""
    await narrow(table, HOLDER)
    for number in range(MOST_PASSED):
        await table.acquire(f"w{number}:1#1", number=3)
    await table.resize(permits=2)
    assert (await narrow(table))[0] == GRANTED


async def test_the_later_one_stands_in_line_the_later_it_asks_again(table: Table) -> None:
    await a_wide_waiter(table)
    again = [(await narrow(table, f"c{number}:1#1"))[2] for number in range(3)]
    # Some of the silence may have passed before a script runs.
    assert 0 < again[0] <= SILENCE < again[1] <= 2 * SILENCE < again[2] <= 3 * SILENCE


async def test_a_first_in_line_that_keeps_nobody_out_any_more_need_not_ask(table: Table) -> None:
    await a_wide_waiter(table)
    await narrow(table)
    assert await is_asked(table)
    await table.redis.set(COUNT, "0")  # Redisson has taken the other permits.
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
    assert (await table.look()).line == []  # The acquisition has ended: a late copy of it gets no place.


async def test_an_acquire_of_more_than_there_are_stands_in_no_line(table: Table) -> None:
    await narrow(table, HOLDER)
    await table.acquire(WIDE, number=4)
    assert (await table.look()).line == []
    await table.acquire(WIDE, number=3)
    await table.resize(permits=2)
    assert (await narrow(table))[0] == GRANTED  # The first in line wants more than the total now.
    assert (await table.look()).line == []


async def test_an_acquire_that_does_not_wait_stands_in_no_line(table: Table) -> None:
    await narrow(table, HOLDER)
    await table.acquire(WIDE, number=3, waits=False)
    assert (await table.look()).line == []
    assert (await narrow(table))[0] == GRANTED


async def test_permits_that_are_put_back_by_force_leave_no_line(table: Table) -> None:
    await a_wide_waiter(table)
    await narrow(table)
    await table.force()
    assert (await table.look()).line == []
    assert not await is_asked(table)
