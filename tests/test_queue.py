"""The queue of a name: wake-ups are used or passed on, probes replace messages that never come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

import aiolock._core.commands
from aiolock import LeaseLostError, LockClient, LockConfig, NotALockError
from aiolock._backend import Call
from aiolock._core.place import Place
from aiolock._core.queue import MOST_HAND_OFFS, Queue
from aiolock._keys import LockKeys
from aiolock._primitives.base import Lock
from aiolock._primitives.named import Named
from aiolock._scripts import LATCH, LOCK, RELEASE, WRITE, Want
from aiolock._scripts.replies import Applied, Granted
from tests.support.calls import acquire_and_release
from tests.support.contexts import outlives_its_task
from tests.support.holding import client_behind
from tests.support.inside import backend_of, keys_of, queue_of, session_of
from tests.support.observe import all_parked, until
from tests.support.proxy import Proxy, Rule, script, withhold_reply
from tests.support.waiters import Waiters, parked, waits_quietly

NAME = "queue"
SEVERAL = 9


async def test_a_lock_whose_holder_crashed_is_taken_when_its_lease_ends(redis: Redis, locks: LockClient) -> None:
    crashed = LockClient(redis, config=LockConfig(release_timeout=0.1))
    await crashed.lock(NAME).acquire(lease=0.5)
    ends = monotonic() + 0.5
    await backend_of(crashed).aclose()
    async with Waiters(locks, NAME, go=True) as waiters:
        await waiters.park(3)
        # If the lease did not end, the waiters would ask again after half a minute.
        await waiters.granted(1, within=15)
        assert ends - 0.1 < monotonic()
        await waiters.granted(3)
    await crashed.aclose()


async def test_a_holder_that_hears_of_its_loss_wakes_a_waiter_of_its_client(redis: Redis, locks: LockClient) -> None:
    """When a key is deleted, there is no message."""
    lost = await locks.lock(NAME, owner="holder").acquire(lease=600)
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(1)
        await redis.delete(NAME)
        with pytest.raises(LeaseLostError):
            await lost.renew()
        await waiters.granted(1)


async def test_a_waiter_probes_once_per_remaining_lease(locks: LockClient, other: LockClient) -> None:
    lease = await other.lock(NAME).acquire(lease=3)
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(5)
        before = locks.statistics().commands
        for _ in range(2):
            await asyncio.sleep(1.6)
            await lease.renew(3)
        await until(lambda: locks.statistics().commands > before)
        assert locks.statistics().commands - before <= 2


async def test_a_waiter_asks_again_within_half_a_minute_however_long_the_lease(
    locks: LockClient, other: LockClient
) -> None:
    """Redisson may shorten the lease meanwhile, and tells nobody."""
    await other.lock(NAME).acquire(lease=1000)
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(1)
        queue = queue_of(locks.lock(NAME))
        assert queue is not None
        assert queue._probe is not None
        assert queue._probe.when() - asyncio.get_running_loop().time() < 30.1


async def test_a_probe_does_not_keep_the_context_of_the_first_waiter(locks: LockClient, other: LockClient) -> None:
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
        # The release and the acquire go together, and the waiter's release alone.
        assert after.commands == before.commands + 3
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
    """A client that had a long run lets others go first. Messages meanwhile are older than the free lock."""
    async with parked(locks, other, NAME, 1, go=True) as (theirs, waiters):
        queue = queue_of(locks.lock(NAME))
        assert queue is not None
        queue._sits_out = 1
        await theirs.release()
        await until(lambda: queue._sits_out == 0)
        queue.probe_in(60)
        await waiters.granted(1, within=20)


async def test_a_grant_beside_others_never_puts_off_the_next_try(locks: LockClient, other: LockClient) -> None:
    """A waiting reader has to ask again in time, though the writer of its client was let in to read."""
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
        queue.granted(Granted(0, 60, others_after=60))
        await until(lambda: locks.statistics().commands > before)
        await writing.release()


async def test_a_wake_up_that_a_waiter_used_in_vain_goes_to_the_waiter_that_has_the_turn(
    proxy: Proxy, other: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of a release may overtake the refusal that gave the turn to a writer: it wakes the waiter behind."""
    # No probe comes to the rescue.
    monkeypatch.setattr(aiolock._core.commands, "_TURN", 120_000)
    reading = await other.read_write_lock(NAME).read.acquire(lease=60)
    refused = proxy.install(Rule(script(WRITE.acquire), withhold_reply()))
    async with client_behind(proxy, command_timeout=30) as locks:
        lock = locks.read_write_lock(NAME).write

        async def write() -> None:
            async with lock:
                pass

        writers = [asyncio.create_task(write())]
        await refused.caught()
        writers.append(asyncio.create_task(write()))
        await proxy.saw(script(WRITE.acquire), 2)
        queue = queue_of(lock)
        assert queue is not None
        assert not queue.head.woken.is_set()
        await reading.release()
        await until(queue.head.woken.is_set)
        refused.let_go()
        async with asyncio.timeout(15):
            await asyncio.gather(*writers)


async def test_a_release_whose_message_reached_nobody_has_no_echo(locks: LockClient, other: LockClient) -> None:
    """One reader of several releases like that: the message that comes next is another's."""
    async with parked(locks, other, NAME, 1) as (_, _waiters):
        queue = queue_of(locks.lock(NAME))
        assert queue is not None
        silent = Call(RELEASE, (), (), deadline=monotonic() + 5)
        silent.end(Applied(0))
        queue._expect_echo(silent)
        before = locks.statistics().commands
        queue._signal(True)
        await until(lambda: locks.statistics().commands > before)


async def test_a_refusal_never_puts_off_the_next_try(locks: LockClient, other: LockClient) -> None:
    """One refused waiter may have to come again before another refused one."""
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


def locks_of_kind(locks: LockClient, **policies: Any) -> Lock:
    """A lock with the *policies* of another primitive."""
    want = Want(keys_of(locks.lock(NAME)), replace(LOCK, **policies))
    return Lock(locks._sessions, want=want, named=None)


@asynccontextmanager
async def several_wait(
    kind: str, locks: LockClient, other: LockClient
) -> AsyncIterator[tuple[Queue, list[asyncio.Task[None]], Callable[[], Awaitable[object]]]]:
    """The queue of tasks that are all let go at once, these tasks, and the function that lets them go."""
    let_go: Callable[[], Awaitable[object]]
    if kind == "read":
        waited_for: Named = locks.read_write_lock(NAME).read
        let_go = (await other.read_write_lock(NAME).write.acquire(lease=60)).release
    elif kind == "latch":
        waited_for, latch = locks.count_down_latch(NAME), other.count_down_latch(NAME)
        await latch.try_set_count(1)
        let_go = latch.count_down
    else:
        waited_for, running = locks.once(NAME, keep=60)._lock, AsyncExitStack()
        await running.enter_async_context(other.once(NAME, keep=60))
        let_go = running.aclose
    tasks = [asyncio.create_task(wait_for_all(kind, locks)) for _ in range(SEVERAL)]
    session = session_of(locks)
    await until(lambda: locks.statistics().parked == SEVERAL)
    entry = session.entries[keys_of(waited_for).entry]
    await until(lambda: session.entries.notifier.confirmed(keys_of(waited_for).channel))
    queue = entry.queue
    assert queue is not None
    await until(lambda: locks.statistics().pending == 0 and all_sleep(queue))
    yield queue, tasks, let_go
    await asyncio.wait_for(asyncio.gather(*tasks), 10)


def all_sleep(queue: Queue) -> bool:
    """Whether each place awaits its turn, and nothing has woken it."""
    return not any(place.trying or place.woken.is_set() for place in queue)


async def wait_for_all(kind: str, locks: LockClient) -> None:
    if kind == "read":
        async with locks.read_write_lock(NAME).read:
            pass
    elif kind == "latch":
        await locks.count_down_latch(NAME).wait()
    else:
        async with locks.once(NAME, keep=60) as turn:
            assert turn.done


@pytest.mark.parametrize("kind", ["read", "latch", "once"])
async def test_one_place_asks_for_all_while_nothing_is_free(locks: LockClient, other: LockClient, kind: str) -> None:
    """One place asks when a probe is due, and when a message comes."""
    async with several_wait(kind, locks, other) as (queue, _, let_go):
        for wake in (queue._look, lambda: queue._signal(True)):
            sent = locks.statistics().commands
            wake()
            await until(lambda sent=sent: locks.statistics().commands > sent and locks.statistics().pending == 0)
            assert locks.statistics().commands == sent + 1
        await let_go()


@pytest.mark.parametrize(("kind", "asked"), [("read", 2 * SEVERAL), ("latch", 1), ("once", 1)])
async def test_a_message_for_all_costs_each_waiter_one_command_or_one_for_all(
    locks: LockClient, other: LockClient, kind: str, asked: int
) -> None:
    """A reader acquires and releases. Of a latch, and of what runs once, one answer holds for all."""
    async with several_wait(kind, locks, other) as (_, _, let_go):
        sent = locks.statistics().commands
        await let_go()
        await all_parked(locks, 0)
        assert asked <= locks.statistics().commands - sent <= asked + 3


@pytest.mark.parametrize("kind", ["read", "latch", "once"])
async def test_a_place_that_leaves_when_it_should_ask_hands_the_question_to_another(
    locks: LockClient, other: LockClient, kind: str
) -> None:
    async with several_wait(kind, locks, other) as (queue, tasks, let_go):
        for _ in range(SEVERAL - 1):
            first = queue.head
            queue._look()
            tasks.pop(0).cancel()
            await until(lambda first=first: first not in list(queue))
        await let_go()


async def test_an_answer_does_not_count_for_waiters_that_came_after_it(locks: LockClient, other: LockClient) -> None:
    """The latch was open, and has been closed since."""
    async with several_wait("latch", locks, other) as (queue, _, let_go):
        late = Call(LATCH.acquire, (), (), deadline=monotonic() + 5)
        late.sent = min(place.since for place in queue) - 1
        late.end(Granted(0, 0))
        queue.answered(late)
        assert all_sleep(queue)
        await let_go()


async def test_a_holder_keeps_others_from_asking_only_if_it_excludes_them(locks: LockClient) -> None:
    async def asks(lock: Lock, times: int) -> None:
        """A task that waits for the lock asks so many *times*: once when its subscription stands, the others before."""
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


async def give_back_when_granted(lock: Lock) -> None:
    async with lock:
        pass


async def test_a_wait_that_is_over_tries_no_more(locks: LockClient) -> None:
    """Its last try was refused after the end; a message has come meanwhile."""
    record, want = session_of(locks).owners.running(), Want(LockKeys.of(NAME, ""), LOCK)
    for ends, tries in ((monotonic(), False), (monotonic() + 60, True), (None, True)):
        place = Place("me", record, want, lambda: Call(want.scripts.acquire, (), (), 0.0), ends)
        place.woken.set()
        assert await place.comes_up() == tries
