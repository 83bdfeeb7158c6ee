"""A counting semaphore and a latch, by their scripts."""

from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from aiolock._keys import LockKeys
from aiolock._scripts import (
    ADD_PERMITS,
    COUNT_DOWN,
    COUNTING_SEMAPHORE,
    DRAIN,
    INSPECT_COUNTING_SEMAPHORE,
    LATCH,
    SET_COUNT,
    SET_PERMITS,
    Script,
)

SEATS = LockKeys.of_counting_semaphore("seats", "")
JOBS = LockKeys.of_latch("jobs", "")
MINE, THEIRS, REQUEST = "me#1", "other#1", "me:7"
RETENTION, MEMORY = 3_600_000, 60_000
INITIAL = 3

Reply = list[Any]


@dataclass(frozen=True)
class Sight:
    """Everything that the scripts may change, without the times to live."""

    count: bytes | None
    tokens: dict[bytes, float]
    keys: int


class Counter:
    """A semaphore or a latch, on a server that has nothing else."""

    def __init__(self, redis: Redis, keys: LockKeys) -> None:
        self.redis = redis
        self.keys = keys

    async def run(self, script: Script, *args: str | int, number: int = 2) -> Reply:
        keys = self.keys.all[:number]
        publish = ("PUBLISH",) if script.publishes else ()
        return cast(Reply, await self.redis.eval(script.source, len(keys), *keys, *map(str, args), *publish))

    async def change(self, script: Script, *how: str | int, request: str = REQUEST, forget: str = "") -> Reply:
        return await self.run(script, request, RETENTION, MEMORY, forget, *how)

    async def look(self) -> Sight:
        tokens: Any = await self.redis.zrange(self.keys.tokens, 0, -1, withscores=True)
        return Sight(await self.redis.dump(self.keys.lock), dict(tokens), await self.redis.dbsize())

    async def number(self) -> int:
        return int(await self.redis.get(self.keys.lock) or 0)


class Seats(Counter):
    """The semaphore."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis, SEATS)

    async def acquire(self, id: str = MINE, *, number: int = 2, initial: str | int = INITIAL) -> Reply:
        return await self.run(COUNTING_SEMAPHORE.acquire, id, MEMORY, RETENTION, number, initial, self.keys.channel)

    async def release(self, id: str = MINE, *, granted: int = 1, number: int = 2, forget: str = "") -> Reply:
        how = (RETENTION, MEMORY, forget, number, self.keys.channel)
        return await self.run(COUNTING_SEMAPHORE.release, id, granted, *how)

    async def give_up(self) -> Reply:
        return await self.release(granted=0)

    async def add(self, more: int = 2, request: str = REQUEST, forget: str = "") -> Reply:
        return await self.change(ADD_PERMITS, more, INITIAL, self.keys.channel, request=request, forget=forget)

    async def set(self, permits: int = 7) -> Reply:
        return await self.change(SET_PERMITS, permits, self.keys.channel)

    async def drain(self, request: str = REQUEST) -> Reply:
        return await self.change(DRAIN, INITIAL, request=request)

    async def inspect(self) -> Reply:
        return await self.run(INSPECT_COUNTING_SEMAPHORE, number=1)


class Jobs(Counter):
    """The latch."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(redis, JOBS)

    async def wait(self) -> Reply:
        return await self.run(LATCH.acquire, number=1)

    async def count_down(self, request: str = REQUEST) -> Reply:
        return await self.change(COUNT_DOWN, 1, self.keys.channel, request=request)

    async def end(self) -> Reply:
        return await self.change(COUNT_DOWN, "", self.keys.channel)

    async def set(self, count: int = 5) -> Reply:
        return await self.change(SET_COUNT, count, self.keys.channel)
