"""A body that runs once, as its scripts see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from aiolock._keys import LockKeys
from aiolock._scripts import ONCE, SLOT, Script

KEYS = LockKeys.of_once("invoice:42", "")
ME, MINE, THEIRS = "me:1", "me:a2", "other:a1"
LEASE, KEEP, RETENTION, MEMORY = 30_000, 7_200_000, 3_600_000, 60_000
OUTCOME = "sreport 7"

Reply = list[Any]


@dataclass(frozen=True)
class Sight:
    """Everything that the scripts may change, but the times to live."""

    lock: bytes | None
    tokens: dict[bytes, float]
    keys: int


class Body:
    """The body `invoice:42` on a server of which nothing else is used."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    async def run(self, script: Script, *args: str | int, keys: int = 2) -> Reply:
        return cast(Reply, await self.redis.eval(script.source, keys, *KEYS.all[:keys], *map(str, args)))

    async def acquire(self, id: str = MINE) -> Reply:
        return await self.run(ONCE.acquire, ME, id, 1, 1, LEASE, RETENTION, MEMORY)

    async def done(self, id: str = MINE, outcome: str = OUTCOME) -> Reply:
        """Give it back, and say what it came to."""
        how = (max(RETENTION, KEEP), MEMORY, "", KEEP, "aiolock:outcome", outcome, KEYS.channel, "PUBLISH")
        return await self.run(ONCE.release_later, id, *how)

    async def release(self, id: str = MINE) -> Reply:
        how = (RETENTION, MEMORY, "", KEYS.channel, "PUBLISH")
        return await self.run(ONCE.release, ME, id, 2, 0, *how)

    async def renew(self) -> Reply:
        [reply] = await self.run(ONCE.renew, RETENTION, MEMORY, MINE, 1, LEASE)
        return cast(Reply, reply)

    async def slot(self, ms: int = 1000) -> Reply:
        return await self.run(SLOT, ms, keys=1)

    async def look(self) -> Sight:
        tokens: Any = await self.redis.zrange(KEYS.tokens, 0, -1, withscores=True)
        return Sight(await self.redis.dump(KEYS.lock), dict(tokens), await self.redis.dbsize())
