"""A read-write lock, by its scripts: a test brings it into any state, sends it any script, and looks at all keys."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from aiolock._core.commands import _TURN
from aiolock._keys import LockKeys
from aiolock._scripts import INSPECT_READ_WRITE, READ, WRITE, Script, ScriptSet

READS, WRITES = LockKeys.of_read_write("orders", "")
LOCK, TOKENS = READS.all
ME, OTHER, THIRD, JAVA = "me:1", "other:7", "third:1", "3f0e7bd4-uuid:52"
# A writer has a capital letter.
LETTERS = {ME: "m", OTHER: "o", THIRD: "t", JAVA: "j"}
MINE = {"read": "me:r2", "write": "me:w2"}
REQUEST = "operator:r1"

LEASE = 30_000
RETENTION = 3_600_000
MEMORY = 60_000
KEEPS = _TURN

Reply = list[Any]

# A script does this for all keys at one moment.
_REDISSON = """
redis.call('HSET', KEYS[1], 'mode', ARGV[1], ARGV[2], ARGV[3])
for i = 2, #KEYS do redis.call('SET', KEYS[i], '1') end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[4]) end"""
_LEFT = "local left = {} for i, key in ipairs(KEYS) do left[i] = redis.call('PTTL', key) end return left"
_AGE = """
for _, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left > 0 then redis.call('PEXPIRE', key, math.max(0, left - ARGV[1])) end
end"""


@dataclass(frozen=True)
class Sight:
    """Everything that the scripts may change; times are in milliseconds."""

    fields: dict[bytes, bytes]
    # This is what DUMP answers.
    lock: bytes | None
    lock_ttl: int
    records: dict[str, tuple[bytes | None, int]]
    tokens: dict[bytes, float]
    keys: int

    @property
    def turn(self) -> str | None:
        """The acquisition that keeps others from overtaking."""
        return next((member.decode()[5:] for member, score in self.tokens.items() if score < 0), None)

    @property
    def holds(self) -> str:
        """The holders and their hold counts, in letters."""
        named: list[str] = []
        for owner, letter in LETTERS.items():
            for field, sign in ((owner, letter), (f"{owner}:write", letter.upper())):
                named += [f"{sign}{count.decode()}"] if (count := self.fields.get(field.encode())) else []
        return "".join(sorted(named)) or "free"


def record(owner: str, kind: str) -> str:
    """The key of the record of *owner*, of one *kind*."""
    prefix, suffix = cast(tuple[str, str], (READS if kind == "read" else WRITES).record)
    return f"{prefix}{owner}{suffix}"


class Table:
    """The lock `orders`, on a server that has nothing else."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    async def run(self, script: Script, keys: tuple[str, ...], *args: str | int) -> Reply:
        publish = ("PUBLISH",) if script.publishes else ()
        return cast(Reply, await self.redis.eval(script.source, len(keys), *keys, *map(str, args), *publish))

    # The scripts.

    async def acquire(
        self,
        kind: str,
        owner: str = ME,
        *,
        id: str = "",
        step: int = 1,
        holds: int = 1,
        waits: bool = True,
        ms: int = LEASE,
    ) -> Reply:
        id = id or (MINE[kind] if owner == ME else f"{owner}.{kind}")
        how = (owner, id, step, holds, ms, RETENTION, MEMORY, KEEPS if waits else 0, READS.channel)
        return await self.run(_scripts(kind).acquire, (LOCK, TOKENS, record(owner, kind)), *how)

    async def release(
        self, kind: str, owner: str = ME, *, id: str = "", step: int = 9, left: int = 0, forget: str = ""
    ) -> Reply:
        id = id or (MINE[kind] if owner == ME else f"{owner}.{kind}")
        how = (owner, id, step, left, RETENTION, MEMORY, forget, READS.channel)
        return await self.run(_scripts(kind).release, (LOCK, TOKENS, record(owner, kind)), *how)

    async def renew(self, kind: str, *, number: int = 1, ms: int = LEASE) -> Reply:
        keys = (LOCK, TOKENS, record(ME, kind))
        [reply] = await self.run(_scripts(kind).renew, keys, RETENTION, MEMORY, MINE[kind], number, ms)
        return cast(Reply, reply)

    async def force(self, kind: str, request: str = REQUEST) -> Reply:
        how = (request, RETENTION, MEMORY, READS.channel)
        return await self.run(_scripts(kind).force_release, (LOCK, TOKENS), *how)

    async def inspect(self, named: int = 10) -> Reply:
        return await self.run(INSPECT_READ_WRITE, (LOCK,), named, "")

    # The keys at the beginning.

    async def look(self) -> Sight:
        kind = await self.redis.type(LOCK)
        fields = await cast(Awaitable[Any], self.redis.hgetall(LOCK)) if kind == b"hash" else {}
        records = sorted([key.decode() async for key in self.redis.scan_iter("*:rwlock_timeout:*")])
        left, *lefts = await self.redis.eval(_LEFT, 1 + len(records), LOCK, *records)
        return Sight(
            fields,
            await self.redis.dump(LOCK),
            left,
            {key: (await self.redis.dump(key), ttl) for key, ttl in zip(records, lefts, strict=True)},
            dict(cast(Any, await self.redis.zrange(TOKENS, 0, -1, withscores=True))),
            await self.redis.dbsize(),
        )

    async def age(self, ms: int) -> None:
        """Move all keys and entries that many milliseconds into the past."""
        sight = await self.look()
        keys = (LOCK, TOKENS, *sight.records)
        await self.redis.eval(_AGE, len(keys), *keys, str(ms))
        for member, score in sight.tokens.items():
            if member != b"token":
                await self.redis.zadd(TOKENS, {member: score + ms if score < 0 else score - 10 * ms})


def _scripts(kind: str) -> ScriptSet:
    return READ if kind == "read" else WRITE


State = Callable[[Table], Awaitable[object]]


async def free(table: Table) -> None:
    """Nobody ever had it."""


async def i_read(table: Table) -> None:
    await table.acquire("read")


async def i_read_twice(table: Table) -> None:
    await table.acquire("read")
    await table.acquire("read", step=2, holds=2)


async def we_read(table: Table) -> None:
    await table.acquire("read")
    await table.acquire("read", OTHER)


async def i_write(table: Table) -> None:
    await table.acquire("write")


async def i_write_and_read(table: Table) -> None:
    await table.acquire("write")
    await table.acquire("read")


async def others_read(table: Table) -> None:
    await table.acquire("read", OTHER)


async def others_write(table: Table) -> None:
    await table.acquire("write", OTHER)


async def earlier_read(table: Table) -> None:
    """This owner reads by an earlier acquisition than the one under test."""
    await table.acquire("read", id="me:r1")


async def earlier_write(table: Table) -> None:
    await table.acquire("write", id="me:w1")


async def i_wait_to_write(table: Table) -> None:
    await others_read(table)
    await table.acquire("write")


async def i_wait_to_read(table: Table) -> None:
    await others_write(table)
    await table.acquire("read")


async def writer_is_next(table: Table) -> None:
    await others_read(table)
    await table.acquire("write", THIRD)


async def reader_is_next(table: Table) -> None:
    """The lock is free, but the reader that is next has not asked again since."""
    await others_write(table)
    await table.acquire("read", THIRD)
    await table.release("write", OTHER)


async def read_expired(table: Table) -> None:
    await table.acquire("read")
    await table.age(LEASE)


async def read_expired_beside_others(table: Table) -> None:
    await table.acquire("read", ms=1_000)
    await others_read(table)
    await table.age(1_000)


async def write_expired(table: Table) -> None:
    await table.acquire("write")
    await table.age(LEASE)


async def write_expired_and_i_read(table: Table) -> None:
    await table.acquire("write", ms=1_000)
    await table.acquire("read")
    await table.age(1_000)


async def write_was_taken(table: Table) -> None:
    await write_expired(table)
    await others_write(table)


async def read_freed(table: Table) -> None:
    await table.acquire("read")
    await table.release("read")


async def write_freed(table: Table) -> None:
    await table.acquire("write")
    await table.release("write")


async def given_up(table: Table) -> None:
    """The releases of the acquisitions came before the acquires."""
    await table.release("read", step=2)
    await table.release("write", step=2)


async def forced(table: Table) -> None:
    await i_write_and_read(table)
    await table.force("read", "operator:a")
    await table.force("write", "operator:b")


async def forced_and_taken(table: Table) -> None:
    await forced(table)
    await others_write(table)


async def redisson_reads(table: Table) -> None:
    """A thread of Redisson reads, with two holds."""
    records = [f"{{{LOCK}}}:{JAVA}:rwlock_timeout:{number}" for number in (1, 2)]
    await _redisson(table, "read", JAVA, "2", *records)


async def redisson_writes(table: Table) -> None:
    await _redisson(table, "write", f"{JAVA}:write", "1")


async def forced_by_redisson(table: Table) -> None:
    """Redisson deletes the lock, and leaves our records."""
    await i_write_and_read(table)
    await table.redis.delete(LOCK)


async def _redisson(table: Table, mode: str, field: str, count: str, *records: str) -> None:
    await table.redis.eval(_REDISSON, 1 + len(records), LOCK, *records, mode, field, count, str(LEASE))


async def string(table: Table) -> None:
    await table.redis.set(LOCK, "value", px=LEASE)


async def eternal(table: Table) -> None:
    """A hash like a read-write lock, but without an end."""
    await table.redis.hset(LOCK, mapping={"mode": "read", JAVA: "1"})


async def plain_lock(table: Table) -> None:
    await table.redis.hset(LOCK, JAVA, "1")
    await table.redis.pexpire(LOCK, LEASE)


async def note(table: Table) -> None:
    """A hash with an end that belongs to the application."""
    await table.redis.hset(LOCK, mapping={"mode": "dark"})
    await table.redis.pexpire(LOCK, LEASE)
