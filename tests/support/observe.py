"""Ways to see the library's actions from outside, and to wait until they have happened."""

import asyncio
import gc
import inspect
import sys
import threading
import time
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


async def all_parked(client: LockClient, count: int, within: float = 15.0) -> None:
    """Return when that many tasks of the client are parked, and it waits for no reply."""
    await until(lambda: (client.statistics().parked, client.statistics().pending) == (count, 0), within)


async def renewed(client: LockClient, times: int, within: float = 10.0) -> None:
    """Return when that many more renewals have been acknowledged."""
    wanted = client.statistics().renewals + times
    await until(lambda: client.statistics().renewals >= wanted, within)


async def renewed_elsewhere(redis: Redis, key: str) -> None:
    """Return when another process has renewed the lock *key* once more."""

    async def number() -> int:
        return int(await redis.hget(key, "aiolock:renewal") or 0)

    before = await number()

    async def is_renewed() -> bool:
        return await number() > before

    await until(is_renewed)


async def freed(redis: Redis, key: str) -> None:
    """Return when the server does not have the key."""

    async def free() -> bool:
        return not await redis.exists(key)

    await until(free)


async def commandstats(redis: Redis) -> dict[str, int]:
    """The number of calls of each command on the server; subcommands read `config|get`."""
    stats = await redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}


async def pubsub_channels(redis: Redis) -> set[str]:
    """The channels that have a subscriber."""
    return {channel.decode() if isinstance(channel, bytes) else channel for channel in await redis.pubsub_channels()}


async def subscribed_clients(redis: Redis) -> list[str]:
    """The ids of the clients that have subscribed."""
    return [client["id"] for client in await redis.client_list(_type="pubsub")]


async def connected(redis: Redis) -> int:
    """The number of connected clients, including the one that asks."""
    return int((await redis.info("clients"))["connected_clients"])


async def until_connected(redis: Redis, count: int) -> None:
    """Return when that many clients are connected, including the one that asks."""

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
    """
    During the block another thread, which may run at any moment, asks for the client's statistics.

    An allocation may begin a garbage collection, whose callbacks may let another thread run: here each one does.
    """
    stop, interval, threshold = threading.Event(), sys.getswitchinterval(), gc.get_threshold()

    def ask() -> None:
        while not stop.is_set():
            locks.statistics()

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(let_others_run)
    asking = asyncio.create_task(asyncio.to_thread(ask))
    try:
        yield
    finally:
        stop.set()
        gc.callbacks.remove(let_others_run)
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
        await asking
