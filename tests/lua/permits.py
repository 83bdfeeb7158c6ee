"""A semaphore, by its scripts: a test brings it into any state, sends it any script, and looks at all keys."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from aiolock._keys import LockKeys
from aiolock._scripts import INSPECT_PERMITS, PERMIT, RESIZE, Script

KEYS = LockKeys.of_permits("places", "")
COUNT, PERMITS, TOKENS = KEYS.all

MINE, THEIRS = "me:1#2", "other:7#1"
REQUEST = "operator:r1"

LEASE = 30_000
RETENTION = 3_600_000
MEMORY = 60_000
SILENCE, HEARTBEAT = 700, 250

Reply = list[Any]


@dataclass(frozen=True)
class Sight:
    """Everything that the scripts may change; times are in milliseconds."""

    count: bytes | None
    permits: dict[bytes, float]
    tokens: dict[bytes, float]
    keys: int

    @property
    def line(self) -> list[str]:
        """The acquisitions that wait, in their order."""
        return [words[2] for member in self.tokens if (words := member.decode().split(" "))[0] == "turn"]


class Table:
    """The semaphore `places`, on a server that has nothing else; the first acquire sets its number to three."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    async def run(self, script: Script, keys: tuple[str, ...], *args: str | int) -> Reply:
        publish = ("PUBLISH",) if script.publishes else ()
        return cast(Reply, await self.redis.eval(script.source, len(keys), *keys, *map(str, args), *publish))

    # The scripts.

    async def acquire(
        self,
        id: str = MINE,
        *,
        number: int = 2,
        initial: str | int = 3,
        waits: bool = True,
        arrived: int = 0,
        ms: int = LEASE,
    ) -> Reply:
        how = (ms, RETENTION, number, initial, int(waits), arrived, KEYS.channel)
        return await self.run(PERMIT.acquire, KEYS.all, id, *how)

    async def release(self, id: str = MINE, *, number: int = 2, forget: str = "") -> Reply:
        return await self.run(PERMIT.release, KEYS.all, id, RETENTION, MEMORY, forget, number, KEYS.channel)

    async def renew(self, id: str = MINE, *, number: int = 2, ms: int = LEASE) -> Reply:
        [reply] = await self.run(PERMIT.renew, KEYS.all, RETENTION, MEMORY, id, ms, number)
        return cast(Reply, reply)

    async def force(self, request: str = REQUEST) -> Reply:
        return await self.run(PERMIT.force_release, KEYS.all, request, RETENTION, MEMORY, KEYS.channel)

    async def resize(self, *, permits: str | int = "", more: int = 0, request: str = REQUEST) -> Reply:
        how = (RETENTION, MEMORY, "", permits, more, 3, KEYS.channel)
        return await self.run(RESIZE, KEYS.all, request, *how)

    async def inspect(self, named: int = 10) -> Reply:
        return await self.run(INSPECT_PERMITS, KEYS.all[:2], named, "")

    # The keys at the beginning.

    async def look(self) -> Sight:
        kinds = {key: await self.redis.type(key) for key in KEYS.all}
        permits: Any = await self.redis.zrange(PERMITS, 0, -1, withscores=True) if kinds[PERMITS] == b"zset" else []
        tokens: Any = await self.redis.zrange(TOKENS, 0, -1, withscores=True)
        return Sight(
            await self.redis.dump(COUNT),
            dict(permits),
            dict(tokens),
            await self.redis.dbsize(),
        )

    async def available(self) -> int:
        return int(await self.redis.get(COUNT) or 0)

    async def age(self, ms: int) -> None:
        """Move all keys and entries that many milliseconds into the past."""
        sight = await self.look()
        for member, score in sight.permits.items():
            await self.redis.zadd(PERMITS, {member: score - ms})
        for member, score in sight.tokens.items():
            if member != b"token" and not member.startswith((b"turn ", b"overtaken")):
                await self.redis.zadd(TOKENS, {member: score - ms if member == b"next" else score - 10 * ms})


State = Callable[[Table], Awaitable[object]]


async def unknown(table: Table) -> None:
    """Nobody has set the number of permits."""


async def free(table: Table) -> None:
    await table.resize(permits=3, request="operator:r0")


async def mine(table: Table) -> None:
    await table.acquire()


async def others(table: Table) -> None:
    """Another client has two of three permits."""
    await table.acquire(THEIRS)


async def awaited(table: Table) -> None:
    """Another client has two of three permits, and we were refused."""
    await others(table)
    await table.acquire()


async def kept_for_others(table: Table) -> None:
    """Two permits are available, but another client waits for three."""
    await table.acquire("third:1#1", number=1)
    await table.acquire(THEIRS, number=3)


async def expired(table: Table) -> None:
    await table.acquire()
    await table.age(LEASE)


async def freed(table: Table) -> None:
    await table.acquire()
    await table.release()


async def given_up(table: Table) -> None:
    """The release of the acquisition came before the acquire."""
    await free(table)
    await table.release()


async def forced(table: Table) -> None:
    await table.acquire()
    await table.force("operator:r0")


async def redissons(table: Table) -> None:
    """Redisson has two of three permits, one of them for ever."""
    await table.redis.set(COUNT, "1")
    await table.redis.zadd(PERMITS, {bytes(range(16)): 922337203685477, bytes(range(1, 17)): 9e12})


async def text(table: Table) -> None:
    await table.redis.set(COUNT, "three")


async def a_list(table: Table) -> None:
    await table.redis.rpush(COUNT, "3")


async def digits(table: Table) -> None:
    """Redis does not add to this text."""
    await table.redis.set(COUNT, "0042")


async def replaced(table: Table) -> None:
    """Another program has written over the number while we had permits."""
    await mine(table)
    await table.redis.set(COUNT, "text")


async def no_permits(table: Table) -> None:
    await table.redis.set(PERMITS, "3")
