"""A lock, by its scripts: a test brings it into any state, sends it any script, and looks at all keys."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from aiolock._core.commands import freed as freed_by
from aiolock._keys import LockKeys
from aiolock._scripts import (
    ACQUIRE,
    FAIR,
    FORCE_RELEASE,
    INSPECT,
    MARK,
    READ_MARK,
    RELEASE,
    RELEASE_CLEAN,
    RELEASE_LATER,
    RENEW,
    Script,
)
from aiolock._scripts.replies import EXPIRED, FORCED, FREED, GRANTED, TAKEN

KEYS = LockKeys.of("orders:42", "")
MARK_KEY = "aiolock_mark:{orders:42}"

ME, OTHER = "me:1", "other:7"
MINE, THEIRS, EARLIER, LATER = "me:a2", "other:a1", "me:a1", "me:a3"
REQUEST = "operator:r1"
FREED_BY_ME = "freed me"
# This server has lost the record of that grant.
OLD_TOKEN = 1_700_000_000_000_000
KEPT = "me:kept"

LEASE = 30_000
RETENTION = 3_600_000
MEMORY = 60_000

Reply = list[Any]


@dataclass(frozen=True)
class Sight:
    """Everything that the scripts may change, the times included (milliseconds, -2 when there is no key)."""

    # This is what DUMP answers.
    lock: bytes | None
    lock_ttl: int
    tokens: dict[bytes, float]
    tokens_ttl: int
    keys: int


class Table:
    """The lock `orders:42`, on a server that has nothing else."""

    clean_script: Script = RELEASE_CLEAN
    further: tuple[bytes, ...] = ()
    """The fields that this kind has beside those of every lock."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        # Each acquisition that was granted has its token here, as its client knows it.
        self.granted: dict[str, int] = {}

    async def run(self, script: Script, keys: tuple[str, ...], *args: str | int) -> Reply:
        return cast(Reply, await self.redis.eval(script.source, len(keys), *keys, *map(str, args)))

    # The scripts.

    async def acquire(
        self, id: str = MINE, *, owner: str = ME, step: int = 1, holds: int = 1, ms: int = LEASE
    ) -> Reply:
        reply = await self.run(ACQUIRE, (KEYS.lock, KEYS.tokens), owner, id, step, holds, ms, RETENTION, MEMORY)
        return self._noted(id, reply)

    def _noted(self, id: str, reply: Reply) -> Reply:
        if reply[0] == GRANTED:
            self.granted[id] = reply[1]
        return reply

    async def release(
        self, id: str = MINE, *, owner: str = ME, step: int = 9, left: int = 0, forget: str = ""
    ) -> Reply:
        how = (RETENTION, MEMORY, forget, KEYS.channel, "PUBLISH")
        return await self.run(RELEASE, (KEYS.lock, KEYS.tokens), owner, id, step, left, *how)

    async def clean(self, id: str = MINE, *, token: int | None = None, mark: str = FREED_BY_ME) -> Reply:
        """Release a grant by its token: no other command of it can be late, and the server may not know it."""
        token = self.granted.get(id, OLD_TOKEN) if token is None else token
        how = (id, freed_by(token, int(re.findall(r"\d+$", id)[0])), mark, RETENTION, MEMORY, KEYS.channel, "PUBLISH")
        return await self.run(self.clean_script, (KEYS.lock, KEYS.tokens), *how)

    async def later(self, id: str = MINE, *, ms: int = LEASE, forget: str = "") -> Reply:
        how = (RETENTION, MEMORY, forget, ms, KEPT, 1, "", "", KEYS.channel, "PUBLISH")
        return await self.run(RELEASE_LATER, (KEYS.lock, KEYS.tokens), id, *how)

    async def renew(self, id: str = MINE, *, number: int = 1, ms: int = LEASE) -> Reply:
        [reply] = await self.run(RENEW, (KEYS.lock, KEYS.tokens), RETENTION, MEMORY, id, number, ms)
        return cast(Reply, reply)

    async def force(self, request: str = REQUEST, *, token: int | str = "") -> Reply:
        how = (RETENTION, MEMORY, token, KEYS.channel, "PUBLISH")
        return await self.run(FORCE_RELEASE, (KEYS.lock, KEYS.tokens), request, *how)

    async def inspect(self) -> Reply:
        return await self.run(INSPECT, (KEYS.lock,))

    async def mark(self, id: str = MINE, text: str = "text", ms: int = LEASE) -> object:
        return await self.run(MARK, (MARK_KEY,), id, text, ms)

    async def read_mark(self) -> Reply:
        return await self.run(READ_MARK, (MARK_KEY,))

    # The keys at the beginning.

    async def look(self) -> Sight:
        tokens: Any = await self.redis.zrange(KEYS.tokens, 0, -1, withscores=True)
        return Sight(
            await self.redis.dump(KEYS.lock),
            await self.redis.pttl(KEYS.lock),
            dict(tokens),
            await self.redis.pttl(KEYS.tokens),
            await self.redis.dbsize(),
        )

    async def fields(self) -> dict[bytes, bytes]:
        return cast(dict[bytes, bytes], await cast(Awaitable[Any], self.redis.hgetall(KEYS.lock)))

    async def holds(self, owner: str = ME) -> int:
        return int((await self.fields()).get(owner.encode(), 0))

    async def remembered(self) -> set[bytes]:
        """The ends of acquisitions that are remembered, as `OUTCOME:ID`."""
        outcomes = {FREED: b"freed", EXPIRED: b"expired", TAKEN: b"taken", FORCED: b"forced"}
        scores = (await self.look()).tokens
        ids = {id for id in scores if id != b"token" and not id.startswith(b"freed ")}
        return {b"%b:%b" % (outcomes[int(scores[id]) % 10], id) for id in ids}

    async def marks(self) -> dict[str, int]:
        """The mark of each client, with its score."""
        tokens = (await self.look()).tokens
        return {member.decode(): int(score) for member, score in tokens.items() if member.startswith(b"freed ")}

    async def age(self, ms: int) -> None:
        """Move all keys and entries that many milliseconds into the past."""
        for key in (KEYS.lock, KEYS.tokens):
            if (ttl := await self.redis.pttl(key)) > 0:
                await self.redis.pexpire(key, max(1, ttl - ms))
        for member, score in (await self.look()).tokens.items():
            # Tokens and marks have no time.
            if member != b"token" and not member.startswith(b"freed "):
                await self.redis.zadd(KEYS.tokens, {member: score - 10 * ms})

    async def expire(self) -> None:
        """End the lease on the lock."""
        assert await self.redis.delete(KEYS.lock)


class FairTable(Table):
    """The same lock, by the scripts of a fair one; `acquire` does not wait, so that its owner stands in no line."""

    further = (b"aiolock:fair",)
    clean_script = FAIR.release_clean

    async def acquire(
        self, id: str = MINE, *, owner: str = ME, step: int = 1, holds: int = 1, ms: int = LEASE
    ) -> Reply:
        return await self._ask(id, owner, (step, holds, ms), (0, 0))

    async def wait(self, id: str, arrived: int = 0) -> Reply:
        """Send an acquire that waits; its owner has the name *id*, and has come just now, or has *arrived* earlier."""
        return await self._ask(id, id, (1, 1, LEASE), (1, arrived))

    async def _ask(self, id: str, owner: str, how: tuple[int, ...], waits: tuple[int, ...]) -> Reply:
        keys, more = (KEYS.lock, KEYS.tokens), (RETENTION, MEMORY, *waits)
        return self._noted(id, await self.run(FAIR.acquire, keys, owner, id, *how, *more))

    async def release(
        self, id: str = MINE, *, owner: str = ME, step: int = 9, left: int = 0, forget: str = ""
    ) -> Reply:
        how = (RETENTION, MEMORY, forget, KEYS.channel, "PUBLISH")
        return await self.run(FAIR.release, (KEYS.lock, KEYS.tokens), owner, id, step, left, *how)

    async def line(self) -> list[str]:
        """The line, the first one first."""
        return [member.decode()[7:] for member in (await self.look()).tokens if member.startswith(b"ticket ")]


State = Callable[[Table], Awaitable[object]]


async def free(table: Table) -> None:
    pass


async def mine(table: Table) -> None:
    await table.acquire()


async def mine_twice(table: Table) -> None:
    await table.acquire()
    await table.acquire(step=2, holds=2)


async def others(table: Table) -> None:
    await table.acquire(THEIRS, owner=OTHER)


async def earlier(table: Table) -> None:
    """This owner has the lock by an earlier acquisition than the one under test."""
    await table.acquire(EARLIER)


async def redissons(table: Table) -> None:
    await table.redis.hset(KEYS.lock, "3f0e7bd4-uuid:52", "2")
    await table.redis.pexpire(KEYS.lock, LEASE)


async def expired(table: Table) -> None:
    await table.acquire()
    await table.expire()


async def taken(table: Table) -> None:
    await expired(table)
    await others(table)


async def freed(table: Table) -> None:
    await table.acquire()
    await table.release()


async def cleanly(table: Table) -> None:
    await table.acquire()
    await table.clean()


async def cleanly_taken(table: Table) -> None:
    await cleanly(table)
    await others(table)


async def cleanly_renewed(table: Table) -> None:
    """A renewal came late, and found the lock gone."""
    await cleanly(table)
    await table.renew()


async def later_cleanly(table: Table) -> None:
    """The grant under test was lost, and the same client has freed a later grant."""
    await expired(table)
    await table.acquire(LATER)
    await table.clean(LATER)


async def kept(table: Table) -> None:
    """The lock was given back, and is kept for a while."""
    await table.acquire()
    await table.later()


async def others_kept(table: Table) -> None:
    await others(table)
    await table.later(THEIRS)


async def given_up(table: Table) -> None:
    """The release of the acquisition came before the acquire."""
    await table.release(step=2)


async def given_up_to_others(table: Table) -> None:
    await others(table)
    await table.release(step=2)


async def forced(table: Table) -> None:
    await table.acquire()
    await table.force("operator:r0")


async def forced_and_taken(table: Table) -> None:
    await forced(table)
    await others(table)


async def string(table: Table) -> None:
    await table.redis.set(KEYS.lock, "value", px=LEASE)


async def a_list(table: Table) -> None:
    await table.redis.rpush(KEYS.lock, "value")
    await table.redis.pexpire(KEYS.lock, LEASE)


async def eternal(table: Table) -> None:
    """A hash like a lock, but without an end."""
    await table.redis.hset(KEYS.lock, "3f0e7bd4-uuid:52", "1")


async def record(table: Table) -> None:
    """A hash with an end that belongs to the application."""
    await table.redis.hset(KEYS.lock, mapping={"visits": "1", "basket": "2"})
    await table.redis.pexpire(KEYS.lock, LEASE)


async def note(table: Table) -> None:
    await table.redis.hset(KEYS.lock, "page", "1 of 2")
    await table.redis.pexpire(KEYS.lock, LEASE)


async def read_write_lock(table: Table) -> None:
    """A read-write lock of Redisson, with one reader."""
    await table.redis.hset(KEYS.lock, mapping={"mode": "read", "3f0e7bd4-uuid:52": "1"})
    await table.redis.pexpire(KEYS.lock, LEASE)
