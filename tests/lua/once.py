"""A body that runs once, by its scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from aiolock._keys import LockKeys, old_key
from aiolock._scripts import OLD, ONCE, SLOT, Script
from aiolock._scripts.replies import GRANTED

KEYS = LockKeys.of_once("invoice:42", "")
OLD_KEY = old_key(KEYS)
ME, MINE, THEIRS = "me:1", "me:a2", "other:a1"
LEASE, KEEP, LONGER, RETENTION, MEMORY = 30_000, 7_200_000, 600_000, 3_600_000, 60_000
OUTCOME = "sreport 7"

Reply = list[Any]


@dataclass(frozen=True)
class Sight:
    """Everything that the scripts may change, without the times to live."""

    lock: bytes | None
    old: bytes | None
    tokens: dict[bytes, float]
    keys: int


class Body:
    """The body `invoice:42`, on a server that has nothing else."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.tokens: dict[str, int] = {}

    async def run(self, script: Script, *args: str | int, keys: tuple[str, ...] = KEYS.all) -> Reply:
        return cast(Reply, await self.redis.eval(script.source, len(keys), *keys, *map(str, args)))

    async def acquire(self, id: str = MINE) -> Reply:
        reply = await self.run(ONCE.acquire, ME, id, 1, 1, LEASE, RETENTION, MEMORY)
        if reply[0] == GRANTED:
            self.tokens[id] = reply[1]
        return reply

    async def done(self, id: str = MINE, outcome: str = OUTCOME) -> Reply:
        """Give the body back with its outcome."""
        memory, remains = (max(RETENTION, KEEP), MEMORY, ""), (KEEP, "aiolock:outcome", outcome)
        how = (*memory, *remains, self.tokens.get(id, 1), "", KEYS.channel, "PUBLISH")
        return await self.run(ONCE.release_later, id, *how)

    async def done_for_longer(self, id: str = MINE, outcome: str = OUTCOME) -> Reply:
        """Give the body back with its outcome, which callers also get while a later run is under way."""
        memory, remains = (KEEP + LONGER, MEMORY, ""), (KEEP, "aiolock:outcome", outcome)
        how = (*memory, *remains, self.tokens.get(id, 1), KEEP + LONGER, KEYS.channel, "PUBLISH")
        return await self.run(ONCE.release_later, id, *how, keys=(*KEYS.all, OLD_KEY))

    async def old(self) -> Reply:
        return await self.run(OLD, keys=(OLD_KEY,))

    async def release(self, id: str = MINE) -> Reply:
        how = (RETENTION, MEMORY, "", KEYS.channel, "PUBLISH")
        return await self.run(ONCE.release, ME, id, 2, 0, *how)

    async def renew(self) -> Reply:
        [reply] = await self.run(ONCE.renew, RETENTION, MEMORY, MINE, 1, LEASE)
        return cast(Reply, reply)

    async def force(self) -> Reply:
        how = (RETENTION, MEMORY, "", KEYS.channel, "PUBLISH")
        return await self.run(ONCE.force_release, "operator:r1", *how)

    async def acquire_theirs(self) -> Reply:
        return await self.acquire(THEIRS)

    async def done_theirs(self) -> Reply:
        return await self.done(THEIRS)

    async def release_theirs(self) -> Reply:
        return await self.release(THEIRS)

    async def expire(self) -> None:
        """The lease is over."""
        await self.redis.delete(KEYS.lock)

    async def forget(self) -> None:
        """The server has lost its data."""
        await self.redis.flushall()

    async def put_something_else(self) -> None:
        await self.redis.set(KEYS.lock, "something", px=LEASE)

    async def slot(self, ms: int = 1000) -> Reply:
        return await self.run(SLOT, ms, keys=KEYS.all[:1])

    async def look(self) -> Sight:
        tokens: Any = await self.redis.zrange(KEYS.tokens, 0, -1, withscores=True)
        lock, old = await self.redis.dump(KEYS.lock), await self.redis.dump(OLD_KEY)
        return Sight(lock, old, dict(tokens), await self.redis.dbsize())
