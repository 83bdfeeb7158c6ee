"""One call renews several locks: each lock has an answer of its own, in the order of the call."""

from typing import Any, cast

from aiolock._keys import LockKeys
from aiolock._scripts import ACQUIRE, RENEW
from aiolock._scripts.replies import GRANTED, LOST, TAKEN
from tests.lua.table import LEASE, ME, MEMORY, RETENTION, Table

NAMES = ("a", "b", "c", "d")


async def test_each_lock_is_answered_for_itself(table: Table) -> None:
    for name in ("a", "c"):
        await acquire(table, name, owner=ME)
    await acquire(table, "b", owner="other")
    rows = await renew(table, ms=10 * LEASE)
    assert [row[0] for row in rows] == [GRANTED, LOST, GRANTED, LOST]
    assert rows[1][1] == TAKEN
    assert rows[0][1] < rows[2][1], "the tokens belong to other locks"
    left = [await table.redis.pttl(name) for name in NAMES]
    assert [ttl > LEASE for ttl in left] == [True, False, True, False]


async def test_twice_is_once(table: Table) -> None:
    for name in NAMES:
        await acquire(table, name, owner=ME)
    first = await renew(table, ms=LEASE)
    # The same number counts for nothing.
    again = await renew(table, ms=10 * LEASE)
    assert [row[:2] for row in again] == [row[:2] for row in first]
    assert all(0 < row[2] <= LEASE for row in again)


async def acquire(table: Table, name: str, owner: str) -> None:
    keys = LockKeys.of(name, "").all
    await table.run(ACQUIRE, keys, owner, f"{owner}:{name}", 1, 1, LEASE, RETENTION, MEMORY)


async def renew(table: Table, *, ms: int) -> list[list[Any]]:
    keys = tuple(key for name in NAMES for key in LockKeys.of(name, "").all)
    each = [part for name in NAMES for part in (f"{ME}:{name}", 1, ms)]
    return cast(list[list[Any]], await table.run(RENEW, keys, RETENTION, MEMORY, *each))
