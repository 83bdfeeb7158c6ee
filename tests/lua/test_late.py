"""A command that arrives out of its turn does nothing, before, between and after the commands that overtook it."""

from collections.abc import Awaitable, Callable

import pytest

from aiolock._scripts.replies import EXPIRED, FORCED, GRANTED, LOST, REFUSED, STALE, TAKEN
from tests.lua.table import EARLIER, KEYS, LEASE, ME, OTHER, THEIRS, Reply, Table, expired, forced, freed, redissons


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


async def test_the_first_acquire_after_a_nested_one_changes_no_count(table: Table) -> None:
    token = (await table.acquire())[1]
    await table.acquire(step=2, holds=2)
    assert (await untouched(table, table.acquire))[:2] == [GRANTED, token]
    assert await table.holds() == 2


async def test_a_nested_acquire_after_its_release_changes_no_count(table: Table) -> None:
    await table.acquire()
    await table.release(step=3, left=1)
    answer = await untouched(table, lambda: table.acquire(step=2, holds=2, ms=10 * LEASE))
    assert answer[0] == GRANTED
    assert await table.holds() == 1


async def test_a_release_to_one_after_the_next_nested_acquire_changes_no_count(table: Table) -> None:
    await table.acquire()
    await table.acquire(step=2, holds=2)
    await table.acquire(step=4, holds=2)
    assert await untouched(table, lambda: table.release(step=3, left=1)) == [GRANTED, 0, 0]
    assert await table.holds() == 2


@pytest.mark.parametrize("number", [1, 2, 9, 10])
async def test_a_renewal_with_an_earlier_or_equal_number_lengthens_nothing(table: Table, number: int) -> None:
    token = (await table.acquire())[1]
    await table.renew(number=10)
    answer = await untouched(table, lambda: table.renew(number=number, ms=10 * LEASE))
    assert answer[:2] == [GRANTED, token]
    assert LEASE - 10_000 < answer[2] <= LEASE - 1_000, "the answer must have the time that is left"


async def test_steps_and_renewals_are_compared_as_numbers(table: Table) -> None:
    await table.acquire()
    await table.acquire(step=9, holds=2)
    await table.acquire(step=10, holds=3)
    await table.renew(number=9)
    await table.renew(number=10, ms=2 * LEASE)
    assert await table.holds() == 3
    assert (await table.look()).lock_ttl > LEASE


@pytest.mark.parametrize("end", [expired, freed, forced], ids=lambda end: end.__name__)
async def test_a_renewal_revives_nothing(table: Table, end: Callable[[Table], Awaitable[None]]) -> None:
    await end(table)
    assert (await table.renew())[0] == LOST
    assert (await table.look()).lock is None


@pytest.mark.parametrize(
    "told",
    [
        lambda table: table.renew(),
        lambda table: table.acquire(step=2, holds=2),
        lambda table: table.release(step=2, left=1),
        lambda table: table.release(step=2, left=0),
    ],
    ids=["renewal", "nested acquire", "release to 1", "release to 0"],
)
async def test_an_acquisition_that_was_told_of_its_loss_is_granted_nothing_any_more(
    table: Table, told: Callable[[Table], Awaitable[Reply]]
) -> None:
    await expired(table)
    assert await told(table) == [LOST, EXPIRED, 0]
    assert await table.acquire() == [STALE, 0, 0]
    assert (await table.look()).lock is None


async def test_an_acquire_after_its_release_is_stale(table: Table) -> None:
    await freed(table)
    assert await untouched(table, table.acquire) == [STALE, 0, 0]


async def test_an_acquire_after_it_was_given_up_is_stale(table: Table) -> None:
    await table.release(step=2)
    assert await untouched(table, table.acquire) == [STALE, 0, 0]


async def test_an_acquire_after_it_was_forced_is_stale(table: Table) -> None:
    await forced(table)
    assert await untouched(table, table.acquire) == [STALE, 0, 0]


async def test_an_acquire_after_its_release_is_stale_also_while_another_holds(table: Table) -> None:
    await freed(table)
    await table.acquire(THEIRS, owner=OTHER)
    assert await untouched(table, table.acquire) == [STALE, 0, 0]


async def test_the_end_of_an_acquisition_outlives_that_of_others(table: Table) -> None:
    await freed(table)
    for number in range(50):
        await table.acquire(f"other:{number}", owner=OTHER)
        await table.release(f"other:{number}", owner=OTHER)
    assert await untouched(table, table.acquire) == [STALE, 0, 0]


@pytest.mark.parametrize("left", [0, 1])
async def test_the_release_of_an_earlier_acquisition_leaves_the_present_one_alone(table: Table, left: int) -> None:
    await table.acquire(EARLIER)
    await table.release(EARLIER)
    await table.acquire()
    assert await untouched(table, lambda: table.release(EARLIER, step=99, left=left)) == [GRANTED, 0, 0]
    assert await table.holds() == 1


async def test_the_release_of_an_expired_acquisition_leaves_the_present_one_alone(table: Table) -> None:
    await table.acquire(EARLIER)
    await table.expire()
    await table.acquire()
    assert await table.release(EARLIER) == [LOST, TAKEN, 0]
    assert await table.holds() == 1


async def test_the_renewal_of_an_earlier_acquisition_leaves_the_present_one_alone(table: Table) -> None:
    await freed(table)
    await table.acquire("me:a3")
    assert (await untouched(table, lambda: table.renew(number=99, ms=10 * LEASE)))[:2] == [LOST, TAKEN]


async def test_a_nested_acquire_never_becomes_a_first_one(table: Table) -> None:
    await expired(table)
    assert await table.acquire(step=2, holds=2) == [LOST, EXPIRED, 0]
    assert (await table.look()).lock is None


async def test_a_force_release_again_leaves_the_next_holder_alone(table: Table) -> None:
    await forced(table)
    await table.acquire(THEIRS, owner=OTHER)
    assert await untouched(table, lambda: table.force("operator:r0")) == [GRANTED, 1, 0]
    assert await table.holds(OTHER) == 1


async def test_a_force_release_of_nobody_again_leaves_the_next_holder_alone(table: Table) -> None:
    assert await table.force() == [GRANTED, 0, 0]
    await table.acquire(THEIRS, owner=OTHER)
    assert await untouched(table, table.force) == [GRANTED, 0, 0]


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


async def test_why_it_was_lost_is_told_after_others_came_and_went(table: Table) -> None:
    await forced(table)
    await table.acquire(THEIRS, owner=OTHER)
    assert (await table.release())[:2] == [LOST, FORCED]
    await table.release(THEIRS, owner=OTHER)
    assert (await table.release())[:2] == [LOST, FORCED]


async def test_a_grant_or_a_renewal_never_shortens(table: Table) -> None:
    await table.acquire(ms=10 * LEASE)
    for answer in [await table.acquire(step=2, holds=2, ms=LEASE), await table.renew(ms=LEASE)]:
        assert answer[2] > 9 * LEASE
    assert (await table.look()).lock_ttl > 9 * LEASE


async def test_a_grant_to_another_waits_for_the_last_release(table: Table) -> None:
    await table.acquire()
    await table.acquire(step=2, holds=2)
    await table.release(step=3, left=1)
    assert (await table.acquire(THEIRS, owner=OTHER))[0] == REFUSED
    await table.release(step=4, left=0)
    assert (await table.acquire(THEIRS, owner=OTHER))[0] == GRANTED
    assert (await table.fields()).keys() >= {OTHER.encode()}
    assert ME.encode() not in await table.fields()


async def test_questions_change_nothing(table: Table) -> None:
    await table.acquire()
    await untouched(table, table.inspect)
    assert await table.redis.exists(KEYS.lock, KEYS.tokens) == 2
