"""Every script of a body that runs once, from each state, sent once and sent twice: the same answer, and no change."""

import pytest
from redis.asyncio import Redis

from aiolock._scripts import DONE, EXPIRED, FREED, GRANTED, LOST, NOT_A_LOCK, REFUSED, STALE, TAKEN
from tests.lua.once import KEEP, KEYS, LEASE, MINE, OUTCOME, THEIRS, Body, Reply

# The answer, and after "=" what is there then: L a lock, O what it came to, 0 nothing. Without it nothing is changed.
TABLE = """
            acquire    done       release    renew
free        granted=L  expired    expired    expired
mine        granted    granted=O  granted=0  granted=L
theirs      refused    taken      taken      taken
done        done       granted    granted    expired
theirs_done done       expired    expired    expired
released    stale      granted    granted    expired
given_up    stale      expired    expired    expired
lost        granted=L  expired    expired    expired
foreign     foreign    expired    expired    expired
"""
HEAD, *ROWS = (line.split() for line in TABLE.strip().splitlines())
CELLS = [(row[0], command, cell) for row in ROWS for command, cell in zip(HEAD, row[1:], strict=True)]
WORDS = {GRANTED: "granted", REFUSED: "refused", STALE: "stale", NOT_A_LOCK: "foreign", DONE: "done"}


async def bring(body: Body, state: str) -> None:
    if state in {"mine", "done", "released", "lost"}:
        await body.acquire()
    elif state in {"theirs", "theirs_done"}:
        await body.acquire(THEIRS)
    if state == "done":
        await body.done()
    elif state == "theirs_done":
        await body.done(THEIRS)
    elif state in {"released", "given_up"}:
        await body.release()
    elif state == "lost":
        await body.redis.delete(KEYS.lock)
    elif state == "foreign":
        await body.redis.set(KEYS.lock, "something", px=LEASE)


def in_words(reply: Reply) -> str:
    return {EXPIRED: "expired", TAKEN: "taken", FREED: "freed"}[reply[1]] if reply[0] == LOST else WORDS[reply[0]]


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
        assert await body.redis.pttl(key) != -1, "what we make has an end"

    second: Reply = await getattr(body, command)()
    assert in_words(second) == in_words(first)
    assert await body.look() == once


async def test_it_says_what_it_came_to_and_how_long_that_is_remembered(body: Body) -> None:
    await bring(body, "done")
    status, _, left, outcome = await body.acquire(THEIRS)
    assert (status, outcome) == (DONE, OUTCOME.encode())
    assert KEEP - 10_000 < left <= KEEP
    assert await body.redis.pttl(KEYS.tokens) > KEEP - 10_000  # The end of who said so is remembered as long.


async def test_who_lost_the_lock_cannot_say_what_it_came_to(body: Body) -> None:
    await bring(body, "lost")
    await body.acquire(THEIRS)
    assert in_words(await body.done(MINE, "stoo late")) == "taken"
    assert (await body.acquire("third:a1"))[0] == REFUSED
    await body.done(THEIRS)
    assert in_words(await body.done(MINE, "stoo late")) == "taken"
    assert (await body.acquire("third:a1"))[3] == OUTCOME.encode()


async def test_a_slot_is_by_the_clock_of_the_server(body: Body) -> None:
    seconds, _ = await body.redis.time()
    number, left = await body.slot()
    assert number - seconds in {0, 1}
    assert 0 < left <= 1000
    assert await body.redis.dbsize() == 0


def test_keys_share_a_slot() -> None:
    assert KEYS.all == ("aiolock_once:{invoice:42}", "aiolock_token:{invoice:42}")
    assert KEYS.channel == "redisson_lock__channel:aiolock_once:{invoice:42}"
