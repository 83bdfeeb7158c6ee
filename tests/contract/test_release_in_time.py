"""
A release is sent before the deadline, and the server answers that the lock is not held any more.

If the answer comes before the deadline, too, the lock was lost while it was held. If the answer comes later, the lease
may have ended while the release was on its way, after all work under the lock. A lock that was released by force was
lost in any case.
"""

import asyncio

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig, Released
from aiolock._events import LockEvent
from tests.contract.acts import is_untouched, nothing_under_way
from tests.contract.kinds import Kind, Lock, each_leased
from tests.quorum.conftest import redises, three
from tests.quorum.several import everywhere
from tests.support.inside import let_deadline_pass, session_of
from tests.support.observe import until

__all__ = ["redises", "three"]


@each_leased
async def test_an_answer_after_the_deadline_tells_of_no_loss(kind: Kind, redis: Redis) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        taken = await kind.take(locks)
        await redis.flushall()
        releasing = asyncio.create_task(kind.give(locks, taken))
        await let_deadline_pass(taken)
        await releasing
        assert not taken.lost.is_set()
        assert locks.statistics().losses == 0
        assert {event.confirmed for event in events if isinstance(event, Released)} == {True}
        await until(lambda: nothing_under_way(locks))
        await is_untouched(kind, locks)


@each_leased
async def test_a_block_is_left_without_an_error_when_the_answer_comes_after_the_deadline(
    kind: Kind, redis: Redis, locks: LockClient
) -> None:
    async def work() -> None:
        async with kind.of(locks) as lease:
            entered.set_result(lease)
            await leave.wait()

    entered, leave = asyncio.get_running_loop().create_future(), asyncio.Event()
    working = asyncio.create_task(work())
    lease = await entered
    await redis.flushall()
    leave.set()
    await asyncio.sleep(0)
    await let_deadline_pass(lease)
    await working


@each_leased
async def test_an_answer_before_the_deadline_tells_of_the_loss(kind: Kind, redis: Redis, locks: LockClient) -> None:
    taken = await kind.take(locks)
    await redis.flushall()
    with pytest.raises(LeaseLostError) as raised:
        await kind.give(locks, taken)
    assert raised.value.reason == "expired"


@each_leased
@pytest.mark.parametrize("late", [False, True])
async def test_a_lock_that_another_got_counts_as_lost_only_before_the_deadline(
    kind: Kind, late: bool, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    taken = await kind.take(locks)
    await redis.flushall()
    theirs = await kind.rival.take(other)
    assert theirs
    releasing = asyncio.create_task(kind.give(locks, taken))
    if late:
        await let_deadline_pass(taken)
        await releasing
    else:
        with pytest.raises(LeaseLostError):
            await releasing
    await kind.rival.give(other, theirs)
    await is_untouched(kind, other)


@each_leased
async def test_a_lock_that_was_released_by_force_was_lost_in_any_case(
    kind: Kind, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    taken = await kind.take(locks)
    assert await kind.of(other).force_release()
    releasing = asyncio.create_task(kind.give(locks, taken))
    await let_deadline_pass(taken)
    with pytest.raises(LeaseLostError) as raised:
        await releasing
    assert raised.value.reason == "forced"


async def test_an_outer_hold_is_lost_whenever_the_answer_for_an_inner_one_comes(
    redis: Redis, locks: LockClient
) -> None:
    """The work under the outer hold goes on."""
    lock = locks.lock("orders")
    outer, inner = await lock.acquire(), await lock.acquire()
    await redis.flushall()
    releasing = asyncio.create_task(inner.release())
    await let_deadline_pass(inner)
    with pytest.raises(LeaseLostError):
        await releasing
    with pytest.raises(LeaseLostError):
        outer.check()


async def test_an_outcome_that_is_not_stored_is_told_whenever_the_answer_comes(redis: Redis, locks: LockClient) -> None:
    """Without the error nobody would know why the body runs again."""
    once = locks.once("invoice", keep=60)
    await once.__aenter__()
    [hold] = session_of(locks).entries.holds()
    await redis.flushall()
    releasing = asyncio.create_task(once.__aexit__(None, None, None))
    await asyncio.sleep(0)
    hold.deadline = 0.0
    with pytest.raises(LeaseLostError):
        await releasing


@pytest.mark.parametrize("late", [False, True])
async def test_a_release_of_a_quorum_in_time(late: bool, redises: list[Redis]) -> None:
    """Two servers of three have forgotten the lock."""
    kind = Lock()
    async with LockClient.redlock(redises) as locks:
        taken = await kind.take(locks)
        await everywhere(redises, kind.key)
        for redis in redises[1:]:
            await redis.delete(*[key for key in await redis.keys("*") if kind.key.encode() in key])
        releasing = asyncio.create_task(kind.give(locks, taken))
        if late:
            await let_deadline_pass(taken)
            await releasing
        else:
            with pytest.raises(LeaseLostError) as raised:
                await releasing
            assert raised.value.reason == "expired"


async def test_a_lock_that_one_server_of_a_quorum_was_forced_to_free_was_lost_in_any_case(redises: list[Redis]) -> None:
    """Two servers have lost the lock: one says that it expired, the other that it was released by force."""
    async with LockClient.redlock(redises) as locks, LockClient(redises[2]) as third:
        lease = await locks.lock("orders").acquire()
        await everywhere(redises, "orders")
        await redises[1].delete("orders")
        assert await third.lock("orders").force_release()
        releasing = asyncio.create_task(lease.release())
        await let_deadline_pass(lease)
        with pytest.raises(LeaseLostError) as raised:
            await releasing
        assert raised.value.reason == "forced"
