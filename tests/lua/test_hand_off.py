"""A release and the acquire behind it as one command: their replies and effects are those of both by themselves."""

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ResponseError

from aiolock._core.commands import freed as freed_by
from aiolock._embedded_server import Server
from aiolock._scripts import HAND_OFF
from aiolock._scripts.replies import GRANTED, STALE
from tests.lua import table as states
from tests.lua.table import FREED_BY_ME, KEYS, LATER, LEASE, MEMORY, MINE, OLD_TOKEN, RETENTION, Reply, Sight, Table
from tests.lua.test_messages import messages
from tests.lua.test_twice import ROWS

STATES = [row[0] for row in ROWS]
NEXT = "me:2"


@pytest.fixture
def table(redis: Redis) -> Table:
    return Table(redis)


async def prepare(table: Table, state: str, marked: bool) -> Sight:
    """Bring the lock into the *state*; *marked*: the client has freed an earlier grant of the name."""
    table.granted.clear()
    await table.redis.flushall()
    if marked:
        await table.acquire("me:a0")
        await table.clean("me:a0")
    await getattr(states, state)(table)
    return await table.look()


async def hand_off(
    table: Table, *, to: str = LATER, owner: str = NEXT, holds: int = 1, step: int = 1, ms: int = LEASE
) -> Reply:
    acquire = (owner, to, step, holds, ms, RETENTION, MEMORY)
    number = freed_by(table.granted.get(MINE, OLD_TOKEN), 2)
    release = (MINE, number, FREED_BY_ME, RETENTION, MEMORY, KEYS.channel, "PUBLISH")
    return await table.run(HAND_OFF, (KEYS.lock, KEYS.tokens), *acquire, *release)


async def fields(table: Table) -> dict[bytes, bytes]:
    """The fields of the lock; none of a key of another type."""
    return await table.fields() if await table.redis.type(KEYS.lock) in (b"hash", b"none") else {}


async def seen(table: Table) -> list[Any]:
    """All that there is, without tokens and times; of an end only its kind."""
    sight = await table.look()
    ends = {member: score % 10 for member, score in sight.tokens.items() if not member.startswith((b"token", b"freed"))}
    return [
        {name: value for name, value in (await fields(table)).items() if name != b"aiolock:token"},
        ends,
        sight.keys,
    ]


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("state", STATES)
async def test_a_hand_off_is_a_release_and_an_acquire(table: Table, state: str, marked: bool) -> None:
    await prepare(table, state, marked)
    replies = await hand_off(table)
    done, marks, ttl = await seen(table), await table.marks(), (await table.look()).lock_ttl
    token = int((await fields(table)).get(b"aiolock:token", 0)) if replies[1][0] == GRANTED else 0

    await prepare(table, state, marked)
    released, granted = await table.clean(), await table.acquire(LATER, owner=NEXT)
    assert [released[0], granted[0]] == [reply[0] for reply in replies]
    if token:
        assert token == replies[1][1]
    assert await seen(table) == done
    assert (await table.marks()).keys() == marks.keys()
    assert abs((await table.look()).lock_ttl - ttl) < 1_000


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("state", STATES)
async def test_a_second_copy_has_the_same_answers_and_changes_nothing(table: Table, state: str, marked: bool) -> None:
    await prepare(table, state, marked)
    first = await hand_off(table)
    once = await table.look()
    second = await hand_off(table)
    assert [reply[0] for reply in second] == [reply[0] for reply in first]
    if first[1][0] == GRANTED:
        assert second[1][1] == first[1][1], "the token"
    after = await table.look()
    assert (after.lock, after.tokens, after.keys) == (once.lock, once.tokens, once.keys)


@pytest.mark.parametrize("state", STATES)
async def test_a_hand_off_is_not_published(table: Table, state: str) -> None:
    await prepare(table, state, marked=True)
    async with table.redis.pubsub() as channel:
        await subscribe(channel)
        await hand_off(table)
        assert await messages(table, channel) == []


async def test_the_first_release_of_a_client_is_published(table: Table) -> None:
    await prepare(table, "mine", marked=False)
    await expect_message(table, LEASE)


async def test_a_lease_that_ends_sooner_is_published(table: Table) -> None:
    """Waiters of other clients know the end of the old lease, and would ask again only then."""
    await prepare(table, "mine", marked=True)
    await expect_message(table, LEASE // 2)


async def test_the_message_is_sent_though_a_waiter_for_the_fair_lock_goes_first(table: Table, redis: Redis) -> None:
    for mark in ("plain", "plain's turn"):
        await prepare(table, "mine", marked=True)
        await redis.zadd(KEYS.tokens, {mark: -1})
        await expect_message(table, LEASE)


async def expect_message(table: Table, ms: int) -> None:
    async with table.redis.pubsub() as channel:
        await subscribe(channel)
        assert [reply[0] for reply in await hand_off(table, ms=ms)] == [GRANTED, GRANTED]
        assert await messages(table, channel) == [b"0"]


async def test_a_hand_off_to_an_acquisition_that_has_ended_only_releases(table: Table) -> None:
    await prepare(table, "mine", marked=True)
    await table.release(LATER, owner=NEXT)
    assert [reply[0] for reply in await hand_off(table)] == [GRANTED, STALE]
    assert (await table.look()).lock is None


async def test_a_grant_that_the_server_refuses_leaves_the_lock_free_and_its_waiters_told(
    table: Table, redis: Redis, server: Server
) -> None:
    await prepare(table, "mine", marked=True)
    await redis.acl_setuser(
        "no-hset", enabled=True, passwords=["+pass"], keys=["*"], channels=["*"], commands=["+@all", "-hset"]
    )
    try:
        async with (
            table.redis.pubsub() as channel,
            Redis.from_url(server.url.replace("redis://", "redis://no-hset:pass@")) as narrow,
        ):
            await subscribe(channel)
            table.redis = narrow
            released, granted = await hand_off(table)
            table.redis = redis
            assert released == [GRANTED, 0, 0]
            assert isinstance(granted, ResponseError)
            assert await messages(table, channel) == [b"0"]
            assert (await table.look()).lock is None
            assert (await table.clean())[0] == GRANTED, "a copy of the release"
    finally:
        await redis.acl_deluser("no-hset")


async def test_a_server_out_of_memory_refuses_a_hand_off(table: Table, redis: Redis) -> None:
    """The client then sends both calls by themselves: such a server frees a lock, and grants none."""
    await prepare(table, "mine", marked=True)
    before = await table.look()
    await redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(ResponseError, match="used memory"):
            await hand_off(table)
    finally:
        await redis.config_set("maxmemory", "0")
    assert (await table.look()).lock == before.lock


async def test_a_token_is_greater_than_that_of_the_released_grant(table: Table, redis: Redis) -> None:
    """The clock of the server may have been set back since."""
    await prepare(table, "mine", marked=True)
    ahead = 1 << 51
    await redis.zadd(KEYS.tokens, {"token": ahead})
    [_, granted] = await hand_off(table)
    assert granted[1] == ahead + 1


async def subscribe(channel: PubSub) -> None:
    await channel.subscribe(KEYS.channel)
    assert (await channel.get_message(timeout=5))["type"] == "subscribe"
