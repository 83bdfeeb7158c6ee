"""Ways to see from outside what the library does, and to wait until it has done it."""

import asyncio
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from redis.asyncio import Redis

from aiolock import LockClient

_POLL = 0.001


async def until(predicate: Callable[[], bool] | Callable[[], Awaitable[bool]], within: float = 15.0) -> None:
    """Return as soon as the predicate holds; AssertionError, quoting its source, if it does not in time."""
    deadline = asyncio.get_running_loop().time() + within
    while not await _holds(predicate):
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within:g} s: {_described(predicate)}")
        await asyncio.sleep(_POLL)


async def answered(client: LockClient, within: float = 15.0) -> None:
    """Return when the client waits for no reply."""
    await until(lambda: client.statistics().pending == 0, within)


async def renewed(client: LockClient, times: int, within: float = 10.0) -> None:
    """Return when so many more renewals have been acknowledged."""
    wanted = client.statistics().renewals + times
    await until(lambda: client.statistics().renewals >= wanted, within)


async def freed(redis: Redis, key: str) -> None:
    """Return when the server does not have the key."""

    async def free() -> bool:
        return not await redis.exists(key)

    await until(free)


async def commandstats(redis: Redis) -> dict[str, int]:
    """How often the server has executed each command; subcommands read `config|get`."""
    stats = await redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}


async def pubsub_channels(redis: Redis) -> set[str]:
    """The channels that have a subscriber."""
    return {channel.decode() if isinstance(channel, bytes) else channel for channel in await redis.pubsub_channels()}


async def subscribed_clients(redis: Redis) -> list[str]:
    """The ids of the clients that have subscribed."""
    return [client["id"] for client in await redis.client_list(_type="pubsub")]


async def connected(redis: Redis) -> int:
    """How many clients are connected, the one that asks included."""
    return int((await redis.info("clients"))["connected_clients"])


async def until_connected(redis: Redis, count: int) -> None:
    """Return when so many clients are connected, the one that asks included."""

    async def as_many() -> bool:
        return await connected(redis) == count

    await until(as_many)


async def _holds(predicate: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> bool:
    answer = predicate()
    return answer if isinstance(answer, bool) else await answer


def _described(predicate: Callable[[], object]) -> str:
    try:
        return inspect.getsource(predicate).strip()
    except (OSError, TypeError):
        return repr(predicate)


@asynccontextmanager
async def asked_in_a_thread(locks: LockClient) -> AsyncIterator[None]:
    """Meanwhile another thread, to which this one gives way at any moment, asks for the client's statistics."""
    stop, interval = threading.Event(), sys.getswitchinterval()

    def ask() -> None:
        while not stop.is_set():
            locks.statistics()

    sys.setswitchinterval(1e-6)
    asking = asyncio.create_task(asyncio.to_thread(ask))
    try:
        yield
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        await asking
