"""Fencing tokens only grow, although keys are lost, and they are whole numbers to the last digit."""

import pytest

from aiolock._scripts import RAISE
from aiolock._scripts.replies import GRANTED
from tests.lua.table import (
    KEYS,
    LEASE,
    MINE,
    OTHER,
    RETENTION,
    THEIRS,
    Table,
)


async def token_of(table: Table, id: str = MINE) -> int:
    status, token, *_ = await table.acquire(id)
    assert status == GRANTED
    assert isinstance(token, int)
    return token


async def test_the_token_is_the_servers_time_in_microseconds(table: Table) -> None:
    before = await table.redis.time()
    token = await token_of(table)
    after = await table.redis.time()
    assert micros(before) <= token <= micros(after)


def micros(time: tuple[int, int]) -> int:
    return time[0] * 1_000_000 + time[1]


async def test_it_grows_by_one_when_the_clock_has_stepped_back(table: Table) -> None:
    future = await token_of(table, "me:a0") + 3_600_000_000
    await table.expire()
    await table.redis.zadd(KEYS.tokens, {"token": future})
    for number in range(1, 4):
        await table.redis.pexpire(KEYS.tokens, LEASE)
        assert await token_of(table, f"me:a{number}") == future + number
        assert (await table.look()).tokens_ttl > RETENTION - 1_000, "the retention begins again"
        await table.release(f"me:a{number}")
    assert (await table.look()).tokens[b"token"] == future + 3


async def test_it_is_exact_where_lua_would_round_it(table: Table) -> None:
    # A sorted set keeps these last numbers exactly, and Lua prints them as 9.007199254741e+15.
    far = 2**53 - 10
    await table.redis.zadd(KEYS.tokens, {"token": far})
    assert await token_of(table) == far + 1
    assert (await table.fields())[b"aiolock:token"] == str(far + 1).encode()
    assert (await table.look()).tokens[b"token"] == far + 1
    for answer in [await table.acquire(), await table.acquire(step=2, holds=2), await table.renew()]:
        assert answer[1] == far + 1


async def test_a_refusal_uses_up_no_token(table: Table) -> None:
    token = await token_of(table, THEIRS)
    await table.acquire(MINE)
    assert (await table.look()).tokens == {b"token": token}


@pytest.mark.parametrize("act", ["acquire", "renew", "release", "clean release", "give up", "force"])
async def test_the_retention_starts_again_with_each_use(table: Table, act: str) -> None:
    """A grant starts the retention again at most once a second."""
    token = await token_of(table)
    await table.redis.pexpire(KEYS.tokens, LEASE)
    await table.redis.zadd(KEYS.tokens, {"token": token - 1_000_000})
    match act:
        case "acquire":
            await table.redis.delete(KEYS.lock)
            await token_of(table, THEIRS)
        case "renew":
            await table.renew()
        case "release":
            await table.release()
        case "clean release":
            await table.clean()
        case "give up":
            await table.release(THEIRS, owner=OTHER)
        case _:
            await table.force()
    assert RETENTION - 1_000 < (await table.look()).tokens_ttl <= RETENTION


async def test_a_late_raise_lowers_nothing(table: Table) -> None:
    """A server of a quorum gets the raise of the first hold after that of a nested one."""
    token = await token_of(table)
    for raised in (token + 20, token + 10):
        assert (await table.run(RAISE, KEYS.all, raised, MINE, RETENTION))[0] == GRANTED
        assert (await table.fields())[b"aiolock:token"] == str(token + 20).encode()
        assert (await table.look()).tokens[b"token"] == token + 20
