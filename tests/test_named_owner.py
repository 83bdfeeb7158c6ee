"""A named owner: several tasks that act as one, in every order in which they meet and in every way to give back."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from weakref import ref

import pytest
from redis.asyncio import Redis

from aiolock import AsyncReadLock, AsyncRLock, Lease, LeaseLostError, LockClient, NotHeldError
from aiolock._backend import Backend, Call
from aiolock._scripts import ACQUIRE
from aiolock.testing import Fault, around
from tests.support.calls import acquire, acquire_and_release
from tests.support.holding import client_behind
from tests.support.inside import session_of
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, script, withhold_reply
from tests.support.waiters import Waiters

NAME = "orders"
GiveBack = Callable[[AsyncRLock, Lease], Awaitable[None]]


async def try_once(lock: AsyncRLock) -> Lease | None:
    return await lock.try_lock()


async def release(lock: AsyncRLock) -> None:
    await lock.release()


async def test_a_task_of_another_loop_may_send_a_release_to_the_loop_of_the_client(locks: LockClient) -> None:
    job, loop = locks.lock(NAME, owner="job"), asyncio.get_running_loop()
    await job.acquire()
    sent: list[Future[None]] = []

    async def send() -> None:
        sent.append(asyncio.run_coroutine_threadsafe(job.release(), loop))

    # The client's loop stands still until the other one has ended.
    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    thread.join()
    await asyncio.wrap_future(sent[0])
    assert not await job.locked()


async def test_a_failed_release_keeps_no_task_alive(locks: LockClient) -> None:
    async def fail() -> None:
        await locks.lock(NAME).release()

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    assert isinstance(task.exception(), NotHeldError)
    failed = ref(task)
    gc.disable()
    try:
        del task
        await asyncio.sleep(0)
        assert failed() is None
    finally:
        gc.enable()


async def test_a_task_of_the_holding_owner_does_not_wait_behind_others(locks: LockClient) -> None:
    job = locks.lock(NAME, owner="job")
    # The client connects, so that one batch refuses or grants the three.
    await locks.lock("other").locked()
    first = asyncio.create_task(acquire(job))
    stranger = asyncio.create_task(acquire_and_release(locks.lock(NAME)))
    second = asyncio.create_task(acquire(job))
    await asyncio.wait_for(asyncio.gather(first, second), 5)
    assert await job.hold_count() == 2
    assert not stranger.done()
    await job.release()
    await job.release()
    await stranger


async def test_one_try_finds_the_lock_that_its_owner_is_just_getting(locks: LockClient) -> None:
    job = locks.lock(NAME, owner="job")
    await locks.lock("other").locked()
    assert all(await asyncio.gather(*(asyncio.create_task(try_once(job)) for _ in range(3))))
    assert await job.hold_count() == 3


async def test_a_release_leaves_the_block_of_another_task_alone(locks: LockClient) -> None:
    job = locks.lock(NAME, owner="job")
    await job.acquire()
    async with job as scoped:
        await asyncio.create_task(release(job))
        scoped.check()
        assert await job.hold_count() == 1
    assert not await job.locked()


@pytest.mark.parametrize("cancelled", [False, True], ids=["granted", "cancelled"])
async def test_a_release_leaves_a_hold_that_is_on_its_way_alone(proxy: Proxy, cancelled: bool) -> None:
    async with LockClient.from_url(proxy.url) as locks:
        job = locks.lock(NAME, owner="job")
        await job.acquire()
        answer = proxy.install(Rule(script(ACQUIRE), withhold_reply()))
        nested = asyncio.create_task(acquire(job))
        await answer.caught()
        given_back = asyncio.create_task(release(job))
        await until(lambda: locks.statistics().pending == 2)
        if cancelled:
            nested.cancel()
        answer.let_go()
        await given_back
        await asyncio.wait([nested])
        assert nested.cancelled() is cancelled
        await answered(locks)
        assert await job.hold_count() == (0 if cancelled else 1)


async def test_the_hold_of_a_named_owner_outlives_the_task(redis: Redis, locks: LockClient) -> None:
    lock = locks.lock(NAME, owner="job-17")
    lease = await asyncio.create_task(acquire(lock))
    await asyncio.sleep(0.02)
    assert await redis.exists(NAME)
    lease.check()
    await lock.release()
    assert not await redis.exists(NAME)


async def test_tasks_of_one_named_owner_that_wait_together_get_the_lock_together(
    locks: LockClient, other: LockClient
) -> None:
    theirs = other.lock(NAME)
    await theirs.acquire(lease=60)
    job = locks.lock(NAME, owner="job")
    waiting = [asyncio.create_task(acquire(job)) for _ in range(3)]
    await until(lambda: locks.statistics().parked == 3)
    await theirs.release()
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert await job.hold_count() == 3
    for _ in range(3):
        await job.release()
    assert not await job.locked()


async def test_a_named_owner_that_gets_the_lock_by_another_task_needs_no_turn(
    locks: LockClient, other: LockClient
) -> None:
    theirs = other.lock(NAME)
    await theirs.acquire(lease=60)
    job = locks.lock(NAME, owner="job")
    async with Waiters(locks, NAME) as waiters:
        await waiters.park(1)
        second = asyncio.create_task(acquire(job))
        await until(lambda: waiters.lock.statistics().parked == 2)
        await theirs.release()
        await waiters.granted(1)
        third = asyncio.create_task(acquire(job))
        await until(lambda: waiters.lock.statistics().parked == 2)
        waiters.go()
        await asyncio.wait_for(asyncio.gather(second, third), 5)
        assert await job.hold_count() == 2


class Worker:
    """A task that acquires when it is started, and gives back when it is told to."""

    def __init__(self, job: AsyncRLock, give_back: GiveBack) -> None:
        self._job = job
        self._give_back = give_back
        self._holds = asyncio.Event()
        self._go = asyncio.Event()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        await self._holds.wait()

    async def finish(self) -> None:
        self._go.set()
        await self._task

    async def _run(self) -> None:
        lease = await self._job.acquire()
        self._holds.set()
        await self._go.wait()
        await self._give_back(self._job, lease)


def by_lock(job: AsyncRLock, lease: Lease) -> Awaitable[None]:
    return job.release()


def by_lease(job: AsyncRLock, lease: Lease) -> Awaitable[None]:
    return lease.release()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first in first out", "last in first out"])
@pytest.mark.parametrize("ways", [(by_lock, by_lease), (by_lease, by_lock)], ids=["lock, lease", "lease, lock"])
async def test_tasks_of_an_owner_may_give_back_by_lock_and_by_lease(
    locks: LockClient, ways: tuple[GiveBack, GiveBack], order: tuple[int, int]
) -> None:
    job = locks.lock(NAME, owner="job")
    workers = [Worker(job, way) for way in ways]
    for worker in workers:
        await worker.start()
    assert await job.hold_count() == 2
    for number in order:
        await workers[number].finish()
    assert not await job.locked()
    assert locks.statistics().held == 0


async def test_a_task_without_a_hold_gives_back_the_hold_of_another(locks: LockClient) -> None:
    job = locks.lock(NAME, owner="job")
    await job.acquire()
    releasing = Worker(job, by_lease)
    await releasing.start()
    await job.release()
    assert await job.hold_count() == 1
    await releasing.finish()
    await asyncio.create_task(acquire(job))
    await job.release()
    assert not await job.locked()


async def test_a_release_that_the_last_one_overtakes_keeps_its_own_answer(
    locks: LockClient, other: LockClient, redis: Redis
) -> None:
    """The release is refused for a moment. Before it is sent again, the lock is freed, and another owner has it."""
    job = locks.lock(NAME, owner="job")
    async with job:
        pass
    first, last = await job.acquire(), await job.acquire()

    async def refusals() -> object:
        return (await redis.info("errorstats")).get("errorstat_NOREPLICAS")

    async def is_refused() -> bool:
        return await refusals() != before

    before = await refusals()
    await redis.config_set("min-replicas-to-write", 1)
    try:
        refused = asyncio.create_task(first.release())
        await until(is_refused)
    finally:
        await redis.config_set("min-replicas-to-write", 0)
    await last.release()
    # Its release names ends that the server may forget.
    async with job:
        pass
    async with other.lock(NAME):
        await refused


async def test_a_nested_acquire_that_outlives_its_lock_harms_no_later_hold(redis: Redis, proxy: Proxy) -> None:
    """One of two nested acquires is answered. Then a stranger takes the lost lock while the other is on its way."""
    async with client_behind(proxy, lease=300, command_timeout=20) as locks:
        job = locks.lock(NAME, owner="job")
        lease = await job.acquire()
        await answered(locks)
        await acquire(job)
        withheld = proxy.install(Rule(script(ACQUIRE), withhold_reply()))
        other = asyncio.create_task(acquire(job))
        await withheld.caught()
        await redis.delete(NAME)
        session_of(locks).check_holds(lambda key: True)
        await lease.lost
        stranger = asyncio.create_task(acquire_and_release(locks.lock(NAME)))
        await until(lambda: locks.statistics().parked == 1)
        withheld.let_go()
        with pytest.raises(LeaseLostError):
            await other
        await stranger
        async with locks.lock(NAME):
            assert locks.lock(NAME).statistics().held == 1
        await answered(locks)
        assert not session_of(locks).entries


class Overtaken(Fault):
    """The second acquire waits on its way until `arrive`."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.acquires: list[Call] = []

    def submit(self, call: Call) -> None:
        if call.script.name == "acquire":
            self.acquires.append(call)
            if len(self.acquires) == 2:
                return
        super().submit(call)

    def arrive(self) -> None:
        super().submit(self.acquires[1])


def fair(locks: LockClient, owner: str) -> AsyncRLock:
    return locks.fair_lock(NAME, owner=owner)


def read(locks: LockClient, owner: str) -> AsyncReadLock:
    return locks.read_write_lock(NAME, owner=owner).read


@pytest.mark.parametrize(
    ("lock_of", "owner", "reason"), [(fair, "job", "expired"), (fair, "another job", "taken"), (read, "job", "expired")]
)
async def test_a_new_grant_tells_that_the_earlier_one_is_lost(
    redis: Redis,
    locks: LockClient,
    lock_of: Callable[[LockClient, str], AsyncRLock | AsyncReadLock],
    owner: str,
    reason: str,
) -> None:
    with around(locks, Overtaken) as overtaken:

        async def take(owner: str) -> Lease:
            return await lock_of(locks, owner).acquire(lease=20)

        first, second = asyncio.create_task(take("job")), asyncio.create_task(take(owner))
        lost = await first
        assert len(overtaken.acquires) == 2
        # The server forgets the lock while the second acquire is on its way.
        await redis.flushdb()
        overtaken.arrive()
        held = await second
    async with asyncio.timeout(10):
        assert await lost.lost == reason
    with pytest.raises(LeaseLostError):
        await lost.release()
    held.check()
    assert held.token > lost.token
    await held.release()
    assert not await lock_of(locks, owner).locked()
    assert locks.statistics().held == 0
