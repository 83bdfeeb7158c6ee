"""Permits: a number at once, each for a time, in one client and in several."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from aiolock import (
    AsyncSemaphore,
    Lease,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    Lost,
    NotALockError,
    NotHeldError,
)
from aiolock._scripts.replies import Granted
from tests.support.inside import hold_of, queue_of, session_of
from tests.support.observe import all_parked, until
from tests.support.waiters import waits_quietly

NAME = "places"


@pytest.fixture
def two(locks: LockClient) -> AsyncSemaphore:
    """Two permits."""
    return locks.semaphore(NAME, 2)


@pytest.fixture
def theirs(other: LockClient) -> AsyncSemaphore:
    """The same semaphore in another process."""
    return other.semaphore(NAME, 2)


def waiting(*acquires: Callable[[], Coroutine[Any, Any, Any]]) -> list[asyncio.Task[Lease]]:
    return [asyncio.create_task(in_a_task_of_its_own(each)) for each in acquires]


async def in_a_task_of_its_own(acquire: Callable[[], Coroutine[Any, Any, Any]]) -> Lease:
    lease: Lease = await acquire()
    return lease


async def members(redis: Redis) -> list[bytes]:
    """The permits that are acquired, as they stand in Redis."""
    return cast(list[bytes], await redis.zrange(f"{{{NAME}}}:timeout", 0, -1))


# The limit of holders.


async def test_a_waiter_for_too_many_that_leaves_lets_those_behind_try(two: AsyncSemaphore, locks: LockClient) -> None:
    [too_many] = waiting(lambda: two.acquire(5))
    await all_parked(locks, 1)
    [behind] = waiting(two.acquire)
    await until(lambda: locks.statistics().parked == 2)
    too_many.cancel()
    assert (await asyncio.wait_for(behind, 10)).name == NAME


async def test_acquires_at_the_same_moment_are_granted_in_order_for_any_number_of_permits(
    two: AsyncSemaphore, theirs: AsyncSemaphore, locks: LockClient
) -> None:
    await two.set_permits(4)
    held = await theirs.acquire(4)
    order: list[int] = []

    async def take(permits: int) -> None:
        async with two.hold(permits=permits):
            order.append(permits)

    tasks = [asyncio.create_task(take(permits)) for permits in (3, 1, 4, 2)]
    await all_parked(locks, 4)
    await held.release()
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert order == [3, 1, 4, 2]


async def test_a_turn_ends_with_its_waiter_though_a_try_was_handed_to_it(
    two: AsyncSemaphore, locks: LockClient, redis: Redis
) -> None:
    held, other = await two.acquire(), await two.acquire()
    [several] = waiting(lambda: two.acquire(2))
    await all_parked(locks, 1)
    releasing = asyncio.create_task(held.release())
    several.cancel()
    await asyncio.wait([releasing, several])
    await until(lambda: locks.statistics().pending == 0)
    assert not await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0")
    await other.release()


async def test_a_turn_ends_when_there_are_too_few_for_it(
    two: AsyncSemaphore, theirs: AsyncSemaphore, locks: LockClient, redis: Redis
) -> None:
    async def nobody_is_next() -> bool:
        return not await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0")

    async with theirs:
        [several] = waiting(lambda: two.acquire(2))
        await until(lambda: waits_quietly(locks, two))
        assert not await nobody_is_next()
        await theirs.set_permits(1)
        await until(nobody_is_next)
    async with theirs:
        several.cancel()


async def test_a_message_is_not_forgotten_for_a_grant_that_is_older(
    two: AsyncSemaphore, theirs: AsyncSemaphore, locks: LockClient
) -> None:
    """The permit that came back meanwhile is another one than the granted one."""
    held = await theirs.acquire(2)
    [waits] = waiting(two.acquire)
    await until(lambda: waits_quietly(locks, two))
    queue = queue_of(two)
    assert queue is not None
    queue._sits_out = 1
    await held.release()
    await until(lambda: queue._sits_out == 0)
    queue.granted(Granted(0, 60, others_after=60, free=0))
    assert (await asyncio.wait_for(waits, 10)).name == NAME


async def test_a_waiter_for_several_is_not_overtaken(
    two: AsyncSemaphore, theirs: AsyncSemaphore, locks: LockClient
) -> None:
    """No waiter of its own client or of others passes it; it is served as soon as enough permits have come back."""
    one, other = await theirs.acquire(), await theirs.acquire()
    [several] = waiting(lambda: two.acquire(2))
    await until(lambda: waits_quietly(locks, two))
    await one.release()
    assert await theirs.try_acquire() is None
    assert await two.try_acquire() is None
    [later] = waiting(theirs.acquire)
    await until(lambda: theirs.statistics().parked == 1)
    await other.release()
    lease = await several
    assert not later.done()
    assert lease.name == NAME
    await asyncio.wait([later], timeout=10)
    assert not later.exception()


@pytest.mark.parametrize("tasks", [1, 3])
async def test_a_waiter_for_one_is_served_among_waiters_for_all(
    two: AsyncSemaphore, redis: Redis, locks: LockClient, other: LockClient, tasks: int
) -> None:
    """Two clients take both permits, again and again, each with that many tasks; a third one wants a single permit."""
    grants: list[int] = []

    async def work(client: LockClient, permits: int) -> None:
        semaphore = client.semaphore(NAME, 2)
        while grants.count(1) < 10:
            async with semaphore.hold(permits=permits):
                grants.append(permits)
                await asyncio.sleep(0.001)

    async with LockClient(redis) as third, asyncio.timeout(30):
        wide = [asyncio.create_task(work(client, 2)) for client in [locks, other] * tasks]
        await until(lambda: grants.count(2) > 10)
        await work(third, 1)
        await asyncio.gather(*wide)
    served = [place for place, permits in enumerate(grants) if permits == 1]
    between = [later - earlier for earlier, later in pairwise(served)]
    # Each of the others is granted once, or more before the third client is subscribed and has tried again.
    assert max(between[1:]) <= 12


async def test_a_waiter_for_several_that_leaves_lets_others_pass(
    two: AsyncSemaphore, theirs: AsyncSemaphore, locks: LockClient, redis: Redis
) -> None:
    async with theirs as held:
        [several] = waiting(lambda: two.acquire(2))
        await until(lambda: waits_quietly(locks, two))
        [later] = waiting(theirs.acquire)
        await until(lambda: theirs.statistics().parked == 1)
        several.cancel()
        await asyncio.wait([several])
        await until(lambda: locks.statistics().pending == 0)
        await asyncio.wait([later], timeout=10)
        assert not later.exception()
        assert not await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0")
        assert held.remaining > 0


async def test_an_owner_with_spaces_in_its_name_keeps_the_fencing_token_remembered(
    locks: LockClient, redis: Redis
) -> None:
    seats = locks.semaphore(NAME, 1, owner="a token b")
    for _ in range(2):
        await (await seats.acquire()).release()
    assert await redis.zscore(f"aiolock_token:{{{NAME}}}", "token")


async def test_an_acquire_of_more_than_there_are_keeps_no_other_waiting(
    two: AsyncSemaphore, theirs: AsyncSemaphore, locks: LockClient
) -> None:
    [several] = waiting(lambda: two.acquire(3))
    await all_parked(locks, 1)
    async with theirs:
        assert not several.done()
    await theirs.add_permits(1)
    assert (await several).name == NAME


# The number of permits.


# The owners of permits.


async def test_a_named_owner_gives_back_in_another_task(locks: LockClient, two: AsyncSemaphore) -> None:
    job = locks.semaphore(NAME, 2, owner="job")
    [permit] = await asyncio.gather(in_a_task_of_its_own(lambda: job.acquire(2)))
    assert await two.available() == 0
    [holder] = await two.holders()
    assert (holder.owner, holder.holds) == ("job", 2)
    await job.release()
    assert permit.given_back
    assert await two.available() == 2
    with pytest.raises(NotHeldError, match=r"permit of .* is not held by .*: this owner has no permit"):
        await job.release()


async def test_the_holders_of_permits_are_one_question(redis: Redis, locks: LockClient) -> None:
    many = locks.semaphore(NAME, 10)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(LockClient(redis)) for _ in range(10)]
        for client in clients:
            await client.semaphore(NAME, 10).acquire()
        before = locks.statistics().commands
        holders = await many.holders()
        assert locks.statistics().commands - before == 1
        assert {holder.client for holder in holders} == {session_of(client).client for client in clients}
        assert [holder.pid for holder in holders] == [os.getpid()] * 10


async def test_the_holder_of_permits_behind_a_thousand_others_is_found(locks: LockClient) -> None:
    """An answer of the server names a thousand permits at most."""
    many = locks.semaphore(NAME, 1200, owner="before")
    for permits in (1000, 100):
        _ = await many.acquire(permits, lease=60)
    both = locks.multi("another", locks.semaphore(NAME, 1200))
    lease = await both.acquire(lease=600)
    assert await both.held()
    await lease.release()
    assert not await both.held()


async def test_an_owner_is_not_taken_for_an_acquire_of_another(locks: LockClient) -> None:
    """A permit is known in Redis by its owner and a number, which together may be the name of another owner."""
    permit = await locks.semaphore(NAME, 1, owner="a").acquire()
    number = hold_of(permit).claim.id.rpartition("#")[2]
    theirs = locks.semaphore(NAME, 1, owner=f"a#{number}")
    assert await theirs.try_acquire(wait=0) is None
    with pytest.raises(NotHeldError, match=r"permit of .* is not held by .*: this owner has no permit"):
        await theirs.release()
    assert not permit.given_back
    _ = await locks.lock("another").acquire()
    await permit.release()
    _ = await theirs.acquire()
    assert not await locks.multi("another", locks.semaphore(NAME, 1, owner="a")).held()


async def test_a_permit_is_given_back_from_any_task(two: AsyncSemaphore) -> None:
    permit = await two.acquire()
    await asyncio.create_task(two.release(permit))
    assert await two.available() == 2
    with pytest.raises(NotHeldError, match="given back already"):
        await two.release(permit)
    with pytest.raises(NotHeldError, match=r"permit of .* is not held by .*: this owner has no permit"):
        await two.release()


async def test_the_last_that_was_acquired_is_given_back_first(two: AsyncSemaphore) -> None:
    first, second = await two.acquire(), await two.acquire()
    await two.release()
    assert (first.given_back, second.given_back) == (False, True)
    await two.release()
    assert first.given_back


async def test_a_permit_of_another_semaphore_is_refused(locks: LockClient, two: AsyncSemaphore) -> None:
    async with locks.lock("a lock") as lease:
        with pytest.raises(ValueError, match="not a permit of 'places'"):
            await two.release(lease)


async def test_the_holders_come_with_their_clients(redis: Redis, two: AsyncSemaphore, theirs: AsyncSemaphore) -> None:
    async with two.hold(lease=20), theirs.hold(lease=10):
        # This is a permit of Redisson's.
        await redis.zadd(f"{{{NAME}}}:timeout", {bytes(range(16)): 9e14})
        holders = await two.holders()
    assert [holder.pid is not None for holder in holders] == [True, True, False]
    assert [holder.owner for holder in holders][2] == bytes(range(16)).hex()
    assert holders[0].remaining <= 10 < holders[1].remaining <= 20


async def test_a_permit_of_another_client_is_given_back_by_that(
    two: AsyncSemaphore, theirs: AsyncSemaphore, other: LockClient
) -> None:
    await two.release(await theirs.acquire())
    assert other.statistics().held == 0
    assert await two.available() == 2


# Each for a time.


async def test_a_permit_whose_time_is_over_is_available_before_anybody_takes_it(
    two: AsyncSemaphore, theirs: AsyncSemaphore, redis: Redis
) -> None:
    await two.acquire(lease=30)
    [member] = await members(redis)
    await redis.zadd(f"{{{NAME}}}:timeout", {member: 1})
    assert (await theirs.available(), await theirs.acquired(), await theirs.holders()) == (2, 0, [])
    assert await theirs.try_acquire(permits=2) is not None


async def test_the_watchdog_renews_each_and_tells_which_is_lost(redis: Redis) -> None:
    events: list[LockEvent] = []
    config = LockConfig(lease=6, renew_interval=0.1, on_event=events.append)
    async with LockClient(redis, config=config) as locks:
        three = locks.semaphore(NAME, 3)
        kept, lost, given = await three.acquire(), await three.acquire(), await three.acquire(lease=30)
        await until(lambda: locks.statistics().renewals >= 4)
        assert await three.acquired() == 3
        [second] = [member for member in await members(redis) if member.endswith(b"#2#1")]
        assert await redis.zrem(f"{{{NAME}}}:timeout", second) == 1
        assert await asyncio.wait_for(lost.lost, 15) == "expired"
        assert [each.token for each in events if isinstance(each, Lost)] == [lost.token]
        kept.check()
        given.check()
        with pytest.raises(LeaseLostError):
            await lost.release()


async def test_permits_that_are_renewed_together_are_not_too_many_for_one_script(locks: LockClient) -> None:
    many = locks.semaphore(NAME, 300)
    holds = [hold_of(await many.acquire(permits)) for permits in (30, 2, 1, 200, 5)]
    together = list(session_of(locks).watchdog.together(holds))
    assert [[hold.claim.want.amount for hold in group] for group in together] == [[(30,), (2,)], [(1,), (200,)], [(5,)]]


# Further cases.


@pytest.mark.parametrize("put", ["lock", "permits"])
async def test_a_foreign_key_is_left_alone(put: str, two: AsyncSemaphore, locks: LockClient, redis: Redis) -> None:
    if put == "lock":
        await locks.lock(NAME).acquire()
    else:
        await redis.set(f"{{{NAME}}}:timeout", "1")
    before = await redis.dump(NAME)
    for ask in (two.acquire, two.available, two.holders, two.force_release, lambda: two.set_permits(3)):
        with pytest.raises(NotALockError):
            await ask()
    assert await redis.dump(NAME) == before


async def test_a_permit_is_renewed_by_its_semaphore(two: AsyncSemaphore, locks: LockClient) -> None:
    permit = await two.acquire(lease=5)
    await two.renew(permit, 60)
    assert permit.remaining > 50
    await asyncio.create_task(two.renew(permit))
    with pytest.raises(ValueError, match="is not a permit of 'others'"):
        await locks.semaphore("others").renew(permit)
    await two.release(permit)
    with pytest.raises(NotHeldError):
        await two.renew(permit)


async def test_no_more_than_a_thousand_at_once(two: AsyncSemaphore) -> None:
    with pytest.raises(ValueError, match=r"number of permits must be 1 to 1,?000, not 1001"):
        await two.acquire(1001)


async def test_a_release_without_a_permit_gives_back_one_that_is_in_no_block(locks: LockClient) -> None:
    """A lock's release does the same; here the permit of the block is the newer one."""
    semaphore = locks.semaphore("a", 4)
    permit = await semaphore.acquire(2)
    async with semaphore as entered:
        await semaphore.release()
        assert permit.given_back
        entered.check()
