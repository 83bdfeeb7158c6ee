"""The queue of a name: wake-ups are used or passed on, probes replace messages that never come."""

import asyncio
from time import monotonic

from redis.asyncio import Redis

from aiolock import LockClient, LockConfig, NotALockError
from aiolock._queue import MOST_HAND_OFFS
from tests.support.calls import acquire_and_release
from tests.support.observe import until
from tests.support.waiters import Waiters, parked

NAME = "queue"


async def test_a_lock_whose_holder_crashed_is_taken_when_its_lease_ends(redis: Redis, locks: LockClient) -> None:
    crashed = LockClient(redis, config=LockConfig(release_timeout=0.1))
    await crashed.lock(NAME).acquire(lease=0.5)
    ends = monotonic() + 0.5
    await crashed._runtime.core()._backend.aclose()  # Nothing of it reaches the server any more.
    async with Waiters(locks, NAME, go=True) as waiters:
        await waiters.park(3)
        await waiters.granted(1, within=3)
        assert ends - 0.1 < monotonic() < ends + 2
        await waiters.granted(3)
    await crashed.aclose()


async def test_a_waiter_probes_once_per_remaining_lease(locks: LockClient, other: LockClient) -> None:
    lease = await other.lock(NAME).acquire(lease=1.2)
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(5)
        before = locks.statistics().commands
        for _ in range(3):
            await asyncio.sleep(0.7)
            await lease.renew(1.2)
        assert 0 < locks.statistics().commands - before <= 3


async def test_a_hand_off_needs_no_message_and_one_batch(locks: LockClient) -> None:
    lease = await locks.lock(NAME).acquire()
    async with Waiters(locks, NAME, go=True) as waiters:
        await waiters.park(1)
        before = locks.statistics()
        assert before.hand_offs == 0
        await lease.release()
        await waiters.granted(1)
        await asyncio.wait(waiters.tasks)
        after = locks.statistics()
        assert after.hand_offs == 1
        assert after.commands == before.commands + 3  # Release and acquire together; its release.
        assert after.batches == before.batches + 2


async def test_every_so_many_hand_offs_the_message_is_for_everybody(locks: LockClient) -> None:
    count = 3 * MOST_HAND_OFFS
    async with Waiters(locks, NAME, go=True) as waiters:
        async with locks.lock(NAME):
            await waiters.park(count)
        await asyncio.wait(waiters.tasks, timeout=10)
    assert waiters.order == list(range(count))
    assert count - 3 <= locks.statistics().hand_offs < count


async def test_a_message_is_not_forgotten_for_a_refusal_that_is_older(locks: LockClient, other: LockClient) -> None:
    """A client that had a long run lets others go first. What it hears meanwhile was said before the lock was free."""
    core, keys = locks._runtime.core(), locks.lock(NAME)._keys
    async with parked(locks, other, NAME, 1, go=True) as (theirs, waiters):
        queue = core.queues.get(keys)
        assert queue is not None
        queue._sits_out = 1
        await theirs.release()
        await until(lambda: queue._sits_out == 0)  # The message has come.
        core.queues.probe_in(keys, 60)  # As when a try is refused.
        await waiters.granted(1, within=20)


async def test_a_key_that_stops_being_a_lock_ends_every_wait(
    redis: Redis, locks: LockClient, other: LockClient
) -> None:
    async with parked(locks, other, NAME, 3) as (_, waiters):
        await redis.set(NAME, "something else")
        await redis.publish(f"redisson_lock__channel:{{{NAME}}}", "0")
        await asyncio.wait(waiters.tasks, timeout=5)
        assert [type(task.exception()) for task in waiters.tasks] == [NotALockError] * 3
    assert await redis.get(NAME) == b"something else"


async def test_a_waiter_out_of_time_at_the_moment_of_the_unlock_hands_on(locks: LockClient, other: LockClient) -> None:
    async def once() -> None:
        await theirs.acquire(lease=60)
        impatient = asyncio.create_task(try_and_return(locks, 0.02))
        patient = asyncio.create_task(acquire_and_release(locks.lock(NAME)))
        await until(lambda: locks.statistics().parked == (1 if impatient.done() else 2))
        await asyncio.wait([impatient], timeout=0.018)
        await theirs.release()
        await asyncio.wait_for(asyncio.gather(impatient, patient), 5)

    theirs = other.lock(NAME)
    for _ in range(20):
        await once()


async def try_and_return(locks: LockClient, wait: float) -> None:
    if lease := await locks.lock(NAME).try_lock(wait):
        await lease.release()
