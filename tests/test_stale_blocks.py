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

from aiolock import AsyncPermitExpirableSemaphore, AsyncRLock, Lease, LeaseLostError, LockClient, NotHeldError
from aiolock._core.owners import is_named
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
    await asyncio.create_task(begin(stream))  # It ends, and its lock is given back.
    return stream.aclose


async def by_stack(lock: AsyncRLock) -> Callable[[], Awaitable[object]]:
    stack = contextlib.AsyncExitStack()

    async def start() -> None:
        await stack.enter_async_context(lock)

    await asyncio.create_task(start())
    return stack.aclose


@pytest.mark.parametrize("enter", [by_generator, by_stack])
async def test_of_a_task_that_has_ended(
    locks: LockClient, redis: Redis, enter: Callable[[AsyncRLock], Awaitable[Callable[[], Awaitable[object]]]]
) -> None:
    lock = locks.lock(NAME)
    leave = await enter(lock)
    other = Other(lock)
    await until(lambda: len(other.leases) == 1)
    await leave()
    await answered(locks)
    assert await redis.exists(NAME)
    await other.ends_well()
    assert not await redis.exists(NAME)


@pytest.mark.parametrize("lost", [False, True])
async def test_of_a_task_that_is_destroyed_when_its_lock_is_given_back_or_lost(
    locks: LockClient, redis: Redis, lost: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # What asyncio says of such tasks.
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


async def test_of_another_task_that_acts_as_the_same_named_owner(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock(NAME, owner="job-17")
    stream = numbers(lock)
    holder = asyncio.create_task(begin_and_wait(stream))
    other = Other(lock)
    await until(lambda: len(other.leases) == 1 and other.leases[0].holds == 2)
    await answered(locks)
    await asyncio.create_task(stream.aclose())
    assert other.leases[0].holds == 1
    await other.ends_well()
    holder.cancel()
    await asyncio.wait([holder])
    assert not await redis.exists(NAME)


async def begin_and_wait(stream: Stream) -> None:
    await begin(stream)
    await asyncio.sleep(60)


async def test_a_named_owner_may_close_its_stack_in_a_later_task(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock(NAME, owner="job-17")
    leave = await by_stack(lock)
    gc.collect()
    assert await redis.exists(NAME)
    await leave()
    await answered(locks)
    assert not await redis.exists(NAME)


async def test_stacks_of_two_tasks_of_a_named_owner_may_be_closed_by_a_third(locks: LockClient, redis: Redis) -> None:
    lock = locks.lock(NAME, owner="job-17")
    stacks, holding = [contextlib.AsyncExitStack(), contextlib.AsyncExitStack()], Other(lock)
    await until(lambda: len(holding.leases) == 1)

    entered = asyncio.Queue[None]()

    async def work(stack: contextlib.AsyncExitStack) -> None:
        await stack.enter_async_context(lock)
        entered.put_nowait(None)
        await asyncio.sleep(60)

    tasks = [asyncio.create_task(work(stack)) for stack in stacks]
    for _ in tasks:
        await entered.get()
    assert holding.leases[0].holds == 3
    for left, stack in enumerate(stacks):
        await stack.aclose()
        assert holding.leases[0].holds == 2 - left
    await holding.ends_well()
    assert not await redis.exists(NAME)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_of_one_that_closes_the_client_while_its_loss_is_on_its_way(redis: Redis) -> None:
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
    """Also beside a block that was never left, and in many tasks that act as one owner."""
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


async def test_of_one_hold_in_two_tasks_each_leaves_its_own(locks: LockClient, redis: Redis) -> None:
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


async def test_of_a_stack_that_another_task_closes_while_a_block_in_it_runs_on(locks: LockClient) -> None:
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


@pytest.mark.parametrize("enter", [AsyncPermitExpirableSemaphore.hold, lambda desks: desks], ids=["hold", "itself"])
async def test_of_many_blocks_that_have_given_back_what_they_had_each_leaves_its_own(
    locks: LockClient, enter: Callable[[AsyncPermitExpirableSemaphore], AbstractAsyncContextManager[Lease]]
) -> None:
    desks, go_on = locks.permit_expirable_semaphore("desks", 40), asyncio.Event()
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


async def test_who_was_given_a_lease_is_told_when_the_task_that_acquired_it_ends(lock: AsyncRLock) -> None:
    inside = asyncio.Event()

    async def child(lease: Lease) -> None:
        async with lease:
            inside.set()
            await asyncio.sleep(60)

    async def parent() -> "asyncio.Task[None]":
        task = asyncio.create_task(child(await lock.acquire()))
        await inside.wait()
        return task

    task = await asyncio.create_task(parent())
    with pytest.raises(LeaseLostError):
        await task
    assert not await lock.locked()


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
    await answered(locks)
    [entry] = locks._sessions.here().entries.all()
    assert [scope.record.scopes for scope in entry.scopes] == [[]]
    await leave()


async def test_an_exit_stack_of_another_task_leaves_the_block_around_alone(locks: LockClient) -> None:
    """Of two who may be inside at the same time."""
    desks, stack, go_on = locks.permit_expirable_semaphore("desks", 2), contextlib.AsyncExitStack(), asyncio.Event()
    entered = asyncio.Event()

    async def enter() -> None:
        await stack.enter_async_context(desks)
        entered.set()
        await go_on.wait()

    task = asyncio.create_task(enter())
    await entered.wait()
    async with desks as lease:
        await stack.aclose()
        lease.check()
        assert await desks.available() == 1
    go_on.set()
    await task
    assert await desks.available() == 2


async def test_an_exit_stack_leaves_what_a_stack_entered_though_another_block_is_settled(
    locks: LockClient, redis: Redis
) -> None:
    lock, stack, entered = locks.lock(NAME, owner="job-17"), contextlib.AsyncExitStack(), asyncio.Event()

    async def never_leaves() -> None:
        lease = await lock.__aenter__()
        await lease.release()

    async def work() -> None:
        await stack.enter_async_context(lock)
        entered.set()
        await asyncio.sleep(60)

    await asyncio.create_task(never_leaves())
    task = asyncio.create_task(work())
    await entered.wait()
    await asyncio.create_task(stack.aclose())
    assert not await redis.exists(NAME)
    task.cancel()
    await asyncio.wait([task])


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
    """Each is opened in a task of its own, one after the other; they live until this ends, which gives all back."""
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


async def end_alone(ending: ByMethods, lease: Lease) -> None:
    """It is closed, and gives *lease* back; a block around it goes on, and that of another task."""
    async with in_tasks(type(ending)(ending.block)) as [others], ending.block as around:
        await ending.close()
        assert lease.given_back
        around.check()
        others.check()


async def given_back(*leases: Lease) -> None:
    """Closing the client waits for the blocks of a named owner, which any task may leave."""
    for lease in leases:
        if not lease.given_back:
            await lease.release()


Make = Callable[[LockClient], Block]
MAKES: dict[str, Make] = {
    "itself": lambda locks: locks.permit_expirable_semaphore("desks", 9),
    "of a named owner": lambda locks: locks.permit_expirable_semaphore("desks", 9, owner="job-17"),
    "hold": lambda locks: locks.permit_expirable_semaphore("desks", 9).hold(),
}
each_block = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
each_lock = pytest.mark.parametrize("make", list(MAKES.values())[:2], ids=list(MAKES)[:2])
each_way = pytest.mark.parametrize("way", [ByMethods, ByStack, Pushed])
Way = type[ByMethods]


@each_block
@each_way
async def test_a_task_leaves_what_it_entered_and_nothing_that_is_around(
    locks: LockClient, make: Make, way: Way
) -> None:
    """Also beside blocks that nobody left, and those of others."""
    mine = way(make(locks))
    lease = await mine.open()
    kept = await asyncio.create_task(way(mine.block).open())
    await end_alone(mine, lease)
    await given_back(kept)


@each_block
@each_way
async def test_what_a_task_entered_that_has_ended_is_left_sooner_than_what_runs_on(
    locks: LockClient, make: Make, way: Way
) -> None:
    stale = way(make(locks))
    task = asyncio.create_task(stale.open())
    await end_alone(stale, await task)
    assert task.done(), "it is not only gone"


@each_lock
@each_way
@pytest.mark.parametrize("by_hand", [False, True])
async def test_of_a_task_that_is_destroyed_within_another_that_is_in_a_block_of_its_own(
    locks: LockClient, make: Make, way: Way, by_hand: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # What asyncio says of such tasks.
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


@pytest.mark.parametrize("owner", [None, "job-17"])
@each_way
async def test_what_was_given_back_by_hand_is_left_sooner_than_what_runs_on(
    locks: LockClient, way: Way, owner: str | None
) -> None:
    desks = locks.permit_expirable_semaphore("desks", 9, owner=owner)
    stale, later = way(desks), way(desks)
    kept = await asyncio.create_task(way(desks).open())
    async with in_tasks(stale, later) as [lease, others], desks as around:
        await lease.release()
        await stale.close()
        around.check()
        others.check()
        assert kept.given_back is (owner is None)
    await given_back(kept)


@each_block
async def test_a_method_leaves_what_the_frame_entered_that_calls_it(locks: LockClient, make: Make) -> None:
    """As one does that opens something, fails, and closes it."""
    methods = ByMethods(make(locks))
    async with in_tasks(ByMethods(methods.block)) as [others]:
        lease = await methods.block.__aenter__()
        await methods.close()
        assert lease.given_back
        others.check()


@each_block
@pytest.mark.parametrize("ways", [(ByMethods, ByStack), (ByStack, ByMethods)])
async def test_a_stack_and_methods_leave_what_each_of_them_entered(
    locks: LockClient, make: Make, ways: tuple[Way, Way]
) -> None:
    block = make(locks)
    first, second = (way(block) for way in ways)
    await first.open()
    lease = await second.open()
    await first.close()
    lease.check()
    await second.close()
    assert lease.given_back


@each_block
@each_way
async def test_what_one_task_entered_may_be_left_by_another(locks: LockClient, make: Make, way: Way) -> None:
    block = way(make(locks))
    async with in_tasks(block) as [lease]:
        await block.close()
        assert lease.given_back


@each_block
@each_way
async def test_what_may_be_that_of_two_tasks_is_nobodys_to_leave(locks: LockClient, make: Make, way: Way) -> None:
    """Of a named owner the last one goes that a stack entered: such tasks act as one."""
    blocks = [way(make(locks))]
    blocks.append(way(blocks[0].block))
    async with in_tasks(*blocks) as leases:
        if make is MAKES["of a named owner"] and way is ByStack:
            await blocks[0].close()
            assert [lease.given_back for lease in leases] == [False, True]
        else:
            with pytest.raises(RuntimeError, match="was not entered"):
                await blocks[0].close()
            await blocks[0].block.__aexit__(KeyError, KeyError(), None)  # An error is not replaced.
            assert not any(lease.given_back for lease in leases)


async def test_an_exit_stack_that_may_be_that_of_two_leaves_nobodys_block(locks: LockClient) -> None:
    """Of three tasks one closes the stack of another, within a block of its own: it must not be that which ends."""
    desks, go_on = locks.permit_expirable_semaphore("desks", 3), asyncio.Event()
    stacks, entered = [contextlib.AsyncExitStack() for _ in range(2)], asyncio.Queue[None]()

    async def enter(stack: contextlib.AsyncExitStack) -> None:
        await stack.enter_async_context(desks)
        entered.put_nowait(None)
        await go_on.wait()
        await stack.aclose()

    tasks = [asyncio.create_task(enter(stack)) for stack in stacks]
    for _ in tasks:
        await entered.get()
    async with desks as lease:
        with pytest.raises(RuntimeError, match="was not entered"):
            await stacks[0].pop_all().aclose()
        lease.check()
        assert await desks.available() == 0
    go_on.set()
    await asyncio.gather(*tasks)


@each_block
@each_way
@pytest.mark.parametrize("ended", [True, False], ids=["has ended", "was destroyed"])
async def test_a_generator_that_is_closed_leaves_what_it_entered_beside_that_of_a_task_which_is_no_more(
    locks: LockClient, make: Make, way: Way, ended: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # What asyncio says of such tasks.
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
        await until(lambda: leases[0].given_back)
    await begin(numbers := stream())
    await numbers.aclose()
    assert leases[1].given_back
    await given_back(*leases)


def is_of_a_task(lease: Lease) -> bool:
    return not is_named(lease._hold.owner)


@each_block
@pytest.mark.parametrize(
    "awaited",
    [asyncio.shield, asyncio.gather, asyncio.create_task, partial(asyncio.wait_for, timeout=5)],
    ids=["shielded", "gathered", "as a task", "in time"],
)
async def test_what_leaves_a_block_may_be_awaited_by_another_task(
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
async def test_a_class_that_hands_on_what_a_block_returns_leaves_its_own(locks: LockClient, make: Make) -> None:
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


async def test_stacks_of_one_hold_of_a_named_owner_may_be_closed_by_a_third_task(locks: LockClient) -> None:
    """As those of its lock: all that enter it are the same owner."""
    held = locks.permit_expirable_semaphore("desks", 9, owner="job-17").hold()
    stacks = [ByStack(held), ByStack(held)]
    async with in_tasks(*stacks) as leases:
        for stack in stacks:
            await stack.close()
        assert all(lease.given_back for lease in leases)


async def test_whoever_leaves_what_nobody_can_tell_by_an_error_is_told(locks: LockClient) -> None:
    error, held = ZeroDivisionError(), locks.lock("orders").hold(wait=1)
    async with held:
        pass
    await held.__aexit__(ZeroDivisionError, error, None)
    assert "was not entered" in error.__notes__[0]
