"""The queue of a name: wake-ups are used or passed on, probes replace messages that never come."""

import asyncio
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig, NotALockError
from aiolock._backend import Call
from aiolock._core.queue import MOST_HAND_OFFS
from aiolock._primitives.reentrant import Reentrant
from aiolock._scripts import GRANTED, LOCK, RELEASE, Want
from tests.support.calls import acquire_and_release
from tests.support.contexts import outlives_its_task
from tests.support.inside import backend_of, queue_of
from tests.support.observe import until
from tests.support.waiters import Waiters, parked, waits_quietly

NAME = "queue"


async def test_a_lock_whose_holder_crashed_is_taken_when_its_lease_ends(redis: Redis, locks: LockClient) -> None:
    crashed = LockClient(redis, config=LockConfig(release_timeout=0.1))
    await crashed.lock(NAME).acquire(lease=0.5)
    ends = monotonic() + 0.5
    await backend_of(crashed).aclose()  # Nothing of it reaches the server any more.
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


async def test_a_waiter_asks_again_within_half_a_minute_however_long_the_lease(
    locks: LockClient, other: LockClient
) -> None:
    """Redisson may shorten it meanwhile, and tells nobody."""
    await other.lock(NAME).acquire(lease=1000)
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(1)
        queue = queue_of(locks.lock(NAME))
        assert queue is not None
        assert queue._probe is not None
        assert queue._probe.when() - asyncio.get_running_loop().time() < 30.1


async def test_a_probe_does_not_keep_the_context_of_whoever_waited_first(locks: LockClient, other: LockClient) -> None:
    lease = await other.lock(NAME).acquire(lease=60)
    async with Waiters(locks, NAME) as waiters:
        others_wait = asyncio.Event()

        async def wait_and_give_up() -> None:
            first = asyncio.create_task(acquire_and_release(locks.lock(NAME)))
            await others_wait.wait()
            first.cancel()
            await asyncio.wait([first])

        waited = asyncio.create_task(outlives_its_task(wait_and_give_up))
        await until(lambda: locks.lock(NAME).statistics().parked == 1)
        await waiters.park(1)
        others_wait.set()
        assert not await waited
        queue = queue_of(locks.lock(NAME))
        assert queue is not None
        assert queue._probe is not None
    await lease.release()


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
    async with parked(locks, other, NAME, 1, go=True) as (theirs, waiters):
        queue = queue_of(locks.lock(NAME))
        assert queue is not None
        queue._sits_out = 1
        await theirs.release()
        await until(lambda: queue._sits_out == 0)  # The message has come.
        queue.probe_in(60)  # As when a try is refused.
        await waiters.granted(1, within=20)


async def test_a_grant_beside_others_never_puts_off_the_next_try(locks: LockClient, other: LockClient) -> None:
    """Who waits to read has to ask again in time, though the writer of its client was let in to read."""
    theirs, mine = other.read_write_lock(NAME), locks.read_write_lock(NAME)

    async def read() -> None:
        async with mine.read:
            pass

    writing = await theirs.write.acquire(lease=60)
    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        await until(lambda: waits_quietly(locks, mine.read))
        queue = queue_of(mine.read)
        assert queue is not None
        before = locks.statistics().commands
        queue.probe_in(0.1)
        queue.granted(60)
        await until(lambda: locks.statistics().commands > before)
        await writing.release()


async def test_a_release_that_told_nobody_has_no_echo(locks: LockClient, other: LockClient) -> None:
    """As of one reader of several: the message that comes next is another's."""
    async with parked(locks, other, NAME, 1) as (_, _waiters):
        queue = queue_of(locks.lock(NAME))
        assert queue is not None
        silent = Call(RELEASE, (), (), deadline=monotonic() + 5)
        silent.end([GRANTED, 0, 0])
        queue._expect_echo(silent)
        before = locks.statistics().commands
        queue._signal(True)
        await until(lambda: locks.statistics().commands > before)


async def test_a_refusal_never_puts_off_the_next_try(locks: LockClient, other: LockClient) -> None:
    """Who was refused may have to come again before another who was refused need."""
    async with parked(locks, other, NAME, 1) as (_, _waiters):
        queue = queue_of(locks.lock(NAME))
        assert queue is not None
        before = locks.statistics().commands
        queue.probe_in(0.1)
        queue.probe_in(60)
        await until(lambda: locks.statistics().commands > before)


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


def locks_of_kind(locks: LockClient, **policies: Any) -> Reentrant:
    """Locks as they are, but for what other primitives want differently."""
    return Reentrant(locks._sessions, Want(locks.lock(NAME)._keys, replace(LOCK, **policies)), None)


@pytest.mark.parametrize(("wake", "tried"), [("one", 1), ("all", 3)])
async def test_a_message_wakes_as_many_as_the_kind_of_lock_wants(
    locks: LockClient, other: LockClient, wake: str, tried: int
) -> None:
    await other.lock(NAME).acquire(lease=60)
    lock = locks_of_kind(locks, wake=wake)
    waiting = [asyncio.create_task(give_back_when_granted(lock)) for _ in range(3)]
    await until(lambda: locks.statistics().parked == 3 and waits_quietly(locks, locks.lock(NAME)))
    queue = queue_of(locks.lock(NAME))
    assert queue is not None
    sent = locks.statistics().commands + tried
    queue.wake()
    await until(lambda: locks.statistics().commands >= sent and locks.statistics().pending == 0)
    assert locks.statistics().commands == sent
    await other.lock(NAME).release()
    await asyncio.gather(*waiting)


async def test_who_has_it_keeps_others_from_asking_only_where_that_excludes_them(locks: LockClient) -> None:
    async def asks(lock: Reentrant, times: int) -> None:
        """A task that waits for it asks so often: once as its subscription stands, and what it asked before."""
        before = locks.statistics().commands
        waiting = asyncio.create_task(give_back_when_granted(lock))
        await until(lambda: locks.statistics().commands >= before + times and waits_quietly(locks, locks.lock(NAME)), 5)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert locks.statistics().commands == before + times

    async with locks.lock(NAME):
        await until(lambda: locks.statistics().pending == 0)
        await asks(locks_of_kind(locks), 1)
        await asks(locks_of_kind(locks, exclusive=False), 2)


async def give_back_when_granted(lock: Reentrant) -> None:
    async with lock:
        pass
