"""The memory of ended acquisitions: no more than is needed, and in short commands."""

from collections.abc import Awaitable, Callable

import pytest
from redis import OutOfMemoryError
from redis.asyncio import Redis

from aiolock._core.commands import freed
from aiolock._embedded_server import Server
from aiolock._scripts import COUNT_DOWN
from aiolock._scripts.replies import EXPIRED, GRANTED, LOST, REFUSED, TAKEN
from tests.lua.counters import JOBS, Jobs, Seats
from tests.lua.table import EARLIER, KEYS, MEMORY, MINE, OLD_TOKEN, OTHER, REQUEST, THEIRS, Reply, Table
from tests.support.observe import commandstats

MOST_AT_ONCE = 16


async def many_old(table: Table, count: int) -> None:
    """Note the ends of that many acquisitions that are older than the memory, and the end of one just now."""
    now = (await table.redis.time())[0] * 1000
    ended = {f"old:{number:05}": (now - 2 * MEMORY + number) * 10 + 1 for number in range(count)}
    await table.redis.zadd(KEYS.tokens, {**ended, "young": now * 10 + 1})


async def remembered(table: Table) -> list[str]:
    return [id.decode() for id in (await table.look()).tokens if id != b"token"]


@pytest.mark.parametrize(
    "end",
    [
        lambda table: table.release(),
        lambda table: table.release(forget="none:of those"),
        lambda table: table.release(THEIRS, owner=OTHER),
        lambda table: table.renew(THEIRS),
    ],
    ids=["release", "release that names one that is not there", "give up", "lost"],
)
async def test_one_command_takes_away_some_of_the_old_ends_the_oldest_first(
    table: Table, end: Callable[[Table], Awaitable[Reply]]
) -> None:
    await table.acquire()
    await many_old(table, 1_000)
    before = await remembered(table)
    await end(table)
    after = await remembered(table)
    assert after[:-1] == before[MOST_AT_ONCE:]
    assert after[-1] in (MINE, THEIRS)


async def test_new_ends_are_kept_and_many_old_ones_go_step_by_step(table: Table) -> None:
    await many_old(table, 100)
    for number in range(8):
        await table.release(f"me:{number}")
    assert await remembered(table) == ["young", *(f"me:{number}" for number in range(8))]


async def test_ends_that_replace_each_other_add_none_and_seldom_look_for_old_ones(table: Table) -> None:
    await many_old(table, 100)
    before = await commandstats(table.redis)
    sections, last = 0, ""
    while any(id.startswith("old:") for id in await remembered(table)):
        sections, other = sections + 1, last
        assert sections < 2_000
        last = f"me:{sections}"
        await table.acquire(last)
        await table.release(last, forget=other)
        assert [id for id in await remembered(table) if not id.startswith("old:")] == ["young", last]
    after = await commandstats(table.redis)
    assert after["zrangebyscore"] - before.get("zrangebyscore", 0) < sections / 2


LATE: dict[str, Callable[[Table], Awaitable[Reply]]] = {
    "renewal": lambda table: table.renew(EARLIER, number=99),
    "nested acquire": lambda table: table.acquire(EARLIER, step=2, holds=2),
    "release to 1": lambda table: table.release(EARLIER, step=99, left=1),
    "release": lambda table: table.release(EARLIER, step=99),
    "release that forgets one more": lambda table: table.release(EARLIER, step=99, forget="me:a0"),
}


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
@pytest.mark.parametrize("late", LATE)
async def test_a_command_of_an_acquisition_that_was_forgotten_frees_nothing_and_grants_nothing(
    table: Table, late: str, taken: bool
) -> None:
    """The acquire is left out: the client makes sure that no copy of it is on its way."""
    await table.acquire(EARLIER)
    await table.release(EARLIER)
    await table.acquire()
    await table.release(forget=EARLIER)
    if taken:
        await table.acquire(THEIRS, owner=OTHER)
    before = await table.look()
    for _ in range(2):
        assert (await LATE[late](table))[:2] == [LOST, TAKEN if taken else EXPIRED]
    after = await table.look()
    assert (after.lock, after.tokens[b"token"]) == (before.lock, before.tokens[b"token"])
    assert after.lock_ttl <= before.lock_ttl
    assert (await table.acquire("me:a9"))[0] == (REFUSED if taken else GRANTED)


async def test_an_end_is_remembered_also_by_a_server_that_is_out_of_memory(own: Server) -> None:
    async with Redis.from_url(own.url) as redis:
        table = Table(redis)
        await table.acquire()
        await redis.config_set("maxmemory", "1")
        with pytest.raises(OutOfMemoryError):
            await redis.set("anything", "more")
        await table.renew("me:lost")
        await table.release("me:given up")
        await table.release()
        await table.force()
        assert await table.remembered() == {
            b"taken:me:lost",
            b"taken:me:given up",
            b"freed:" + MINE.encode(),
            b"expired:" + REQUEST.encode(),
        }


@pytest.mark.parametrize("forget", ["", "me:6"], ids=["forgets none", "forgets one"])
async def test_a_server_out_of_memory_takes_releases_of_counted_permits(own: Server, forget: str) -> None:
    async with Redis.from_url(own.url) as redis:
        seats, jobs = Seats(redis), Jobs(redis)
        await seats.acquire()
        await jobs.set(2)
        await redis.config_set("maxmemory", "1")
        assert (await seats.release(forget=forget))[0] == GRANTED
        assert (await jobs.change(COUNT_DOWN, 1, JOBS.channel, request="me:8", forget=forget))[0] == GRANTED
        assert (await seats.number(), await jobs.number()) == (3, 1)


async def marked(table: Table, *ages: int) -> list[str]:
    """Write the marks of clients that freed a grant that many seconds ago."""
    now = (await table.redis.time())[0]
    marks = {f"freed c{age}": freed((now - age) * 1_000_000, 1) for age in ages}
    await table.redis.zadd(KEYS.tokens, marks)
    return list(marks)


async def test_a_new_mark_takes_away_some_of_those_that_nobody_can_ask_for(table: Table) -> None:
    await table.acquire()
    young, old = await marked(table, 0, 60, 120), set(await marked(table, *range(200, 240)))
    await table.clean()
    marks = await table.marks()
    assert marks.keys() >= {"freed me", *young}
    assert len(marks.keys() & old) == len(old) - MOST_AT_ONCE
    assert b"token" in (await table.look()).tokens


@pytest.mark.slow
@pytest.mark.parametrize("names", [1, 2, 64], ids="{} names in turn".format)
async def test_a_mark_that_moves_looks_for_old_ends_seldom(table: Table, names: int) -> None:
    await many_old(table, 100)
    await marked(table, *range(200, 260))
    before = await commandstats(table.redis)
    sections = 0
    while any(member.startswith((b"old:", b"freed c")) for member in (await table.look()).tokens):
        sections += 1
        assert sections < 4_000
        id = f"me:{names * sections + 1}"
        await table.acquire(id)
        assert (await table.clean(id))[0] == GRANTED
    after = await commandstats(table.redis)
    assert after["zrangebyscore"] - before.get("zrangebyscore", 0) < sections / 16
    assert (await table.look()).tokens.keys() == {b"token", b"young", b"freed me"}


async def test_a_clean_release_needs_few_commands(table: Table) -> None:
    """The token is given, because one of 127 releases looks for old ends, and a token of now chooses which one."""
    await table.acquire("me:1")
    await table.clean("me:1", token=OLD_TOKEN)
    before = await commandstats(table.redis)
    await table.acquire("me:2")
    await table.clean("me:2", token=OLD_TOKEN)
    after = await commandstats(table.redis)
    used = {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}
    assert not used.keys() & {"zrem", "zrangebyscore"}
    assert used["zadd"] == 2


async def test_each_client_is_told_by_its_own_mark(table: Table) -> None:
    await table.acquire(EARLIER)
    await table.clean(EARLIER)
    await table.acquire(THEIRS, owner=OTHER)
    await table.clean(THEIRS, mark="freed other")
    assert (await table.clean(EARLIER))[0] == GRANTED
    await table.acquire()
    await table.clean()
    assert (await table.clean())[0] == GRANTED
    assert (await table.clean(EARLIER))[0] == LOST, "the client asks only for its last clean release"
    assert (await table.clean(THEIRS, mark="freed other"))[0] == GRANTED


async def test_a_clean_release_is_noted_also_by_a_server_that_is_out_of_memory(own: Server) -> None:
    async with Redis.from_url(own.url) as redis:
        table = Table(redis)
        await table.acquire()
        await redis.config_set("maxmemory", "1")
        assert [(await table.clean())[0] for _ in range(2)] == [GRANTED, GRANTED]
