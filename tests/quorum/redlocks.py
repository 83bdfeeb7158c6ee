"""
Redlock as other libraries have it: `python -m tests.quorum.redlocks LIBRARY URL...`.

It prints whether it acquired the lock, and ends when it reads a line; it does not release the lock, whose lease lasts
for half a minute.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

NAME = "orders"
LEASE = 30


async def pottery(urls: list[str]) -> bool:
    from pottery import AIORedlock
    from redis.asyncio import Redis

    lock = AIORedlock(key=NAME, masters={Redis.from_url(url) for url in urls}, auto_release_time=LEASE)
    return bool(await lock.acquire())


async def redlock_ng(urls: list[str]) -> bool:
    from redlock import AsyncRedlock

    return await AsyncRedlock(urls).acquire(NAME, LEASE * 1000) is not None


async def aioredlock(urls: list[str]) -> bool:
    from aioredlock import Aioredlock, LockError

    try:
        await Aioredlock(urls).lock(NAME, lock_timeout=LEASE)
    except LockError:
        return False
    return True


async def ours(urls: list[str]) -> bool:
    from redis.asyncio import Redis

    from aiolock import LockClient, LockConfig, QuorumError

    patience, lease = 2.0, None
    locks = LockClient.redlock([Redis.from_url(url) for url in urls], config=LockConfig(command_timeout=patience))
    # Most servers have no vote yet, as the error says.
    with suppress(QuorumError):
        lease = await locks.lock(NAME).try_lock(2, LEASE)
    # After this pause, aiolock asks no server any more that is away.
    await asyncio.sleep(patience + 0.5)
    return lease is not None


LIBRARIES: dict[str, Callable[[list[str]], Awaitable[bool]]] = {
    "pottery": pottery,
    "redlock-ng": redlock_ng,
    "aioredlock": aioredlock,
    "aiolock": ours,
}


async def main(library: str, urls: list[str]) -> None:
    async with asyncio.timeout(20):
        print("acquired" if await LIBRARIES[library](urls) else "refused", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
