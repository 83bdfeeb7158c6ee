"""The scripts that detach and adopt: each layout, each state, and each script sent once and twice."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from aiolock._scripts import FAIR, LOCK, PERMIT, READ, WRITE, ScriptSet
from aiolock._scripts.replies import EXPIRED, FORCED, FREED, GRANTED, LOST, REFUSED, STALE, TAKEN
from tests.lua import permits, read_write, table

HOLDER, ADOPTER, SECOND, OTHER = "me:1", "worker:1", "second:1", "other:7"
DETACHED = "me:detached:0123456789abcdef:1"
KEEP, LEASE, RETENTION, MEMORY = 20_000, 30_000, 3_600_000, 60_000
BETWEEN = 500

Reply = list[Any]

# A cell has the answer of the script, and after "=" the holder afterwards. The answer is `held` if the server does not
# remember the acquisition and others have the lock, unless the primitive may have several holders.
ROWS = """
                     detach            adopt             second            take_back
free                 expired           expired           expired           expired
mine                 granted=detached  held              held              held
detached             granted           granted=adopter   granted=second    granted=nobody
adopted              taken             granted           taken             taken
adopted_and_freed    taken             stale             taken             taken
adopted_by_second    taken             taken             granted           taken
taken_back           stale             expired           expired           granted
time_over            expired           expired           expired           expired
time_over_and_taken  held              held              held              held
forced               forced            forced            forced            forced
unwanted             held              held              held              held
not_adopted          granted           held              granted=second    granted=nobody
"""
COMMANDS, *STATES = (line.split() for line in ROWS.strip().splitlines())


class Layout(ABC):
    """A primitive, by its scripts; each owner has one hold at most, whose id is made of the owner's name."""

    scripts: ScriptSet
    keys: tuple[str, ...]
    shared = False
    """The primitive may have several holders at a time."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    def id_of(self, owner: str) -> str:
        return DETACHED if owner == DETACHED else f"{owner.partition(':')[0]}:a1"

    def keys_of(self, owner: str) -> tuple[str, ...]:
        return self.keys

    more: tuple[int, ...] = ()
    """The arguments before the channel."""

    async def run(self, script: Any, owner: str, *args: object) -> Reply:
        keys = self.keys_of(owner)
        publish = ("PUBLISH",) if script.publishes else ()
        arguments = (*map(str, args), *publish)
        return cast(Reply, await self.redis.eval(script.source, len(keys), *keys, *arguments))

    async def detach(self) -> Reply:
        how = (self.id_of(HOLDER), self.id_of(DETACHED), KEEP, RETENTION, MEMORY, "", *self.more, "channel")
        return await self.run(self.scripts.detach, HOLDER, *how)

    async def adopt(self, owner: str = ADOPTER, lease: int = LEASE) -> Reply:
        how = (lease, RETENTION, MEMORY, self.id_of(DETACHED), *self.more, "channel")
        return await self.run(self.scripts.adopt, owner, *self.claim(owner), *how)

    def claim(self, owner: str) -> tuple[object, ...]:
        """The first arguments of an adoption."""
        return (self.id_of(owner),)

    @abstractmethod
    async def acquire(self, owner: str) -> Reply: ...

    async def release(self, owner: str) -> Reply:
        how = (owner, self.id_of(owner), 2, 0, RETENTION, MEMORY, "", "channel")
        return await self.run(self.scripts.release, owner, *how)

    async def force(self) -> Reply:
        how = ("operator:r1", RETENTION, MEMORY, "channel")
        return await self.run(self.scripts.force_release, HOLDER, *how)

    async def holders(self) -> set[str]:
        fields = await cast(Awaitable[Any], self.redis.hgetall(self.keys[0]))
        own = {field.decode().removesuffix(":write") for field in fields}
        return {each for each in own if not each.startswith("aiolock:") and each != "mode"}

    async def end_all(self) -> None:
        """All leases end."""
        await self.redis.delete(*[key async for key in self.redis.scan_iter() if not key.startswith(b"aiolock_token")])

    async def age(self, ms: int) -> None:
        """Let that much time pass for all keys, in milliseconds."""
        for key in [key async for key in self.redis.scan_iter()]:
            if (ttl := await self.redis.pttl(key)) > 0:
                await self.redis.pexpire(key, max(1, ttl - ms))

    async def look(self) -> dict[bytes, tuple[bytes | None, int]]:
        """Each key with its value and its time to live."""
        keys = sorted([key async for key in self.redis.scan_iter()])
        return {key: (await self.redis.dump(key), await self.redis.pttl(key)) for key in keys}


class Plain(Layout):
    scripts = LOCK
    keys = table.KEYS.all

    def claim(self, owner: str) -> tuple[object, ...]:
        return (owner, self.id_of(owner), 1, 1)

    async def acquire(self, owner: str) -> Reply:
        how = (owner, self.id_of(owner), 1, 1, LEASE, RETENTION, MEMORY)
        return await self.run(self.scripts.acquire, owner, *how)

    async def force(self) -> Reply:
        how = ("operator:r1", RETENTION, MEMORY, "", "channel")
        return await self.run(self.scripts.force_release, HOLDER, *how)


class Fair(Plain):
    scripts = FAIR

    async def acquire(self, owner: str) -> Reply:
        how = (owner, self.id_of(owner), 1, 1, LEASE, RETENTION, MEMORY, 0, 0)
        return await self.run(self.scripts.acquire, owner, *how)

    async def holders(self) -> set[str]:
        """The holders; check that the key still says that the lock is a fair one."""
        own = await super().holders()
        assert bool(own) == await self.redis.hexists(self.keys[0], "aiolock:fair")
        return own


class Read(Layout):
    scripts = READ
    keys = read_write.READS.all
    kind = "read"
    shared = True

    def keys_of(self, owner: str) -> tuple[str, ...]:
        return (*self.keys, read_write.record(owner, self.kind))

    async def acquire(self, owner: str) -> Reply:
        how = (owner, self.id_of(owner), 1, 1, LEASE, RETENTION, MEMORY, 0, "channel")
        return await self.run(self.scripts.acquire, owner, *how)

    async def force(self) -> Reply:
        keys = self.keys
        arguments = ("operator:r1", str(RETENTION), str(MEMORY), "channel", "PUBLISH")
        return cast(Reply, await self.redis.eval(self.scripts.force_release.source, len(keys), *keys, *arguments))


class Write(Read):
    scripts = WRITE
    kind = "write"
    shared = False


class Permits(Layout):
    scripts = PERMIT
    keys = permits.KEYS.all
    more = (2,)
    shared = True

    def id_of(self, owner: str) -> str:
        return f"{owner}#1"

    async def acquire(self, owner: str) -> Reply:
        how = (self.id_of(owner), LEASE, RETENTION, 2, 2, 0, 0, "channel")
        return await self.run(self.scripts.acquire, owner, *how)

    async def release(self, owner: str) -> Reply:
        how = (self.id_of(owner), RETENTION, MEMORY, "", 2, "channel")
        return await self.run(self.scripts.release, owner, *how)

    async def age(self, ms: int) -> None:
        await super().age(ms)
        ends: Any = await self.redis.zrange(self.keys[1], 0, -1, withscores=True)
        for permit, score in ends:
            await self.redis.zadd(self.keys[1], {permit: score - ms})

    async def holders(self) -> set[str]:
        members: Any = await self.redis.zrange(self.keys[1], 0, -1)
        counts = [member.decode().split("#")[0] for member in members]
        assert all(counts.count(each) == 2 for each in counts)
        return set(counts)


LAYOUTS = (Plain, Fair, Read, Write, Permits)


async def reach(layout: Layout, state: str) -> None:
    """Bring the lock into the *state*."""
    made: dict[str, Callable[[], Awaitable[object]]] = {
        "mine": lambda: layout.acquire(HOLDER),
        "detached": layout.detach,
        "adopted": layout.adopt,
        "adopted_by_second": lambda: layout.adopt(SECOND),
        "freed": lambda: layout.release(ADOPTER),
        "taken_back": lambda: layout.release(DETACHED),
        "given_up": lambda: layout.release(ADOPTER),
        "over": layout.end_all,
        "taken": lambda: layout.acquire(OTHER),
        "forced": layout.force,
    }
    steps = {
        "free": "",
        "mine": "mine",
        "unwanted": "mine taken_back",
        "adopted_and_freed": "mine detached adopted freed",
        "time_over": "mine detached over",
        "time_over_and_taken": "mine detached over taken",
        "not_adopted": "mine detached given_up",
        "detached": "mine detached",
    }.get(state, f"mine detached {state}")
    for step in steps.split():
        await made[step]()


def in_words(reply: Reply) -> str:
    status, why = reply[:2]
    if status == LOST:
        return {EXPIRED: "expired", TAKEN: "taken", FORCED: "forced", FREED: "freed"}[why]
    return {GRANTED: "granted", REFUSED: "refused", STALE: "stale"}[status]


async def send(layout: Layout, command: str) -> Reply:
    if command == "take_back":
        return await layout.release(DETACHED)
    return await (layout.detach() if command == "detach" else layout.adopt(ADOPTER if command == "adopt" else SECOND))


@pytest.mark.parametrize("row", STATES, ids=[row[0] for row in STATES])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_once_and_twice(redis: Redis, layout: type[Layout], row: list[str]) -> None:
    state, *cells = row
    for command, cell in zip(COMMANDS, cells, strict=True):
        await redis.flushall()
        await check(layout(redis), state, command, cell)


async def check(layout: Layout, state: str, command: str, cell: str) -> None:
    await reach(layout, state)
    holders = await layout.holders()
    answer, _, then = cell.partition("=")
    if answer == "held":
        answer = "expired" if layout.shared else "taken"
    first = await send(layout, command)
    assert in_words(first) == answer, command
    named = {"adopter": ADOPTER, "second": SECOND, "detached": DETACHED}
    expected = (set() if then == "nobody" else {named[then]}) if then else holders
    assert await layout.holders() == expected
    await layout.age(BETWEEN)
    once = await layout.look()
    second = await send(layout, command)
    assert in_words(second) == answer, command
    twice = await layout.look()
    assert twice.keys() == once.keys()
    grants_again = isinstance(layout, Permits) and (command, answer) in {("adopt", "granted"), ("second", "granted")}
    for key, (value, left) in once.items():
        assert twice[key][1] <= (RETENTION if key == layout.keys[-1].encode() else left)
        assert twice[key][0] == value or (grants_again and key == layout.keys[-1].encode()), key


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_token_of_an_adoption_is_greater_even_if_the_clock_stepped_back(
    redis: Redis, layout: type[Layout]
) -> None:
    on = layout(redis)
    future = (await redis.time())[0] * 1_000_000 + 3_600_000_000
    await redis.zadd(on.keys[-1], {"token": future})
    assert (await on.acquire(HOLDER))[1] == future + 1
    await on.detach()
    assert (await on.adopt())[1] == future + 2
    scores: Any = await redis.zscore(on.keys[-1], "token")
    assert scores == future + 2


@pytest.mark.parametrize("layout", [Plain, Fair, Read, Write])
async def test_the_token_of_an_adoption_is_greater_even_if_the_clock_stepped_back_and_the_tokens_are_gone(
    redis: Redis, layout: type[Layout]
) -> None:
    """The detached lock remembers its own token. The tokens go when memory is short, for example."""
    on = layout(redis)
    future = (await redis.time())[0] * 1_000_000 + 3_600_000_000
    await redis.zadd(on.keys[-1], {"token": future})
    await on.acquire(HOLDER)
    await on.detach()
    await redis.delete(on.keys[-1])
    assert (await on.adopt())[1] == future + 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("command", ["detach", "adopt"])
async def test_the_new_time_is_exact_and_told(redis: Redis, layout: type[Layout], command: str) -> None:
    """The adopter's lease counts, also if it is shorter than the time that was left."""
    on = layout(redis)
    await reach(on, "mine" if command == "detach" else "detached")
    wanted = KEEP if command == "detach" else LEASE
    assert (await send(on, command))[2] == wanted
    if isinstance(on, Permits):
        seconds, micros = await redis.time()
        [(_, ends), _] = cast(Any, await redis.zrange(on.keys[1], 0, -1, withscores=True))
        assert wanted - 5_000 < ends - seconds * 1000 - micros // 1000 <= wanted
    else:
        assert wanted - 5_000 < await redis.pttl(on.keys[0]) <= wanted


async def test_a_reader_detaches_beside_others(redis: Redis) -> None:
    """The lock lives as long as its longest hold."""
    on = Read(redis)
    await on.acquire(HOLDER)
    await on.acquire(OTHER)
    await on.detach()
    assert await on.holders() == {DETACHED, OTHER}
    assert LEASE - 5_000 < await redis.pttl(on.keys[0]) <= LEASE
    await on.release(OTHER)
    assert KEEP - 5_000 < await redis.pttl(on.keys[0]) <= KEEP
    await on.adopt()
    assert await on.holders() == {ADOPTER}


async def test_an_adopter_that_reads_already_is_refused(redis: Redis) -> None:
    on = Read(redis)
    await on.acquire(HOLDER)
    await on.detach()
    own = (OTHER, "other:a0", 1, 1, LEASE, RETENTION, MEMORY, 0, "channel")
    await on.run(READ.acquire, OTHER, *own)
    assert in_words(await on.adopt(OTHER)) == "refused"
    assert await on.holders() == {DETACHED, OTHER}
    assert in_words(await on.adopt()) == "granted"


async def and_reads(writing: Write) -> None:
    """HOLDER writes, and reads for the time that is left."""
    await writing.acquire(HOLDER)
    own = (HOLDER, "me:a2", 1, 1, LEASE, RETENTION, MEMORY, 0, "channel")
    await Read(writing.redis).run(READ.acquire, HOLDER, *own)


async def fields(redis: Redis) -> set[str]:
    found = await cast(Awaitable[Any], redis.hgetall(Read.keys[0]))
    return {f"mode {value.decode()}" if field == b"mode" else field.decode() for field, value in found.items()}


async def test_a_writer_that_reads_is_not_detached(redis: Redis) -> None:
    """Its owner would go on reading while the adopter writes."""
    writing = Write(redis)
    await and_reads(writing)
    for _ in range(2):
        assert in_words(await writing.detach()) == "refused"
        assert await fields(redis) == {"mode write", HOLDER, f"{HOLDER}:write"}
    await redis.delete(read_write.record(HOLDER, "read"))
    assert in_words(await writing.detach()) == "granted"
    assert await fields(redis) == {"mode write", f"{DETACHED}:write"}


async def detach_what_it_reads(redis: Redis) -> None:
    reading = Read(redis)
    how = ("me:a2", DETACHED, KEEP, RETENTION, MEMORY, "", "channel")
    assert in_words(await reading.run(READ.detach, HOLDER, *how)) == "granted"


async def test_a_writer_that_has_expired_does_not_stay_when_its_reader_is_detached(redis: Redis) -> None:
    writing = Write(redis)
    await and_reads(writing)
    await redis.delete(read_write.record(HOLDER, "write"))
    async with redis.pubsub() as heard:
        await heard.subscribe("channel")
        assert (await heard.get_message(timeout=5))["type"] == "subscribe"
        await redis.pexpire(read_write.record(HOLDER, "read"), 1_000)
        await detach_what_it_reads(redis)
        assert (await heard.get_message(timeout=5))["data"] == b"1"
    assert await fields(redis) == {"mode read", DETACHED}


async def test_a_writer_that_expires_after_its_reader_was_detached_keeps_nobody_out(redis: Redis) -> None:
    writing = Write(redis)
    await and_reads(writing)
    await detach_what_it_reads(redis)
    await redis.delete(read_write.record(HOLDER, "write"))
    own = (OTHER, "other:a1", 1, 1, LEASE, RETENTION, MEMORY, 0, "channel")
    assert in_words(await Read(redis).run(READ.acquire, OTHER, *own)) == "granted"
    assert await fields(redis) == {"mode read", DETACHED, OTHER}


async def test_redissons_waiters_are_told_the_number_of_permits_that_end_sooner(redis: Redis) -> None:
    """Redisson's waiters do not ask again at a message of zero, which is the number that is available now."""
    layout = Permits(redis)
    async with redis.pubsub() as heard:
        await heard.subscribe("channel")
        assert (await heard.get_message(timeout=5))["type"] == "subscribe"
        await layout.acquire(HOLDER)
        await layout.detach()
        assert (await heard.get_message(timeout=5))["data"] == b"2"
        await layout.adopt(lease=BETWEEN)
        assert (await heard.get_message(timeout=5))["data"] == b"2"


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_detach_remembers_no_end_that_it_is_told_to_forget(redis: Redis, layout: type[Layout]) -> None:
    """The next command that ends an acquisition of the name lets this end be forgotten."""
    on = layout(redis)
    await on.acquire(HOLDER)
    await redis.zadd(on.keys[-1], {"me:a0": 5})
    how = (on.id_of(HOLDER), on.id_of(DETACHED), KEEP, RETENTION, MEMORY, "me:a0", *on.more, "channel")
    await on.run(on.scripts.detach, HOLDER, *how)
    members: Any = await redis.zrange(on.keys[-1], 0, -1)
    assert set(members) == {b"token", on.id_of(HOLDER).encode()}
