"""Permits: so many at once, each for a time, in one client and in several."""

import asyncio
import os
import re
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from aiolock import (
    Acquired,
    AsyncPermitExpirableSemaphore,
    HeldPermits,
    Lease,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    LockTimeoutError,
    Lost,
    NotALockError,
    NotHeldError,
    Orphaned,
    Released,
)
from aiolock._keys import card_key
from tests.support.inside import queue_of, session_of
from tests.support.observe import answered, until
from tests.support.waiters import waits_quietly

NAME = "places"


@pytest.fixture
def two(locks: LockClient) -> AsyncPermitExpirableSemaphore:
    """Two permits."""
    return locks.permit_expirable_semaphore(NAME, 2)


@pytest.fixture
def theirs(other: LockClient) -> AsyncPermitExpirableSemaphore:
    """The same, for another process."""
    return other.permit_expirable_semaphore(NAME, 2)


def waiting(*acquires: Any) -> list[asyncio.Task[Lease]]:
    return [asyncio.create_task(in_a_task_of_its_own(each)) for each in acquires]


async def in_a_task_of_its_own(acquire: Any) -> Lease:
    lease: Lease = await acquire
    return lease


async def parked(locks: LockClient, count: int) -> None:
    await until(lambda: locks.statistics().parked == count and locks.statistics().pending == 0)


async def members(redis: Redis) -> list[bytes]:
    """The permits that are acquired, as they stand in Redis."""
    return cast(list[bytes], await redis.zrange(f"{{{NAME}}}:timeout", 0, -1))


# So many, and no more.


async def test_as_many_as_there_are_permits(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore
) -> None:
    assert (await two.available(), await two.acquired(), await two.permits()) == (2, 0, 2)
    mine = await two.acquire()
    its = await theirs.acquire()
    assert await two.try_acquire() is None
    assert await theirs.try_acquire(wait=0.01) is None
    assert (await two.available(), await two.acquired(), await two.permits()) == (0, 2, 2)
    await mine.release()
    again = await theirs.try_acquire()
    assert again is not None
    assert again.token > its.token > mine.token
    await again.release()
    await its.release()
    assert await two.available() == 2


async def test_a_block_has_a_permit_and_gives_it_back(two: AsyncPermitExpirableSemaphore) -> None:
    async with two as permit:
        permit.check()
        assert await two.acquired() == 1
        async with two.hold(wait=10, lease=30) as another:
            assert another.token > permit.token
            assert await two.available() == 0
            with pytest.raises(LockTimeoutError, match=r"'places' was not granted within"):
                async with two.hold(wait=0.01):
                    pass
    assert await two.available() == 2
    assert permit.given_back
    assert another.given_back


async def test_several_at_once_are_one_lease(two: AsyncPermitExpirableSemaphore, locks: LockClient) -> None:
    async with two.hold(permits=2) as both:
        assert await two.available() == 0
        assert locks.statistics().held == 1
        [holder] = await two.holders()
        assert holder.holds == 2
    assert await two.available() == 2
    assert both.given_back
    three = await two.try_acquire(3)
    assert three is None
    assert await two.available() == 2


async def test_who_waits_gets_what_comes_back_in_turn(two: AsyncPermitExpirableSemaphore, locks: LockClient) -> None:
    first, second = await two.acquire(), await two.acquire()
    order: list[int] = []

    async def take(number: int) -> None:
        async with two:
            order.append(number)

    tasks = []
    for number in range(20):
        tasks.append(asyncio.create_task(take(number)))
        await parked(locks, number + 1)
    await first.release()
    await asyncio.wait(tasks)
    assert order == list(range(20))
    await second.release()


async def test_permits_that_come_back_together_wake_as_many(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    await two.set_permits(5)
    all_of_them = await theirs.acquire(5)
    everybody = asyncio.Barrier(6)

    async def meet() -> None:
        async with two:
            await everybody.wait()

    tasks = [asyncio.create_task(meet()) for _ in range(5)]
    await parked(locks, 5)
    await all_of_them.release()
    await asyncio.wait_for(everybody.wait(), 10)
    await asyncio.gather(*tasks)
    assert await two.available() == 5


async def test_permits_that_are_given_back_in_one_turn_of_the_loop_wake_as_many(
    two: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    await two.set_permits(4)
    out, inside = asyncio.Event(), asyncio.Barrier(5)

    async def hold_until_told() -> None:
        async with two:
            await inside.wait()
            await out.wait()

    async def meet() -> None:
        async with two:
            await inside.wait()

    holding = [asyncio.create_task(hold_until_told()) for _ in range(4)]
    await asyncio.wait_for(inside.wait(), 10)
    meeting = [asyncio.create_task(meet()) for _ in range(4)]
    await parked(locks, 4)
    await until(lambda: waits_quietly(locks, two))  # Then what is heard of the releases is no news.
    out.set()
    await asyncio.wait_for(inside.wait(), 10)  # All four at once: no message of another client comes.
    await asyncio.gather(*holding, *meeting)


async def test_who_wants_too_many_and_leaves_lets_those_behind_try(
    two: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    [too_many] = waiting(two.acquire(5))
    await parked(locks, 1)
    [behind] = waiting(two.acquire())
    await until(lambda: locks.statistics().parked == 2)
    too_many.cancel()
    assert (await asyncio.wait_for(behind, 10)).name == NAME


async def test_whose_turn_it_is_goes_first_in_its_own_client_too(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    await two.set_permits(4)
    held = await theirs.acquire(4)
    order: list[int] = []

    async def take(permits: int) -> None:
        async with two.hold(permits=permits):
            order.append(permits)

    tasks = [asyncio.create_task(take(permits)) for permits in (1, 3)]  # Both ask at once.
    await parked(locks, 2)
    await held.release()
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert order == [3, 1]


async def test_a_turn_ends_with_who_waits_though_a_try_was_handed_to_it(
    two: AsyncPermitExpirableSemaphore, locks: LockClient, redis: Redis
) -> None:
    held, other = await two.acquire(), await two.acquire()
    [several] = waiting(two.acquire(2))
    await parked(locks, 1)
    releasing = asyncio.create_task(held.release())
    several.cancel()
    await asyncio.wait([releasing, several])
    await until(lambda: locks.statistics().pending == 0)
    assert not await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0")
    await other.release()


async def test_a_turn_ends_when_there_are_too_few_for_it(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient, redis: Redis
) -> None:
    async def nobody_is_next() -> bool:
        return not await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0")

    async with theirs:
        [several] = waiting(two.acquire(2))
        await parked(locks, 1)
        assert not await nobody_is_next()
        await theirs.set_permits(1)
        await until(nobody_is_next)
    async with theirs:
        several.cancel()


async def test_a_message_is_not_forgotten_for_a_grant_that_is_older(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    """What came back meanwhile is another permit than the one that was granted."""
    held = await theirs.acquire(2)
    [waits] = waiting(two.acquire())
    await until(lambda: waits_quietly(locks, two))
    queue = queue_of(two)
    assert queue is not None
    queue._sits_out = 1
    await held.release()
    await until(lambda: queue._sits_out == 0)  # The message has come; others are let go first.
    queue.granted(60)
    assert (await asyncio.wait_for(waits, 10)).name == NAME


async def test_more_permits_wake_who_waits(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    async with two.hold(permits=2):
        tasks = waiting(two.acquire(), two.acquire())
        await parked(locks, 2)
        await theirs.add_permits(2)
        done, _ = await asyncio.wait(tasks, timeout=10)
        assert len(done) == 2


async def test_who_waits_for_several_is_not_overtaken(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    """Neither by those of its own client, nor by those of others; it is served as soon as enough have come back."""
    one, other = await theirs.acquire(), await theirs.acquire()
    [several] = waiting(two.acquire(2))
    await parked(locks, 1)
    await one.release()
    assert await theirs.try_acquire() is None
    assert await two.try_acquire() is None
    [later] = waiting(theirs.acquire())
    await until(lambda: theirs.statistics().parked == 1)
    await other.release()
    lease = await several
    assert not later.done()
    assert lease.name == NAME
    await asyncio.wait([later], timeout=10)  # The first task has ended, and with it its permits.
    assert not later.exception()


async def test_who_waits_for_several_and_leaves_lets_others_pass(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient, redis: Redis
) -> None:
    async with theirs as held:
        [several] = waiting(two.acquire(2))
        await parked(locks, 1)
        [later] = waiting(theirs.acquire())
        await until(lambda: theirs.statistics().parked == 1)
        several.cancel()
        await asyncio.wait([several])
        await until(lambda: locks.statistics().pending == 0)
        assert not await redis.zcount(f"aiolock_token:{{{NAME}}}", "-inf", "(0")
        await asyncio.wait([later], timeout=10)
        assert not later.exception()
        assert held.remaining > 0


async def test_who_wants_more_than_there_are_keeps_nobody_waiting(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    [several] = waiting(two.acquire(3))
    await parked(locks, 1)
    async with theirs:
        assert not several.done()
    await theirs.add_permits(1)
    assert (await several).name == NAME


# How many there are.


async def test_the_number_is_of_the_first_who_acquires(locks: LockClient, other: LockClient) -> None:
    async with locks.permit_expirable_semaphore(NAME, 3):
        assert await other.permit_expirable_semaphore(NAME, 7).permits() == 3
    assert await other.permit_expirable_semaphore(NAME).permits() == 3


async def test_without_a_number_there_are_none_until_somebody_says_so(locks: LockClient, other: LockClient) -> None:
    unknown = locks.permit_expirable_semaphore(NAME)
    assert await unknown.try_acquire() is None
    assert (await unknown.available(), await unknown.permits()) == (0, 0)
    [waits] = waiting(unknown.acquire())
    await parked(locks, 1)
    await other.permit_expirable_semaphore(NAME).set_permits(1)
    assert (await waits).name == NAME


async def test_fewer_than_are_acquired(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore
) -> None:
    one, other = await two.acquire(), await two.acquire()
    await theirs.set_permits(1)
    assert (await two.available(), await two.acquired(), await two.permits()) == (-1, 2, 1)
    await one.release()
    assert await two.try_acquire() is None
    await other.release()
    async with two:
        assert await two.try_acquire() is None
    await two.add_permits(-1)
    assert await two.permits() == 0


async def test_as_many_more_before_anybody_acquired(two: AsyncPermitExpirableSemaphore) -> None:
    await two.add_permits(3)
    assert await two.permits() == 5


# Whose they are.


async def test_permits_of_a_task_that_ends_are_given_back(redis: Redis, two: AsyncPermitExpirableSemaphore) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        mine = locks.permit_expirable_semaphore(NAME, 2)

        async def forgets() -> None:
            await mine.acquire()
            await mine.acquire()

        await asyncio.create_task(forgets(), name="forgetful")
        assert await two.try_acquire(2, wait=10) is not None
        assert [each.task for each in events if isinstance(each, Orphaned)] == ["forgetful"] * 2


async def test_a_named_owner_gives_back_in_another_task(locks: LockClient, two: AsyncPermitExpirableSemaphore) -> None:
    job = locks.permit_expirable_semaphore(NAME, 2, owner="job")
    [permit] = await asyncio.gather(in_a_task_of_its_own(job.acquire(2)))
    assert await two.available() == 0
    [holder] = await two.holders()
    assert (holder.owner, holder.holds) == ("job", 2)
    await job.release()
    assert permit.given_back
    assert await two.available() == 2
    with pytest.raises(NotHeldError, match="has no permit"):
        await job.release()


@pytest.mark.parametrize("lost", [0, 10], ids=["their cards are there", "they have no cards"])
async def test_who_has_the_permits_is_asked_at_once(redis: Redis, locks: LockClient, lost: int) -> None:
    """However many have some: the card of each is a command, all of which are written together."""
    many = locks.permit_expirable_semaphore(NAME, 10)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(LockClient(redis)) for _ in range(10)]
        for client in clients:
            await client.permit_expirable_semaphore(NAME, 10).acquire()
            await answered(client)
        for client in clients[:lost]:
            await redis.delete(card_key(session_of(client).client))
        before = locks.statistics().batches
        holders = await many.holders()
        assert locks.statistics().batches - before <= 3, (
            "the holders, their cards, and once more those that are not there"
        )
        assert {holder.client for holder in holders} == {session_of(client).client for client in clients}
        assert [holder.pid for holder in holders] == [None if lost else os.getpid()] * 10


async def test_an_owner_is_not_taken_for_an_acquire_of_another(locks: LockClient) -> None:
    """A permit is known in Redis by its owner and a number, which together may be the name of another owner."""
    permit = await locks.permit_expirable_semaphore(NAME, 1, owner="a").acquire()
    number = permit._hold.claim.id.rpartition("#")[2]
    theirs = locks.permit_expirable_semaphore(NAME, 1, owner=f"a#{number}")
    assert await theirs.try_acquire(wait=0) is None
    with pytest.raises(NotHeldError, match="has no permit"):
        await theirs.release()
    assert not permit.given_back


async def test_a_permit_is_given_back_from_any_task(two: AsyncPermitExpirableSemaphore) -> None:
    permit = await two.acquire()
    await asyncio.create_task(two.release(permit))
    assert await two.available() == 2
    with pytest.raises(NotHeldError, match="given back already"):
        await two.release(permit)
    with pytest.raises(NotHeldError, match="has no permit"):
        await two.release()


async def test_the_last_that_was_acquired_is_given_back_first(two: AsyncPermitExpirableSemaphore) -> None:
    first, second = await two.acquire(), await two.acquire()
    await two.release()
    assert (first.given_back, second.given_back) == (False, True)
    await two.release()
    assert first.given_back


async def test_a_permit_of_another_semaphore_is_refused(locks: LockClient, two: AsyncPermitExpirableSemaphore) -> None:
    async with locks.lock("a lock") as lease:
        with pytest.raises(ValueError, match="not a permit of 'places'"):
            await two.release(lease)


async def test_who_has_them_is_told_with_its_client(
    redis: Redis, two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore
) -> None:
    async with two.hold(lease=20), theirs.hold(lease=10):
        await redis.zadd(f"{{{NAME}}}:timeout", {bytes(range(16)): 9e14})  # As Redisson's.
        holders = await two.holders()
    assert [holder.pid is not None for holder in holders] == [True, True, False]
    assert [holder.owner for holder in holders][2] == bytes(range(16)).hex()
    assert holders[0].remaining <= 10 < holders[1].remaining <= 20


async def test_a_permit_of_another_client_is_given_back_by_that(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, other: LockClient
) -> None:
    await two.release(await theirs.acquire())
    assert other.statistics().held == 0
    assert await two.available() == 2


# Each for a time.


async def test_a_lease_that_ends_makes_its_permit_available(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore
) -> None:
    short = await two.acquire(2, lease=0.3)
    its = await theirs.acquire(2)
    assert short.lost.is_set()
    assert its.token > short.token
    with pytest.raises(LeaseLostError):
        await short.release()
    assert await two.permits() == 2


async def test_a_permit_whose_time_is_over_is_available_before_anybody_takes_it(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, redis: Redis
) -> None:
    await two.acquire(lease=30)
    [member] = await members(redis)
    await redis.zadd(f"{{{NAME}}}:timeout", {member: 1})
    assert (await theirs.available(), await theirs.acquired(), await theirs.holders()) == (2, 0, [])
    assert await theirs.try_acquire(2) is not None


async def test_the_watchdog_renews_each_and_tells_which_is_lost(redis: Redis) -> None:
    events: list[LockEvent] = []
    config = LockConfig(lease=6, renew_interval=0.1, on_event=events.append)
    async with LockClient(redis, config=config) as locks:
        three = locks.permit_expirable_semaphore(NAME, 3)
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
    many = locks.permit_expirable_semaphore(NAME, 300)
    holds = [(await many.acquire(permits))._hold for permits in (30, 2, 1, 200, 5)]
    together = list(session_of(locks).commands.together(holds))
    assert [[hold.claim.want.amount for hold in group] for group in together] == [[(30,), (2,)], [(1,), (200,)], [(5,)]]


async def test_a_loss_cancels_the_block(redis: Redis, other: LockClient) -> None:
    async with LockClient(redis, config=LockConfig(lease=6, renew_interval=0.1)) as locks:
        semaphore = locks.permit_expirable_semaphore(NAME, 1)
        with pytest.raises(LeaseLostError, match="released by force"):
            async with semaphore:
                assert await other.permit_expirable_semaphore(NAME).force_release()
                await asyncio.sleep(60)
        assert await semaphore.available() == 1


async def test_force_release_takes_all_and_wakes_who_waits(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore, locks: LockClient
) -> None:
    mine = await two.acquire(2)
    [waits] = waiting(theirs.acquire(2))
    await until(lambda: theirs.statistics().parked == 1)
    assert await two.force_release()
    assert mine.lost.is_set()
    assert (await waits).name == NAME
    assert locks.statistics().losses == 1
    assert await theirs.try_acquire(2, wait=10) is not None  # The first task has ended, and with it its permits.
    assert await two.force_release()
    assert not await two.force_release()


async def test_renewed_by_hand(two: AsyncPermitExpirableSemaphore) -> None:
    permit = await two.acquire(2, lease=timedelta(seconds=10))
    await permit.renew(40)
    assert permit.remaining > 30
    [holder] = await two.holders()
    assert holder.remaining > 30
    await permit.renew(1)  # Never shorter.
    assert permit.remaining > 30
    short = await two.try_acquire(lease=0.05)
    assert short is None
    await permit.release()
    short = await two.acquire(lease=0.05)
    assert await short.lost == "expired"
    with pytest.raises(LeaseLostError):
        await short.renew(40)


async def test_a_wait_that_is_long_enough(
    two: AsyncPermitExpirableSemaphore, theirs: AsyncPermitExpirableSemaphore
) -> None:
    held = await theirs.acquire(2)
    [waits] = waiting(two.try_acquire(wait=20))
    await until(lambda: two.statistics().parked == 1)
    await held.release()
    assert (await waits).token > held.token


async def test_closing_gives_everything_back(redis: Redis, theirs: AsyncPermitExpirableSemaphore) -> None:
    locks = LockClient(redis)
    mine = locks.permit_expirable_semaphore(NAME, 2)
    permit = await mine.acquire(2)
    await locks.aclose()
    assert permit.lost.is_set()
    assert await theirs.try_acquire(2) is not None


# What else is there.


async def test_events_and_statistics(redis: Redis) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        two = locks.permit_expirable_semaphore(NAME, 2)
        async with two, two:
            assert (two.statistics().held, locks.statistics().held) == (2, 2)
    kinds = [type(event) for event in events]
    assert kinds == [Acquired, Acquired, Released, Released]
    assert {event.name for event in events} == {NAME}


@pytest.mark.parametrize("put", ["lock", "text", "list", "permits"])
async def test_what_is_something_else_is_left_alone(
    put: str, two: AsyncPermitExpirableSemaphore, locks: LockClient, redis: Redis
) -> None:
    if put == "lock":
        await locks.lock(NAME).acquire()
    elif put == "text":
        await redis.set(NAME, "three")
    elif put == "list":
        await redis.rpush(NAME, "1")
    else:
        await redis.set(f"{{{NAME}}}:timeout", "1")
    before = await redis.dump(NAME)
    for ask in (two.acquire, two.available, two.holders, two.force_release, lambda: two.set_permits(3)):
        with pytest.raises(NotALockError):
            await ask()
    assert await redis.dump(NAME) == before


async def test_a_semaphore_is_no_lock(two: AsyncPermitExpirableSemaphore, locks: LockClient) -> None:
    async with two:
        with pytest.raises(NotALockError):
            await locks.lock(NAME).acquire()
    assert locks.statistics().held == 0


async def test_the_whole_of_a_task_is_refused(two: AsyncPermitExpirableSemaphore) -> None:
    with pytest.raises(RuntimeError, match="the whole of a task"):
        await asyncio.create_task(two.acquire())
    with pytest.raises(RuntimeError, match="the whole of a task"):
        await asyncio.create_task(two.try_acquire())


@pytest.mark.parametrize("permits", [0, -1, 1001, 1.0, "1", True])
async def test_a_number_that_cannot_be(permits: Any, two: AsyncPermitExpirableSemaphore) -> None:
    for ask in (two.acquire, two.try_acquire):
        with pytest.raises((TypeError, ValueError), match="number of permits must be"):
            await ask(permits)
    with pytest.raises((TypeError, ValueError), match="number of permits must be"):
        two.hold(permits=permits)


async def test_a_handle_that_takes_several(two: AsyncPermitExpirableSemaphore, redis: Redis) -> None:
    both = two.taking(2)
    async with both:
        assert await two.available() == 0
        assert await two.locked()
    async with both.hold(wait=1):
        assert await two.available() == 0
    async with two:
        assert (await two.locked(), await both.locked()) == (False, True)
        assert await both.try_acquire() is None
        assert await both.try_acquire(1) is not None
    await both.release()
    assert await two.available() == 2
    with pytest.raises((TypeError, ValueError), match="number of permits must be"):
        two.taking(0)


async def test_whose_number_nobody_has_said_there_is_none_of(locks: LockClient) -> None:
    assert await locks.permit_expirable_semaphore(NAME).locked()
    assert not await locks.permit_expirable_semaphore(NAME, 1).locked()


async def test_a_permit_is_renewed_by_its_semaphore(two: AsyncPermitExpirableSemaphore, locks: LockClient) -> None:
    permit = await two.acquire(lease=5)
    await two.renew(permit, 60)
    assert permit.remaining > 50
    await asyncio.create_task(two.renew(permit))
    with pytest.raises(ValueError, match="is not a permit of 'others'"):
        await locks.permit_expirable_semaphore("others").renew(permit)
    await two.release(permit)
    with pytest.raises(NotHeldError):
        await two.renew(permit)


@pytest.mark.parametrize("permits", [-1, 1.5, "4", 2**31])
async def test_a_total_that_cannot_be(permits: Any, locks: LockClient, two: AsyncPermitExpirableSemaphore) -> None:
    with pytest.raises((TypeError, ValueError), match="number of permits must be"):
        locks.permit_expirable_semaphore(NAME, permits)
    with pytest.raises((TypeError, ValueError), match="number of permits must be"):
        await two.set_permits(permits)


async def test_a_name_that_cannot_be(locks: LockClient) -> None:
    with pytest.raises(ValueError, match="aiolock's own"):
        locks.permit_expirable_semaphore("aiolock_token:x", 1)


def test_what_it_looks_like(locks: LockClient, two: AsyncPermitExpirableSemaphore) -> None:
    assert repr(two) == "<AsyncPermitExpirableSemaphore 'places'>"
    named = locks.permit_expirable_semaphore(NAME, 2, owner="job")
    assert repr(named) == "<AsyncPermitExpirableSemaphore 'places' owner='job'>"


async def test_a_hold_that_is_never_entered_is_noticed(two: AsyncPermitExpirableSemaphore) -> None:
    with pytest.warns(RuntimeWarning, match=re.escape("'places': hold() was never entered")):
        assert isinstance(two.hold(), HeldPermits)
