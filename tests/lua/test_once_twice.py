"""Every script of a body that runs once, from each state: a second copy gets the same answer, and changes nothing."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from aiolock._scripts.replies import DONE, EXPIRED, FORCED, FREED, GRANTED, LOST, NOT_A_LOCK, REFUSED, STALE, TAKEN
from tests.lua.once import KEEP, KEYS, LEASE, LONGER, MINE, OLD_KEY, OUTCOME, THEIRS, Body, Reply

# A cell has the answer, and after "=" the key afterwards: L a lock, O an outcome, 0 nothing; without "=" no change.
TABLE = """
            acquire    done       release    renew
free        granted=L  expired    expired    expired
mine        granted    granted=O  granted=0  granted=L
theirs      refused    taken      taken      taken
done        done       granted    granted    expired
theirs_done done       expired    expired    expired
released    stale      granted    granted    expired
given_up    stale      expired    expired    expired
lost        granted=L  granted=O  expired    expired
lost_told   stale      granted=O  expired    expired
lost_taken  refused    taken      taken      taken
lost_failed granted=L  expired    expired    expired
forced      stale      forced     forced     forced
forgotten   granted=L  expired    expired    expired
foreign     foreign    expired    expired    expired
"""
HEAD, *ROWS = (line.split() for line in TABLE.strip().splitlines())
CELLS = [(row[0], command, cell) for row in ROWS for command, cell in zip(HEAD, row[1:], strict=True)]
WORDS = {GRANTED: "granted", REFUSED: "refused", STALE: "stale", NOT_A_LOCK: "foreign", DONE: "done"}


STATES: dict[str, tuple[Callable[[Body], Awaitable[object]], ...]] = {
    "free": (),
    "mine": (Body.acquire,),
    "theirs": (Body.acquire_theirs,),
    "done": (Body.acquire, Body.done),
    "theirs_done": (Body.acquire_theirs, Body.done_theirs),
    "released": (Body.acquire, Body.release),
    "given_up": (Body.release,),
    "lost": (Body.acquire, Body.expire),
    # The server stood still, and a renewal came before the release.
    "lost_told": (Body.acquire, Body.expire, Body.renew),
    "lost_taken": (Body.acquire, Body.expire, Body.acquire_theirs),
    "lost_failed": (Body.acquire, Body.expire, Body.acquire_theirs, Body.release_theirs),
    "forced": (Body.acquire, Body.force),
    "forgotten": (Body.acquire, Body.forget),
    "foreign": (Body.put_something_else,),
}


async def bring(body: Body, state: str) -> None:
    for step in STATES[state]:
        await step(body)


def in_words(reply: Reply) -> str:
    return (
        {EXPIRED: "expired", TAKEN: "taken", FREED: "freed", FORCED: "forced"}[reply[1]]
        if reply[0] == LOST
        else WORDS[reply[0]]
    )


@pytest.fixture
def body(redis: Redis) -> Body:
    return Body(redis)


@pytest.mark.parametrize(("state", "command", "cell"), CELLS, ids=[f"{state}-{name}" for state, name, _ in CELLS])
async def test_once_and_twice(body: Body, state: str, command: str, cell: str) -> None:
    await bring(body, state)
    before = await body.look()
    first: Reply = await getattr(body, command)()
    once = await body.look()
    answer, _, there = cell.partition("=")
    assert in_words(first) == answer
    if not there:
        assert once.lock == before.lock
    elif there == "0":
        assert once.lock is None
    else:
        outcome = await body.redis.hget(KEYS.lock, "aiolock:outcome")
        assert outcome == (OUTCOME.encode() if there == "O" else None)
        assert 0 < await body.redis.pttl(KEYS.lock) <= (KEEP if there == "O" else LEASE)
    for key in KEYS.all:
        assert await body.redis.pttl(key) != -1, "each of our keys has an end"

    second: Reply = await getattr(body, command)()
    assert in_words(second) == in_words(first)
    assert await body.look() == once


async def test_the_outcome_comes_with_the_time_for_which_it_is_remembered(body: Body) -> None:
    await bring(body, "done")
    status, _, left, outcome = await body.acquire(THEIRS)
    assert (status, outcome) == (DONE, OUTCOME.encode())
    assert KEEP - 10_000 < left <= KEEP
    # The server remembers the end of that run as long.
    assert await body.redis.pttl(KEYS.tokens) > KEEP - 10_000


async def test_a_runner_that_lost_the_lock_leaves_no_outcome(body: Body) -> None:
    await bring(body, "lost_taken")
    assert in_words(await body.done(MINE, "stoo late")) == "taken"
    assert (await body.acquire("third:a1"))[0] == REFUSED
    await body.done(THEIRS)
    assert in_words(await body.done(MINE, "stoo late")) == "taken"
    assert (await body.acquire("third:a1"))[3] == OUTCOME.encode()


@pytest.mark.parametrize("state", STATES)
async def test_an_old_result_is_left_exactly_where_the_outcome_is_and_once(body: Body, state: str) -> None:
    await bring(body, state)
    first = await body.done_for_longer()
    once = await body.look()
    leaves = {name for name, command, cell in CELLS if command == "done" and cell == "granted=O"}
    assert await body.old() == [OUTCOME.encode() if state in leaves else None]
    if once.old is not None:
        assert KEEP < await body.redis.pttl(OLD_KEY) <= KEEP + LONGER
        assert await body.redis.pttl(KEYS.tokens) > KEEP
    assert in_words(await body.done_for_longer(MINE, "sanother")) == in_words(first)
    assert await body.look() == once
    await body.expire()
    await body.acquire_theirs()
    assert (await body.look()).old == once.old, "an old result outlives the next run"


async def test_a_runner_that_lost_the_lock_leaves_no_old_result(body: Body) -> None:
    await bring(body, "lost_taken")
    await body.done_for_longer(THEIRS, "sfirst")
    assert (await body.done_for_longer(MINE, "stoo late"))[0] == LOST
    assert await body.old() == [b"sfirst"]


async def test_a_slot_is_by_the_clock_of_the_server(body: Body) -> None:
    seconds, _ = await body.redis.time()
    number, left = await body.slot()
    assert number - seconds in {0, 1}
    assert 0 < left <= 1000
    assert await body.redis.dbsize() == 0


def test_keys_share_a_slot() -> None:
    assert KEYS.all == ("aiolock_once:{invoice:42}", "aiolock_once_token:{invoice:42}")
    assert KEYS.channel == "redisson_lock__channel:aiolock_once:{invoice:42}"
