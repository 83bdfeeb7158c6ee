"""The line of a fair lock, by its scripts: who stands in line, who is next, and that a second copy changes nothing."""

from collections.abc import Awaitable, Callable

import pytest

from aiolock._scripts.replies import EXPIRED, GRANTED, LOST, REFUSED
from tests.lua.table import KEYS, OTHER, THEIRS, FairTable, Reply, Table

FIRST, SECOND, OURS = "b:1", "c:1", "b:2"
SILENCE, TURN, LINE_FIRST, HOUR = 700, 100, 1000, 3_600_000
PLAIN = -800_000_000_000_000


async def a_line(fair: FairTable, *ids: str) -> dict[str, int]:
    """Others hold the lock, and these acquisitions wait; return the arrival of each."""
    await fair.acquire(THEIRS, owner=OTHER)
    return {id: (await fair.wait(id, 0))[1] for id in ids}


async def test_a_silent_client_is_passed_over_and_comes_back_to_its_place(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, SECOND, "d:1")
    await fair.release(THEIRS, owner=OTHER)
    await silence(fair, "b")
    assert (await fair.wait(SECOND, arrived[SECOND]))[0] == GRANTED
    assert await fair.line() == ["d:1"]
    await fair.wait(FIRST, arrived[FIRST])
    assert await fair.line() == [FIRST, "d:1"]


async def test_a_second_copy_is_told_the_arrival_of_the_first(fair: FairTable) -> None:
    """If its client is passed over, or the server forgets, it comes back to that place."""
    arrived = await a_line(fair, FIRST, SECOND)
    assert (await fair.wait(FIRST, 0))[1] == arrived[FIRST]


async def silence(fair: FairTable, client: str) -> None:
    """The *client* has given no sign of life for long."""
    await fair.redis.zincrby(KEYS.tokens, -SILENCE, f"alive {client}")


async def test_many_dead_are_passed_over_by_more_than_one_command(fair: FairTable) -> None:
    await a_line(fair, *(f"b:{number}" for number in range(1, 101)), SECOND)
    await fair.release(THEIRS, owner=OTHER)
    await silence(fair, "b")
    status, arrived, soon, *_ = await fair.wait(SECOND, 0)
    assert (status, soon) == (REFUSED, 0)
    assert len(await fair.line()) == 101 - 64
    assert (await fair.wait(SECOND, arrived))[0] == GRANTED


async def test_nobody_overtakes_the_line_after_a_clock_was_set_back(fair: FairTable) -> None:
    await a_line(fair, FIRST, "d:1")
    for waiter in (FIRST, "d:1"):
        await fair.redis.zincrby(KEYS.tokens, HOUR * 1000, f"ticket {waiter}")
    _, arrived, *_ = await fair.wait(SECOND)
    assert await fair.line() == [FIRST, "d:1", SECOND]
    await fair.redis.zrem(KEYS.tokens, f"ticket {SECOND}")
    await fair.wait(SECOND, arrived)
    assert await fair.line() == [FIRST, "d:1", SECOND]


async def test_a_clock_that_was_set_back_keeps_no_silent_client_in_front(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, SECOND)
    await fair.release(THEIRS, owner=OTHER)
    await fair.redis.zincrby(KEYS.tokens, HOUR, "alive b")
    assert (await fair.wait(SECOND, arrived[SECOND]))[0] == REFUSED
    await silence(fair, "b")
    assert (await fair.wait(SECOND, arrived[SECOND]))[0] == GRANTED


async def test_a_clock_that_was_set_back_makes_no_turn_of_the_plain_lock_longer(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST)
    await fair.redis.zadd(KEYS.tokens, {"plain": PLAIN})
    await fair.release(THEIRS, owner=OTHER)
    await fair.redis.zincrby(KEYS.tokens, HOUR, "plain's turn")
    assert (await fair.wait(FIRST, arrived[FIRST]))[::2] == [REFUSED, TURN, 1]
    await fair.redis.zincrby(KEYS.tokens, -TURN, "plain's turn")
    assert (await fair.wait(FIRST, arrived[FIRST]))[0] == GRANTED


async def test_a_clock_that_was_set_back_keeps_no_plain_waiter_from_a_free_lock(fair: FairTable) -> None:
    """The client that stands in line is dead."""
    plain = Table(fair.redis)
    await a_line(fair, FIRST)
    assert (await plain.acquire())[0] == REFUSED
    await fair.release(THEIRS, owner=OTHER)
    await fair.redis.zincrby(KEYS.tokens, HOUR, "plain")
    assert await plain.acquire() == [REFUSED, 0, LINE_FIRST]
    await fair.redis.zincrby(KEYS.tokens, -LINE_FIRST, "plain")
    assert (await plain.acquire())[0] == GRANTED


async def test_a_clock_that_was_set_back_puts_no_turn_of_the_plain_lock_off(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, SECOND)
    assert (await Table(fair.redis).acquire())[0] == REFUSED
    await fair.redis.zincrby(KEYS.tokens, HOUR, "plain")
    await fair.release(THEIRS, owner=OTHER)
    assert (await fair.wait(FIRST, arrived[FIRST]))[0] == GRANTED
    await fair.redis.zincrby(KEYS.tokens, -LINE_FIRST, "plain")
    await fair.release(FIRST, owner=FIRST)
    assert b"plain's turn" in (await fair.look()).tokens


async def test_a_line_leaves_nothing_when_it_is_over(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST)
    await fair.release(THEIRS, owner=OTHER)
    await fair.wait(FIRST, arrived[FIRST])
    await fair.release(FIRST, owner=FIRST)
    members = (await fair.look()).tokens
    assert members.keys() == {b"token", THEIRS.encode(), FIRST.encode()}


async def test_clients_that_gave_up_leave_nothing_in_a_line_that_never_ends(fair: FairTable) -> None:
    arrived = await a_line(fair, FIRST, "gone:1", SECOND)
    await fair.release("gone:1", owner="gone:1", step=2)
    await silence(fair, "gone")
    await fair.wait(FIRST, arrived[FIRST])
    assert await fair.line() == [FIRST, SECOND]
    await fair.wait("d:1")
    assert await signs_of_life(fair) == {"b", "c", "d"}


async def test_a_release_does_not_doubt_that_its_own_client_is_alive(fair: FairTable) -> None:
    await fair.acquire(HOLDER, owner=OTHER)
    await fair.wait("other:2")
    await silence(fair, "other")
    await fair.clean(HOLDER, mark="freed other")
    assert await fair.line() == ["other:2"]


async def signs_of_life(fair: FairTable) -> set[str]:
    """The clients that have a mark in the line."""
    members = (await fair.look()).tokens
    return {member.decode()[6:] for member in members if member.startswith(b"alive ")}


@pytest.mark.parametrize(("second", "leads"), [(OURS, 1), (SECOND, 0), (None, 0)])
async def test_a_grant_tells_whether_the_next_in_line_is_of_the_same_client(
    fair: FairTable, second: str | None, leads: int
) -> None:
    arrived = await a_line(fair, FIRST, *([second] if second else []))
    await fair.release(THEIRS, owner=OTHER)
    granted = await fair.wait(FIRST, arrived[FIRST])
    assert (granted[0], granted[4]) == (GRANTED, leads)


HOLDER = "other:1"
RELEASES: dict[str, Callable[[FairTable], Awaitable[Reply]]] = {
    "remembered": lambda fair: fair.release(HOLDER, owner=OTHER),
    "clean": lambda fair: fair.clean(HOLDER, mark="freed other"),
}


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
@pytest.mark.parametrize("first", [FIRST, "other:2", None], ids=["another client", "the same client", "nobody"])
async def test_one_message_to_the_next_waiter(
    fair: FairTable, first: str | None, release: Callable[[FairTable], Awaitable[Reply]]
) -> None:
    """The reply has the number of receivers only if the releasing client is one of them."""
    await fair.acquire(HOLDER, owner=OTHER)
    if first:
        await fair.wait(first)
    async with fair.redis.pubsub() as heard:
        await heard.psubscribe("*")
        assert (await heard.get_message(timeout=5))["type"] == "psubscribe"
        assert await release(fair) == [GRANTED, 0 if first == FIRST else 1, 0]
        message = await heard.get_message(timeout=5)
        assert message["channel"].decode() == (f"{KEYS.channel}:{first[:-2]}" if first else KEYS.channel)
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
