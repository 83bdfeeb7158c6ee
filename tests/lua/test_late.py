"""A command that arrives out of its turn does nothing, before, between and after the commands that overtook it."""

from collections.abc import Awaitable, Callable

from aiolock._scripts.replies import FORCED, GRANTED, LOST, STALE
from tests.lua.table import LEASE, OTHER, THEIRS, Reply, Table, freed, redissons


async def untouched(table: Table, late: Callable[[], Awaitable[Reply]]) -> Reply:
    """The answer to *late*, which must change nothing."""
    await table.age(1_000)
    before = await table.look()
    answer = await late()
    after = await table.look()
    assert after.lock == before.lock
    assert after.lock_ttl <= before.lock_ttl
    assert after.tokens_ttl <= before.tokens_ttl
    assert after.tokens == before.tokens
    return answer


async def test_steps_and_renewals_are_compared_as_numbers(table: Table) -> None:
    await table.acquire()
    await table.acquire(step=9, holds=2)
    await table.acquire(step=10, holds=3)
    await table.renew(number=9)
    await table.renew(number=10, ms=2 * LEASE)
    assert await table.holds() == 3
    assert (await table.look()).lock_ttl > LEASE


async def test_the_end_of_an_acquisition_outlives_that_of_others(table: Table) -> None:
    await freed(table)
    for number in range(50):
        await table.acquire(f"other:{number}", owner=OTHER)
        await table.release(f"other:{number}", owner=OTHER)
    assert await untouched(table, table.acquire) == [STALE, 0, 0]


async def test_a_force_release_of_a_token_frees_that_holder_once(table: Table) -> None:
    token = (await table.acquire())[1]
    assert await table.force(token=token) == [GRANTED, 1, 0]
    assert (await table.release())[:2] == [LOST, FORCED]
    await table.acquire(THEIRS, owner=OTHER)
    assert await untouched(table, lambda: table.force(token=token)) == [GRANTED, 1, 0]
    assert await table.force("operator:r2", token=token) == [GRANTED, 0, 0]
    assert await table.holds(OTHER) == 1


async def test_a_force_release_of_a_token_leaves_a_holder_without_one_alone(table: Table) -> None:
    await redissons(table)
    held = (await table.look()).lock
    for _ in range(2):
        assert await table.force(token=1) == [GRANTED, 0, 0]
        assert (await table.look()).lock == held
