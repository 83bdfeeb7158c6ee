"""A block that is left late, by another task or by the collector, ends no other block of its name."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, AsyncSemaphore, Lease, LeaseLostError, LockClient, NotHeldError
from aiolock._core.owners import is_named
from tests.support.inside import hold_of, session_of
from tests.support.observe import answered, until

NAME = "orders"
Stream = AsyncGenerator[int, None]


async def numbers(lock: AsyncRLock) -> Stream:
    async with lock:
        yield 1
        yield 2


class Other:
    """A task that runs in a block of its own."""

    def __init__(self, lock: AsyncRLock) -> None:
        self.leases: list[Lease] = []
        self.go_on = asyncio.Event()
        self._lock = lock
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._lock as lease:
            self.leases.append(lease)
            await self.go_on.wait()
            lease.check()
            assert await self._lock.held()

    async def ends_well(self) -> None:
        self.go_on.set()
        await self.task


async def begin(stream: Stream) -> None:
    assert await anext(stream) == 1


async def by_generator(lock: AsyncRLock) -> Callable[[], Awaitable[object]]:
    stream = numbers(lock)
    await asyncio.create_task(begin(stream))
    return stream.aclose


async def left_after_its_task(leave: Callable[[], Awaitable[object]]) -> None:
    """A generator that is closed has an error of its own already, which no other replaces."""
    with contextlib.suppress(LeaseLostError):
        await leave()


@pytest.mark.parametrize("lost", [False, True])
async def test_a_task_that_is_destroyed_when_its_lock_is_given_back_or_lost(
    locks: LockClient, redis: Redis, lost: bool
) -> None:
    # The loop reports destroyed tasks.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    lock = locks.lock(NAME)
    waits = asyncio.Event()

    async def forgotten() -> None:
        async with lock as lease:
            try:
                if lost:
                    await lock.force_release()
                    await asyncio.sleep(60)
                await lease.release()
            finally:
                waits.set()
                await asyncio.get_running_loop().create_future()

    _ = asyncio.create_task(forgotten())
    del _
    await waits.wait()
    other = Other(lock)
    await until(lambda: len(other.leases) == 1)
    gc.collect()
    await answered(locks)
    assert await redis.exists(NAME)
    await other.ends_well()
    assert not await redis.exists(NAME)


async def test_a_task_that_closes_the_client_while_its_loss_is_on_its_way(redis: Redis) -> None:
    locks = LockClient(redis)
    with pytest.raises(LeaseLostError, match="by force"):
        async with locks.lock(NAME) as lease:
            await locks.lock(NAME).force_release()
            assert lease.lost.is_set()
            await locks.aclose()
            await asyncio.sleep(0)


class Guard:
    """A block around a lock, of a class of the user's own."""

    def __init__(self, lock: AsyncRLock) -> None:
        self._lock = lock

    async def __aenter__(self) -> Lease:
        return await self._lock.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self._lock.__aexit__(None, None, None)


async def test_a_class_that_enters_and_leaves_in_methods_leaves_its_own(locks: LockClient, redis: Redis) -> None:
    """The class does so also beside a block that was never left, and in many tasks that act as one owner."""
    lock = locks.lock(NAME, owner="job-17")
    never_left = Guard(lock)
    await (await asyncio.create_task(never_left.__aenter__())).release()

    async def visit(number: int) -> None:
        for turn in range(10):
            async with Guard(lock) as lease:
                await asyncio.sleep(0.001 * ((number + turn) % 3))
                lease.check()
            assert lease.given_back

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(visit(number))
    assert not await redis.exists(NAME)


async def test_each_of_two_tasks_with_one_hold_leaves_its_own_block(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock(NAME)
    held = lock.hold(wait=5)
    rolls_back, go_on = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with held:
            try:
                await lock.force_release()
                await asyncio.sleep(60)
            finally:
                rolls_back.set()
                await go_on.wait()

    task = asyncio.create_task(first())
    await rolls_back.wait()
    async with held as lease:
        go_on.set()
        with pytest.raises(LeaseLostError, match="by force"):
            await task
        lease.check()
        assert await lock.held()
    assert not await redis.exists(NAME)


async def test_a_stack_that_another_task_closes_while_a_block_in_it_runs_on(locks: LockClient) -> None:
    lock = locks.lock(NAME, owner="job-17")
    stack = contextlib.AsyncExitStack()
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await stack.enter_async_context(lock)
        async with lock.hold() as inner, await lock.acquire() as lease:
            inside.set()
            await go_on.wait()
            inner.check()
            lease.check()

    task = asyncio.create_task(work())
    await inside.wait()
    await asyncio.create_task(stack.aclose())
    go_on.set()
    await task
    assert not await lock.locked()


@pytest.mark.parametrize("enter", [AsyncSemaphore.hold, lambda desks: desks], ids=["hold", "itself"])
async def test_each_of_many_blocks_without_holds_leaves_its_own(
    locks: LockClient, enter: Callable[[AsyncSemaphore], AbstractAsyncContextManager[Lease]]
) -> None:
    desks, go_on = locks.semaphore("desks", 40), asyncio.Event()
    inside = asyncio.Queue[None]()

    async def visit() -> None:
        with pytest.raises(NotHeldError, match="given back already"):
            async with enter(desks) as lease:
                await lease.release()
                inside.put_nowait(None)
                await go_on.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(40):
            tasks.create_task(visit())
        for _ in range(40):
            await inside.get()
        go_on.set()


async def test_after_a_failed_task_group_a_loss_in_its_except_block_is_told_as_one(lock: AsyncRLock) -> None:
    async def fail() -> None:
        raise ValueError

    async def body() -> None:
        async with lock:
            for _ in range(2):
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(fail())
                except* ValueError:
                    await lock.force_release()
                    await asyncio.sleep(60)

    with pytest.raises(LeaseLostError, match="by force"):
        await body()


async def test_a_task_that_has_ended_in_a_block_leaves_no_stack_behind(locks: LockClient) -> None:
    leave = await by_generator(locks.lock(NAME))
    [opened] = session_of(locks).blocks.opened.values()
    await until(lambda: [scope.record.scopes for scope in opened] == [{}])
    await leave()


Block = AbstractAsyncContextManager[Lease]


class ByMethods:
    """A block that a method enters, and another leaves."""

    def __init__(self, block: Block) -> None:
        self.block = block

    async def open(self) -> Lease:
        return await self.block.__aenter__()

    async def close(self) -> None:
        await self.block.__aexit__(None, None, None)


class ByStack(ByMethods):
    """A block that an exit stack enters and leaves."""

    def __init__(self, block: Block) -> None:
        super().__init__(block)
        self._stack = contextlib.AsyncExitStack()

    async def open(self) -> Lease:
        return await self._stack.enter_async_context(self.block)

    async def close(self) -> None:
        await self._stack.aclose()


class Pushed(ByStack):
    """A block that a method enters, and an exit stack leaves."""

    async def open(self) -> Lease:
        lease = await self.block.__aenter__()
        self._stack.push_async_exit(self.block)
        return lease


@contextlib.asynccontextmanager
async def in_tasks(*blocks: ByMethods) -> AsyncIterator[list[Lease]]:
    """Open each block in a task of its own, one after the other. The tasks live until the end, which gives all back."""
    opened, go_on = asyncio.Queue[Lease](), asyncio.Event()

    async def run(block: ByMethods) -> None:
        opened.put_nowait(await block.open())
        await go_on.wait()

    async with asyncio.TaskGroup() as tasks:
        leases = []
        for block in blocks:
            tasks.create_task(run(block))
            leases.append(await opened.get())
        yield leases
        await given_back(*leases)
        go_on.set()


async def given_back(*leases: Lease) -> None:
    """Closing the client waits for the blocks of a named owner, which any task may leave."""
    for lease in leases:
        if not lease.given_back:
            await left_after_its_task(lease.release)


Make = Callable[[LockClient], Block]
MAKES: dict[str, Make] = {
    "itself": lambda locks: locks.semaphore("desks", 9),
    "of a named owner": lambda locks: locks.semaphore("desks", 9, owner="job-17"),
    "hold": lambda locks: locks.semaphore("desks", 9).hold(),
}
each_block = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
each_lock = pytest.mark.parametrize("make", list(MAKES.values())[:2], ids=list(MAKES)[:2])
each_way = pytest.mark.parametrize("way", [ByMethods, ByStack, Pushed])
Way = type[ByMethods]


@each_lock
@each_way
@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_task_that_is_destroyed_within_another_that_is_in_a_block_of_its_own(
    locks: LockClient, make: Make, way: Way, by_hand: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    block, waits = make(locks), asyncio.Event()
    mine = way(block)

    async def forgotten() -> None:
        theirs = way(block)
        lease = await theirs.open()
        try:
            if by_hand:
                await lease.release()
            waits.set()
            await asyncio.get_running_loop().create_future()
        finally:
            await theirs.close()

    _ = asyncio.create_task(forgotten())
    del _
    await waits.wait()
    lease = await mine.open()
    gc.collect()
    lease.check()
    await mine.close()
    assert lease.given_back


@each_way
async def test_the_order_of_leaving_is_free_for_blocks_of_one_lock_and_task(locks: LockClient, way: Way) -> None:
    """The blocks share a hold, so that only the last one gives the lock back."""
    blocks = [way(locks.lock(NAME)) for _ in range(3)]
    leases = [await block.open() for block in blocks]
    for left, block in enumerate(blocks, 1):
        await block.close()
        assert leases[0].holds == 3 - left
    assert not await locks.lock(NAME).locked()


@each_block
async def test_a_method_leaves_the_block_that_its_caller_entered(locks: LockClient, make: Make) -> None:
    """A method may open something, fail, and close it again."""
    methods = ByMethods(make(locks))
    async with in_tasks(ByMethods(methods.block)) as [others]:
        lease = await methods.block.__aenter__()
        await methods.close()
        assert lease.given_back
        others.check()


@each_block
@each_way
async def test_a_block_that_one_task_entered_may_be_left_by_another(locks: LockClient, make: Make, way: Way) -> None:
    block = way(make(locks))
    async with in_tasks(block) as [lease]:
        await block.close()
        assert lease.given_back


@each_block
@each_way
async def test_a_third_task_is_refused_when_two_tasks_have_blocks(locks: LockClient, make: Make, way: Way) -> None:
    blocks = [way(make(locks))]
    blocks.append(way(blocks[0].block))
    async with in_tasks(*blocks) as leases:
        with pytest.raises(RuntimeError, match="one of several that other tasks entered"):
            await blocks[0].close()
        error = KeyError()
        await blocks[0].block.__aexit__(KeyError, error, None)
        assert "one of several that other tasks entered" in error.__notes__[0]
        assert not any(lease.given_back for lease in leases)


@each_block
@each_way
@pytest.mark.parametrize("ended", [True, False], ids=["has ended", "was destroyed"])
async def test_a_closed_generator_leaves_its_own_block_and_not_that_of_a_task_which_is_gone(
    locks: LockClient, make: Make, way: Way, ended: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    block, leases = make(locks), list[Lease]()
    stale = way(block)

    async def forget() -> None:
        leases.append(await stale.open())
        if not ended:
            await asyncio.get_running_loop().create_future()

    async def stream() -> Stream:
        own = way(block)
        leases.append(await own.open())
        try:
            yield 1
        finally:
            await own.close()

    _ = asyncio.create_task(forget())
    del _
    await until(lambda: len(leases) == 1)
    gc.collect()
    if is_of_a_task(leases[0]):
        await until(leases[0].lost.is_set)
    await begin(numbers := stream())
    await numbers.aclose()
    assert leases[1].given_back
    await given_back(*leases)


def is_of_a_task(lease: Lease) -> bool:
    return not is_named(hold_of(lease).owner)


@each_block
@pytest.mark.parametrize(
    "awaited",
    [asyncio.shield, asyncio.gather, asyncio.create_task, partial(asyncio.wait_for, timeout=5)],
    ids=["shielded", "gathered", "as a task", "in time"],
)
async def test_the_exit_of_a_block_may_be_awaited_by_another_task(
    locks: LockClient, make: Make, awaited: Callable[[Any], Awaitable[object]]
) -> None:
    block, both = make(locks), asyncio.Barrier(2)

    async def visit() -> None:
        lease = await block.__aenter__()
        await both.wait()
        await awaited(block.__aexit__(None, None, None))
        assert lease.given_back

    await asyncio.gather(visit(), visit())


@each_block
async def test_a_class_that_hands_on_the_coroutines_of_a_block_leaves_its_own_block(
    locks: LockClient, make: Make
) -> None:
    block = make(locks)

    class Handing:
        def __aenter__(self) -> Awaitable[Lease]:
            return block.__aenter__()

        def __aexit__(self, *error: Any) -> Awaitable[object]:
            return block.__aexit__(*error)

    async with block as outer:
        async with Handing() as inner:
            pass
        assert inner.given_back
        outer.check()


async def test_a_task_that_leaves_an_unclear_block_by_an_error_is_told(locks: LockClient) -> None:
    error, held = ZeroDivisionError(), locks.lock("orders").hold(wait=1)
    async with held:
        pass
    await held.__aexit__(ZeroDivisionError, error, None)
    assert "was not entered" in error.__notes__[0]
