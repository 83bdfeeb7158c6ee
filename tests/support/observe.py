"""Ways to see from outside what the library does, and to wait until it has done it."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

_POLL = 0.001


async def until(predicate: Callable[[], bool] | Callable[[], Awaitable[bool]], within: float = 5.0) -> None:
    """Return as soon as the predicate holds; AssertionError, quoting its source, if it does not in time."""
    deadline = asyncio.get_running_loop().time() + within
    while not await _holds(predicate):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within:g} s: {_described(predicate)}")
        await asyncio.sleep(_POLL)


async def commandstats(redis: Redis) -> dict[str, int]:
    """How often the server has executed each command; subcommands read `config|get`."""
    stats = await redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}


async def pubsub_channels(redis: Redis) -> set[str]:
    """The channels that have a subscriber."""
    return {channel.decode() if isinstance(channel, bytes) else channel for channel in await redis.pubsub_channels()}


async def connected(redis: Redis) -> int:
    """How many clients are connected, the one that asks included."""
    return int((await redis.info("clients"))["connected_clients"])


async def _holds(predicate: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> bool:
    answer = predicate()
    return answer if isinstance(answer, bool) else await answer


def _described(predicate: Callable[[], object]) -> str:
    try:
        return inspect.getsource(predicate).strip()
    except (OSError, TypeError):
        return repr(predicate)
