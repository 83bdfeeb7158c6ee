"""Waiting by observation, and what can be observed."""

import asyncio
import functools

import pytest
from redis.asyncio import Redis

from tests.support.observe import commandstats, connected, pubsub_channels, until


async def test_until_waits_for_it() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.005, event.set)
    await until(event.is_set)


async def test_until_awaits_the_answer(redis: Redis) -> None:
    async def there() -> bool:
        return bool(await redis.incr("n") == 3)

    await until(there)


async def test_until_quotes_the_condition_that_did_not_come_true() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.01 s: .*lambda: 1 > 2"):
        await until(lambda: 1 > 2, within=0.01)  # noqa: PLR0133


async def test_until_describes_a_condition_without_source() -> None:
    with pytest.raises(AssertionError, match="built-in method startswith"):
        await until(functools.partial("abc".startswith, "b"), within=0.01)


async def test_commandstats_counts_calls(redis: Redis) -> None:
    await redis.config_resetstat()
    await redis.incr("n")
    await redis.incr("n")
    await redis.config_get("port")
    stats = await commandstats(redis)
    assert stats["incrby"] == 2
    assert stats["config|get"] == 1


async def test_pubsub_channels_and_connected(redis: Redis) -> None:
    before = await connected(redis)
    async with redis.pubsub() as pubsub:
        await pubsub.subscribe("a", "b")
        await until(lambda: has_channels(redis, {"a", "b"}))
        assert await connected(redis) == before + 1


async def has_channels(redis: Redis, wanted: set[str]) -> bool:
    return await pubsub_channels(redis) == wanted
