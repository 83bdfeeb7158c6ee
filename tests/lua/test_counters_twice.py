"""Every script of a count, from each state: a second copy gets the same answer, and changes nothing."""

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from aiolock._scripts import SET_COUNT
from aiolock._scripts.replies import APPLIED, GRANTED, NOT_A_LOCK, REFUSED, STALE
from tests.lua.counters import JOBS, MEMORY, MINE, REQUEST, RETENTION, SEATS, THEIRS, Counter, Jobs, Reply, Seats

# A cell has the answer, after ":" its number, and after "=" the count afterwards; without "=" the count stays.
OF_SEATS = """
             acquire    release    give_up    add        set        drain        inspect
unknown      granted=1  granted    granted    granted=5  granted=7  granted:3=0  refused
free         granted=1  granted=5  granted    granted=5  refused    granted:3=0  granted:3
expiring     granted=1  granted=5  granted    granted=5  refused    granted:3=0  granted:3
mine         granted    granted=3  granted=3  granted=3  refused    granted:1=0  granted:1
theirs       refused    granted=3  granted    granted=3  refused    granted:1=0  granted:1
freed        stale      granted    granted    granted=5  refused    granted:3=0  granted:3
given_up     stale      granted    granted    granted=5  refused    granted:3=0  granted:3
drained      refused    granted=2  granted    granted=2  refused    granted:0    granted:0
owing        refused    granted=1  granted    granted=1  refused    granted:0    granted:-1
text         foreign    granted    granted    foreign    foreign    foreign      foreign
a_list       foreign    granted    granted    foreign    foreign    foreign      foreign
digits       foreign    granted    granted    foreign    foreign    foreign      foreign
too_great    foreign    granted    granted    foreign    foreign    foreign      foreign
"""
OF_JOBS = """
             wait       count_down  end        set
none         granted    refused     refused    granted=5
one          refused:1  granted=0   granted=0  refused
three        refused:3  granted=2   granted=0  refused
over         granted    refused     refused    granted=5
text         foreign    foreign     foreign    foreign
a_list       foreign    foreign     foreign    foreign
digits       foreign    foreign     foreign    foreign
too_great    foreign    foreign     foreign    foreign
"""
WORDS = {GRANTED: "granted", REFUSED: "refused", STALE: "stale", NOT_A_LOCK: "foreign"}


async def bring(seats: Seats, state: str) -> None:
    if state in {"free", "given_up"}:
        await seats.redis.set(SEATS.lock, 3)
    elif state == "expiring":
        await seats.redis.set(SEATS.lock, 3, px=MEMORY)
    elif state in {"mine", "freed"}:
        await seats.acquire()
    elif state == "theirs":
        await seats.acquire(THEIRS)
    elif state in {"drained", "owing"}:
        await seats.redis.set(SEATS.lock, 0 if state == "drained" else -1)
    if state == "freed":
        await seats.release()
    elif state == "given_up":
        await seats.give_up()


async def bring_jobs(jobs: Jobs, state: str) -> None:
    if state in {"one", "over"}:
        await jobs.redis.set(JOBS.lock, 1)
    elif state == "three":
        await jobs.redis.set(JOBS.lock, 3)
    if state == "over":
        await jobs.count_down("earlier:1")


async def bring_what_is_foreign(counter: Counter, state: str) -> None:
    if text := {"text": "three", "digits": "0042", "too_great": "9" * 17}.get(state):
        await counter.redis.set(counter.keys.lock, text)
    elif state == "a_list":
        await counter.redis.rpush(counter.keys.lock, "3")


def cells(table: str) -> list[tuple[str, str, str]]:
    head, *rows = (line.split() for line in table.strip().splitlines())
    return [(row[0], command, cell) for row in rows for command, cell in zip(head, row[1:], strict=True)]


async def check(counter: Counter, command: Callable[[], Awaitable[Reply]], cell: str) -> None:
    """Send the command twice, and look at the answers and the count."""
    answer, _, number = cell.partition("=")
    word, _, said = answer.partition(":")
    before, ttl = await counter.look(), await counter.redis.pttl(counter.keys.lock)
    first = await command()
    once = await counter.look()
    assert WORDS[first[0]] == word
    assert not said or first[1] == int(said)
    if number:
        assert await counter.number() == int(number)
    else:
        assert once.count == before.count
    if ttl > 0:
        assert 0 < await counter.redis.pttl(counter.keys.lock) <= ttl
    assert await counter.redis.pttl(counter.keys.tokens) != -1

    second = await command()
    assert (second[0], said and second[1]) == (first[0], said and first[1])
    assert await counter.look() == once


@pytest.mark.parametrize(("state", "command", "cell"), cells(OF_SEATS))
async def test_a_semaphore_once_and_twice(redis: Redis, state: str, command: str, cell: str) -> None:
    seats = Seats(redis)
    await bring(seats, state)
    await bring_what_is_foreign(seats, state)
    await check(seats, getattr(seats, command), cell)


@pytest.mark.parametrize(("state", "command", "cell"), cells(OF_JOBS))
async def test_a_latch_once_and_twice(redis: Redis, state: str, command: str, cell: str) -> None:
    jobs = Jobs(redis)
    await bring_jobs(jobs, state)
    await bring_what_is_foreign(jobs, state)
    await check(jobs, getattr(jobs, command), cell)


async def test_a_late_count_after_others_counted(redis: Redis) -> None:
    """A late copy changes nothing, and gets the answer of the first copy."""
    seats = Seats(redis)
    assert await seats.drain() == [GRANTED, 3, 0]
    await seats.add(4, "me:8")
    assert await seats.drain() == [GRANTED, 3, 0]
    assert await seats.number() == 4
    jobs = Jobs(redis)
    assert (await jobs.set())[0] == GRANTED
    for number in range(5):
        await jobs.count_down(f"me:{number}")
    assert (await jobs.set())[0] == GRANTED
    assert await jobs.number() == 0


async def test_a_late_copy_of_a_refused_change_does_not_make_it(redis: Redis) -> None:
    """The change has become possible meanwhile, but its caller was told that it was refused."""
    seats, jobs = Seats(redis), Jobs(redis)
    assert (await jobs.count_down())[0] == REFUSED
    await jobs.change(SET_COUNT, 2, JOBS.channel, request="me:8")
    assert (await jobs.count_down())[0] == REFUSED
    assert await jobs.number() == 2
    assert (await jobs.change(SET_COUNT, 5, JOBS.channel, request="me:9"))[0] == REFUSED
    for number in (10, 11):
        await jobs.count_down(f"me:{number}")
    assert (await jobs.change(SET_COUNT, 5, JOBS.channel, request="me:9"))[0] == REFUSED
    assert await jobs.number() == 0
    await seats.acquire()
    assert (await seats.set())[0] == REFUSED
    await redis.delete(SEATS.lock)
    assert (await seats.set())[0] == REFUSED
    assert not await redis.exists(SEATS.lock)


@pytest.mark.parametrize("initial", [3, ""])
async def test_a_semaphore_without_a_number_has_no_permits(redis: Redis, initial: str | int) -> None:
    seats = Seats(redis)
    assert (await seats.acquire(initial=initial))[0] == (GRANTED if initial else REFUSED)
    assert await redis.exists(SEATS.lock) == bool(initial)


async def test_a_grant_says_whether_another_may_be_granted(redis: Redis) -> None:
    seats = Seats(redis)
    assert (await seats.acquire())[3] == 0
    assert (await seats.acquire())[3] == 0
    assert (await seats.acquire(THEIRS, number=1))[3] > 0
    assert (await seats.acquire(THEIRS, number=1))[3] > 0


async def test_ends_that_may_be_forgotten_go_together(redis: Redis) -> None:
    seats = Seats(redis)
    for number in range(4):
        await seats.add(1, f"me:{number}")
    await seats.release(THEIRS, forget="me:0 me:1")
    await seats.add(1, REQUEST, forget="me:2 nobody:5")
    assert set((await seats.look()).tokens) == {b"me:3", THEIRS.encode(), REQUEST.encode()}


async def test_after_a_minute_an_end_is_forgotten(redis: Redis) -> None:
    seats = Seats(redis)
    await seats.add()
    await redis.zincrby(SEATS.tokens, -10 * (MEMORY + 1), REQUEST)
    await seats.add(1, "me:8")
    assert set((await seats.look()).tokens) == {b"me:8"}


async def test_a_copy_after_more_than_a_minute_counts_nothing(redis: Redis) -> None:
    jobs = Jobs(redis)
    await jobs.set(3)
    await jobs.count_down("me:8")
    await redis.zincrby(JOBS.tokens, -10 * (MEMORY + 1), "me:8")
    before = await jobs.look()
    assert (await jobs.count_down("me:8"))[0] == APPLIED
    assert await jobs.look() == before


@pytest.mark.parametrize(("count", "most"), [(2, RETENTION), (1, MEMORY)])
async def test_at_zero_nothing_of_a_latch_stays_for_long(redis: Redis, count: int, most: int) -> None:
    jobs = Jobs(redis)
    await jobs.set(count)
    await jobs.count_down("me:8")
    assert most - 10_000 < await redis.pttl(JOBS.tokens) <= most


async def test_messages_are_redissons(redis: Redis) -> None:
    """A semaphore tells how many permits it has, but no number below zero; a latch tells `1` as it closes, `0` open."""
    seats, jobs = Seats(redis), Jobs(redis)
    async with redis.pubsub() as pubsub:
        await pubsub.subscribe(SEATS.channel, JOBS.channel)
        await seats.acquire()
        await seats.acquire(THEIRS, number=1)
        await seats.release(MINE)
        await seats.release(MINE)
        await seats.add(-5)
        await seats.add(6, "me:8")
        await jobs.set(2)
        await jobs.count_down("me:9")
        await jobs.count_down("me:10")
        await redis.publish(JOBS.channel, "end")
        heard: list[str] = []
        while "end" not in heard:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=5)
            heard += [] if message is None else [message["data"].decode()]
    assert heard == ["3", "2", "3", "1", "0", "end"]
