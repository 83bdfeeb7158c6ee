"""Clients of earlier versions beside ours, on one name: one holder at a time, and each loss is told, and no other."""

from random import Random
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from aiolock._scripts.replies import FORCED, FREED, GRANTED, LOST, REFUSED, TAKEN
from tests.lua.older import VERSIONS, older
from tests.lua.table import KEYS, LEASE, MEMORY, RETENTION, FairTable, Reply, Table
from tests.lua.test_detached_twice import DETACHED, Fair, Plain


class OldTable(Table):
    """The lock by the scripts of an earlier version, as a plain or a fair one."""

    def __init__(self, redis: Redis, version: str, kind: str) -> None:
        super().__init__(redis)
        self._version, self._kind = version, kind

    async def _run(self, name: str, *args: str | int) -> Any:
        source = older(self._version, name).source
        return await self.redis.eval(source, 2, KEYS.lock, KEYS.tokens, *map(str, args))

    async def acquire(self, id: str, **_: object) -> Reply:  # type: ignore[override]
        waits = (0, 0) if self._kind else ()
        how = (id, id, 1, 1, LEASE, RETENTION, MEMORY, *waits)
        return self._noted(id, cast(Reply, await self._run(f"{self._kind}acquire", *how)))

    async def clean(self, id: str, **_: object) -> Reply:  # type: ignore[override]
        """The release of that version, which remembers the id."""
        how = (id, id, 2, 0, RETENTION, MEMORY, "", KEYS.channel, "PUBLISH")
        return cast(Reply, await self._run(f"{self._kind}release", *how))

    async def renew(self, id: str, **_: object) -> Reply:  # type: ignore[override]
        [reply] = await self._run("renew", RETENTION, MEMORY, id, 1, LEASE)
        return cast(Reply, reply)

    async def force(self, request: str, **_: object) -> Reply:  # type: ignore[override]
        any_token = () if self._version == "one" else ("",)
        how = (request, RETENTION, MEMORY, *any_token, KEYS.channel, "PUBLISH")
        return cast(Reply, await self._run("force_release", *how))


class NewTable(Table):
    async def acquire(self, id: str, **_: object) -> Reply:  # type: ignore[override]
        return await super().acquire(id, owner=id)


class NewFairTable(FairTable):
    async def acquire(self, id: str, **_: object) -> Reply:  # type: ignore[override]
        return await super().acquire(id, owner=id)


class Company:
    """Clients of both versions, and what must be true of the lock."""

    def __init__(self, redis: Redis, version: str, seed: int) -> None:
        self._random = Random(seed)
        self._redis = redis
        old = [OldTable(redis, version, kind) for kind in ("", "fair_")]
        self._tables: list[Table] = [*old, NewTable(redis), NewFairTable(redis)]
        self._number = 0
        self._holder: tuple[Table, str] | None = None

    async def step(self) -> None:
        """Let one client do something."""
        acts = [self._acquire, self._acquire, self._release, self._release, self._renew, self._lose, self._force]
        await self._random.choice(acts)()

    async def _acquire(self) -> None:
        self._number += 1
        place = self._random.randrange(len(self._tables))
        # Three clients by each table.
        table, id = self._tables[place], f"{self._random.choice('abc')}{place}:{self._number}"
        status = (await table.acquire(id))[0]
        assert status == (GRANTED if self._holder is None else REFUSED)
        if self._holder is None:
            self._holder = table, id

    async def _release(self) -> None:
        """The client sends its release twice, at times."""
        if self._holder is None:
            return
        table, id = self._holder
        for _ in range(self._random.choice((1, 2))):
            assert (await table.clean(id, mark=f"freed {id.partition(':')[0]}"))[0] == GRANTED
        self._holder = None

    async def _renew(self) -> None:
        if self._holder is not None:
            table, id = self._holder
            assert (await table.renew(id))[:2] == [GRANTED, table.granted[id]]

    async def _lose(self) -> None:
        """Redisson, or an operator, deletes the key; another may be granted the lock before the release comes."""
        if self._holder is None:
            return
        table, id = self._holder
        await self._redis.delete(KEYS.lock)
        self._holder = None
        await self._told_of_loss(table, id)

    async def _force(self) -> None:
        if self._holder is None:
            return
        table, id = self._holder
        self._number += 1
        reply = await self._random.choice(self._tables).force(f"operator:{self._number}")
        assert reply == [GRANTED, 1, 0]
        self._holder = None
        await self._told_of_loss(table, id, FORCED)

    async def _told_of_loss(self, table: Table, id: str, why: int | None = None) -> None:
        taken = self._random.random() < 0.5
        if taken:
            await self._acquire()
        for _ in range(self._random.choice((1, 2))):
            status, reason, _ = await table.clean(id, mark=f"freed {id.partition(':')[0]}")
            assert status == LOST
            assert reason != FREED
            assert reason == (why or (TAKEN if taken else reason))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("version", VERSIONS)
async def test_clients_of_two_versions_share_a_name(redis: Redis, version: str, seed: int) -> None:
    company = Company(redis, version, seed)
    for _ in range(300):
        await company.step()
    assert await redis.pttl(KEYS.tokens) > 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["", "fair_"])
async def test_an_older_client_respects_a_detached_lock_and_can_free_it(redis: Redis, version: str, kind: str) -> None:
    on, old = Fair(redis) if kind else Plain(redis), OldTable(redis, version, kind)
    await on.acquire("me:1")
    await on.detach()
    assert (await old.acquire("old:a1"))[0] == REFUSED
    assert (await old.renew("old:a1"))[:2] == [LOST, TAKEN]
    assert await on.holders() == {DETACHED}
    assert (await old.force("operator:r9"))[:2] == [GRANTED, 1]
    assert (await on.adopt())[:2] == [LOST, FORCED]
    assert (await old.acquire("old:a2"))[0] == GRANTED
