"""The line of a fair lock, by its scripts: who stands in line, who is next, and that a second copy changes nothing."""

import pytest

from aiolock._scripts.replies import EXPIRED, GRANTED, LOST, REFUSED, STALE
from tests.lua.table import KEYS, LEASE, OTHER, THEIRS, FairTable, Table

FIRST, SECOND, OURS = "b:1", "c:1", "b:2"  # Acquisitions of the clients b and c.
PLAIN = "p:1"  # The acquisition of a client that wants the plain lock.
SILENCE = 700


async def a_line(fair: FairTable, *ids: str) -> dict[str, int]:
    """Others hold the lock, and these acquisitions wait; return the arrival of each."""
    await fair.acquire(THEIRS, owner=OTHER)
    return {id: (await fair.wait(id, 0))[1] for id in ids}


async def test_a_refusal_gives_a_place_and_says_who_leads(fair: FairTable) -> None:
    await fair.acquire(THEIRS, owner=OTHER)
    status, arrived, soon, keeps, leads = await fair.wait(FIRST, 0)
    assert (status, keeps, leads) == (REFUSED, 1, 1)
    assert 0 < soon <= 250
    assert (await fair.wait(SECOND, 0))[4] == 0
    assert (await fair.wait(OURS, 0))[4] == 1
    assert await fair.line() == [FIRST, SECOND, OURS]
    assert arrived <= (await fair.wait(FIRST, arrived))[1]


async def test_asking_twice_is_one_place(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, SECOND)
    for again in (0, arrived[FIRST]):
        await fair.wait(FIRST, again)
    assert await fair.line() == [FIRST, SECOND]


async def test_only_the_next_in_line_is_granted(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, SECOND)
    await fair.release(THEIRS, owner=OTHER)
    assert (await fair.wait(SECOND, arrived[SECOND]))[0] == REFUSED
    assert (await fair.acquire("d:1", owner="d:1"))[0] == REFUSED, "a newcomer"
    granted = await fair.wait(FIRST, arrived[FIRST])
    assert (granted[0], granted[4]) == (GRANTED, 0)
    assert await fair.line() == [SECOND]
    assert (await fair.wait(FIRST, arrived[FIRST]))[:2] == granted[:2]


async def test_a_grant_says_whether_the_next_is_of_the_same_client(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, OURS)
    await fair.release(THEIRS, owner=OTHER)
    assert (await fair.wait(FIRST, arrived[FIRST]))[4] == 1


async def test_a_waiter_that_gave_up_leaves_no_place_and_gets_none_by_a_late_try(fair: FairTable) -> None:
    await a_line(fair, FIRST, SECOND)
    for _ in range(2):
        assert (await fair.release(FIRST, owner=FIRST, step=2))[0] == LOST
    assert await fair.line() == [SECOND]
    assert await fair.wait(FIRST, 0) == [STALE, 0, 0]
    assert await fair.line() == [SECOND]


async def test_a_silent_client_is_passed_over_and_comes_back_to_its_place(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, SECOND, "d:1")
    await fair.release(THEIRS, owner=OTHER)
    await silence(fair, "b")
    assert (await fair.wait(SECOND, arrived[SECOND]))[0] == GRANTED
    assert await fair.line() == ["d:1"]
    await fair.wait(FIRST, arrived[FIRST])
    assert await fair.line() == [FIRST, "d:1"]


async def silence(fair: FairTable, client: str) -> None:
    """The *client* has given no sign of life for long."""
    await fair.redis.zincrby(KEYS.tokens, -SILENCE, f"alive {client}")


async def test_a_waiter_that_asks_again_is_the_first_of_its_client(fair: FairTable) -> None:
    """Its client has given up the place before; if that place stayed first, all others would wait for it."""
    arrived = await a_line(fair, FIRST, OURS)
    await fair.release(THEIRS, owner=OTHER)
    assert (await fair.wait(OURS, arrived[OURS]))[0] == GRANTED
    assert await fair.line() == []


async def test_a_forgotten_line_comes_back_in_order(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, SECOND)
    await fair.redis.flushall()
    await fair.acquire(THEIRS, owner=OTHER)
    for id in (SECOND, FIRST):
        await fair.wait(id, arrived[id])
    assert await fair.line() == [FIRST, SECOND]


async def test_many_dead_are_passed_over_by_more_than_one_command(fair: FairTable) -> None:
    await a_line(fair, *(f"b:{number}" for number in range(1, 101)), SECOND)
    await fair.release(THEIRS, owner=OTHER)
    await silence(fair, "b")
    status, arrived, soon, *_ = await fair.wait(SECOND, 0)
    assert (status, soon) == (REFUSED, 0)
    assert len(await fair.line()) == 101 - 64
    assert (await fair.wait(SECOND, arrived))[0] == GRANTED


async def test_a_line_leaves_nothing_when_it_is_over(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST)
    await fair.release(THEIRS, owner=OTHER)
    await fair.wait(FIRST, arrived[FIRST])
    await fair.release(FIRST, owner=FIRST)
    members = (await fair.look()).tokens
    assert members.keys() == {b"token", THEIRS.encode(), FIRST.encode()}


@pytest.mark.parametrize("first", [FIRST, None], ids=["in line", "nobody"])
async def test_one_message_to_the_next_waiter(fair: FairTable, first: str | None) -> None:
    await a_line(fair, *([first] if first else []))
    async with fair.redis.pubsub() as heard:
        await heard.psubscribe("*")
        assert (await heard.get_message(timeout=5))["type"] == "psubscribe"
        assert await fair.release(THEIRS, owner=OTHER) == [GRANTED, 0 if first else 1, 0]
        message = await heard.get_message(timeout=5)
        assert message["channel"].decode() == (f"{KEYS.channel}:b" if first else KEYS.channel)
        assert message["data"] == b"0"
        await fair.redis.publish("end", "")
        assert (await heard.get_message(timeout=5))["channel"] == b"end"


async def test_a_waiter_that_leaves_while_it_is_next_tells_the_one_behind(fair: FairTable) -> None:
    await a_line(fair, FIRST, SECOND)
    await fair.release(THEIRS, owner=OTHER)
    async with fair.redis.pubsub() as heard:
        await heard.subscribe(f"{KEYS.channel}:c")
        assert (await heard.get_message(timeout=5))["type"] == "subscribe"
        assert await fair.release(FIRST, owner=FIRST, step=2) == [LOST, EXPIRED, 0]
        assert (await heard.get_message(timeout=5))["data"] == b"0"


async def test_tickets_and_tokens_do_not_meet(fair: FairTable) -> None:
    await a_line(fair, FIRST)
    before = int((await fair.look()).tokens[b"token"])
    await fair.redis.delete(KEYS.lock)
    status, token, left, *_ = await fair.wait(FIRST, 1)
    assert (status, left) == (GRANTED, LEASE)
    assert token > before


async def plain_waits(fair: FairTable) -> Table:
    """Others hold the fair lock, FIRST stands in line, and PLAIN was refused the plain lock."""
    await a_line(fair, FIRST)
    plain = Table(fair.redis)
    assert (await plain.acquire(PLAIN, owner=PLAIN))[0] == REFUSED
    return plain


async def test_a_release_tells_waiters_for_the_plain_lock_as_well(fair: FairTable) -> None:
    await plain_waits(fair)
    async with fair.redis.pubsub() as heard:
        await heard.subscribe(KEYS.channel, f"{KEYS.channel}:b")
        for _ in range(2):
            assert (await heard.get_message(timeout=5))["type"] == "subscribe"
        await fair.release(THEIRS, owner=OTHER)
        told = {(await heard.get_message(timeout=5))["channel"].decode() for _ in range(2)}
        assert told == {KEYS.channel, f"{KEYS.channel}:b"}


async def test_the_line_goes_before_the_plain_lock_until_that_is_due(fair: FairTable) -> None:
    plain = await plain_waits(fair)
    await fair.release(THEIRS, owner=OTHER)
    status, _, soon = await plain.acquire(PLAIN, owner=PLAIN)
    assert status == REFUSED
    assert 0 < soon <= 1000
    await fair.redis.zincrby(KEYS.tokens, -soon, "plain")
    assert (await plain.acquire(PLAIN, owner=PLAIN))[0] == GRANTED, "although FIRST never came"


async def test_the_turn_of_the_plain_ones_is_over_when_one_of_them_has_the_lock(fair: FairTable) -> None:
    plain = await plain_waits(fair)
    await fair.redis.zincrby(KEYS.tokens, -1000, "plain")
    await fair.release(THEIRS, owner=OTHER)
    assert await fair.redis.zscore(KEYS.tokens, "plain's turn")
    assert (await plain.acquire(PLAIN, owner=PLAIN))[0] == GRANTED
    assert await fair.redis.zscore(KEYS.tokens, "plain's turn") is None
