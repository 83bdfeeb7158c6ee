"""A server goes away while hundreds of tasks wait: each task gets an error of its own, and the event loop goes on."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Self

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LockClient, LockConfig
from aiolock._redis.failures import _MOST_AT_ONCE
from tests.support.observe import until
from tests.support.proxy import Proxy

MANY = 400
CONFIG = LockConfig(command_timeout=2, release_timeout=0.5)


@pytest.fixture
async def client(through: Redis) -> AsyncIterator[LockClient]:
    async with LockClient(through, config=CONFIG) as running:
        yield running


class Failed:
    """Tasks that all fail with `BackendError`; it counts how many failed in each turn of the event loop."""

    def __init__(self) -> None:
        self.errors: list[BackendError] = []
        self.by_turn: Counter[int] = Counter()
        self._turn = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        self._tasks.append(asyncio.create_task(self._note(work)))

    async def all(self) -> Self:
        """Wait until every task has failed."""
        await asyncio.gather(*self._tasks)
        return self

    async def _note(self, work: Callable[[], Coroutine[object, object, object]]) -> None:
        try:
            await work()
        except BackendError as error:
            if not self.errors:
                self._count_turns()
            self.errors.append(error)
            self.by_turn[self._turn] += 1

    def _count_turns(self) -> None:
        self._turn += 1
        if len(self.errors) < len(self._tasks):
            asyncio.get_running_loop().call_soon(self._count_turns)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[BackendError]:
    """The errors that were copied."""
    copies: list[BackendError] = []
    copy = BackendError.copy

    def counted(error: BackendError) -> BackendError:
        copies.append(error)
        return copy(error)

    monkeypatch.setattr(BackendError, "copy", counted)
    return copies


async def hold_lock(other: LockClient) -> None:
    await other.lock("shared", owner="holder").acquire(lease=6)


async def lock(client: LockClient) -> None:
    await client.lock("shared").acquire()


async def hold_writer(other: LockClient) -> None:
    await other.read_write_lock("shared", owner="holder").write.acquire(lease=6)


async def read(client: LockClient) -> None:
    await client.read_write_lock("shared").read.acquire()


async def set_latch(other: LockClient) -> None:
    await other.count_down_latch("shared").try_set_count(1)


async def wait_for_latch(client: LockClient) -> None:
    await client.count_down_latch("shared").wait()


Hold = Callable[[LockClient], Awaitable[None]]
Wait = Callable[[LockClient], Coroutine[object, object, None]]


@pytest.mark.parametrize("acts", [(hold_lock, lock), (hold_writer, read), (set_latch, wait_for_latch)])
async def test_an_outage_is_told_once_to_each_waiter_and_to_some_of_them_at_a_time(
    proxy: Proxy, client: LockClient, other: LockClient, copies: list[BackendError], acts: tuple[Hold, Wait]
) -> None:
    hold, wait = acts
    await hold(other)
    failed = Failed()
    for _ in range(MANY):
        failed.start(partial(wait, client))
    await until(lambda: client.statistics().parked == MANY)
    await proxy.cut_off()
    await failed.all()
    assert len(set(map(id, failed.errors))) == MANY, "each task has an error of its own"
    assert len(copies) <= MANY
    # Calls fail, and waiters hear of a failed call.
    assert max(failed.by_turn.values()) <= 2 * _MOST_AT_ONCE
    assert client.statistics().parked == 0


async def test_calls_for_many_locks_that_get_no_answer_fail_some_at_a_time(proxy: Proxy, client: LockClient) -> None:
    await client.ping()
    proxy.black_hole()
    failed = Failed()
    for number in range(MANY):
        failed.start(client.lock(f"orders:{number}").try_lock)
    await failed.all()
    assert len(set(map(id, failed.errors))) == MANY
    # One turn may see the end of one batch and the beginning of the next.
    assert max(failed.by_turn.values()) <= 2 * _MOST_AT_ONCE


async def test_a_waiter_that_gives_up_while_an_outage_is_told_leaves_in_peace(
    proxy: Proxy, client: LockClient, other: LockClient
) -> None:
    """The first tasks that fail cancel the tasks that have not been told yet."""
    await hold_lock(other)
    tasks: list[asyncio.Task[None]] = []

    async def wait_and_cancel_the_others() -> None:
        try:
            await lock(client)
        finally:
            for task in tasks[_MOST_AT_ONCE:]:
                task.cancel()

    tasks += [asyncio.create_task(wait_and_cancel_the_others()) for _ in range(3 * _MOST_AT_ONCE)]
    await until(lambda: client.statistics().parked == len(tasks))
    await proxy.cut_off()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(task.cancelled() for task in tasks) == 2 * _MOST_AT_ONCE
    await proxy.heal()
    await until(lambda: works(client))


async def works(client: LockClient) -> bool:
    with suppress(BackendError):
        return await client.lock("another").try_lock() is not None
    return False
