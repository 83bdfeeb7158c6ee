"""The messages that the scripts publish, and their commands."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import NoPermissionError

from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE, FORCE_RELEASE, INSPECT, MARK, READ_MARK, RELEASE, RENEW, Script
from aiolock._scripts.replies import GRANTED
from tests.lua.table import (
    KEYS,
    LEASE,
    MARK_KEY,
    ME,
    MEMORY,
    MINE,
    REQUEST,
    RETENTION,
    State,
    Table,
    free,
    freed,
    mine,
    mine_twice,
    others,
    record,
    redissons,
)


@pytest.fixture
async def channel(table: Table) -> AsyncIterator[PubSub]:
    """Subscribed to the channel where Redisson listens."""
    async with table.redis.pubsub() as pubsub:
        await pubsub.subscribe("redisson_lock__channel:{orders:42}")
        assert (await pubsub.get_message(timeout=5))["type"] == "subscribe"
        yield pubsub


async def messages(table: Table, channel: PubSub) -> list[bytes]:
    """All messages so far; we publish one ourselves that marks the end."""
    await table.redis.publish(KEYS.channel, "end")
    seen: list[bytes] = []
    while seen[-1:] != [b"end"]:
        message: dict[str, Any] = await channel.get_message(timeout=5)
        seen.append(message["data"])
    return seen[:-1]


@pytest.mark.parametrize("state", [mine, mine_twice], ids=lambda state: state.__name__)
async def test_the_last_release_publishes_a_zero_once(table: Table, channel: PubSub, state: State) -> None:
    await state(table)
    assert await table.release() == [GRANTED, 1, 0], "one receiver"
    assert await table.release() == [GRANTED, 0, 0]
    assert await messages(table, channel) == [b"0"]


@pytest.mark.parametrize("state", [mine, others, redissons], ids=lambda state: state.__name__)
async def test_force_release_publishes_a_zero_once(table: Table, channel: PubSub, state: State) -> None:
    await state(table)
    assert await table.force() == [GRANTED, 1, 0]
    assert await table.force() == [GRANTED, 1, 0]
    assert await messages(table, channel) == [b"0"]


async def test_a_release_that_leaves_holds_publishes_nothing(table: Table, channel: PubSub) -> None:
    await mine_twice(table)
    await table.release(step=3, left=1)
    assert await messages(table, channel) == []


@pytest.mark.parametrize("state", [free, others, redissons, freed, record], ids=lambda state: state.__name__)
async def test_a_release_that_frees_nothing_publishes_nothing(table: Table, channel: PubSub, state: State) -> None:
    await state(table)
    await messages(table, channel)
    await table.release()
    assert await messages(table, channel) == []


CALLS: list[tuple[Script, tuple[str, ...], tuple[str | int, ...]]] = [
    (ACQUIRE, (KEYS.lock, KEYS.tokens), (ME, MINE, 1, 1, LEASE, RETENTION, MEMORY)),
    (RENEW, (KEYS.lock, KEYS.tokens), (RETENTION, MEMORY, MINE, 1, LEASE)),
    (INSPECT, (KEYS.lock,), ()),
    (RELEASE, (KEYS.lock, KEYS.tokens), (ME, MINE, 2, 0, RETENTION, MEMORY, "", KEYS.channel, "PUBLISH")),
    (FORCE_RELEASE, (KEYS.lock, KEYS.tokens), (REQUEST, RETENTION, MEMORY, "", KEYS.channel, "PUBLISH")),
    (MARK, (MARK_KEY,), ("me:a2", "text", 1_000)),
    (MARK, (MARK_KEY,), ("me:a2", "text", 0)),
    (READ_MARK, (MARK_KEY,), ()),
]


async def test_the_scripts_touch_no_key_and_no_channel_but_those_they_declare(table: Table, server: Server) -> None:
    """The server checks this for a user who may touch no other keys and channels."""
    declared = {key for _, keys, _ in CALLS for key in keys}
    await table.redis.acl_setuser(
        "narrow",
        enabled=True,
        passwords=["+pass"],
        keys=[*declared],
        reset_channels=True,
        channels=[KEYS.channel],
        commands=["+@all"],
    )
    narrow = Redis.from_url(server.url, username="narrow", password="pass")
    try:
        for script, keys, args in CALLS:
            await narrow.eval(script.source, len(keys), *keys, *map(str, args))
        with pytest.raises(NoPermissionError):
            await narrow.get("something else")
    finally:
        await narrow.aclose()
        await table.redis.acl_deluser("narrow")
