"""A block of a handle that tasks share is left by a generator, an exit stack or the collector, and no other block."""

import asyncio
import gc
import sys
import unittest
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from types import FrameType
from typing import Any

import pytest
import redis as synchronous

from aiolock import LockClient, Turn
from aiolock._core.blocks import Opened, frame_id
from aiolock._core.owners import Owners, current_task
from aiolock._embedded_server import Server
from aiolock._primitives.entered import _Entry
from tests.support.observe import until
from tests.test_fork import in_child

Block = AbstractAsyncContextManager[Any]
Make = Callable[[LockClient], Block]
Rows = AsyncGenerator[Any, None]

# Two tasks may be in a block of each of these at the same time.
SHARED: dict[str, Make] = {
    "a lock of a named owner": lambda locks: locks.lock("orders", owner="job-17"),
    "its hold": lambda locks: locks.lock("orders", owner="job-17").hold(),
    "the read lock": lambda locks: locks.read_write_lock("orders").read,
    "permits": lambda locks: locks.semaphore("desks", 9),
    "a hold of permits": lambda locks: locks.semaphore("desks", 9).hold(),
    "a counting semaphore": lambda locks: locks.counting_semaphore("desks", 9),
    "a hold of a counting semaphore": lambda locks: locks.counting_semaphore("desks", 9).hold(),
    "a multi lock": lambda locks: locks.multi(locks.lock("a", owner="job-17"), locks.lock("b", owner="job-17")),
    "a multi lock of permits": lambda locks: locks.multi(locks.semaphore("a", 9), locks.semaphore("b", 9)),
    "once": lambda locks: locks.once("orders", keep=60, wait=0),
}
MAKES: dict[str, Make] = {
    **SHARED,
    "a lock": lambda locks: locks.lock("orders"),
    "a hold": lambda locks: locks.lock("orders").hold(),
    "a fair lock": lambda locks: locks.fair_lock("orders"),
    "a leader": lambda locks: locks.leader("orders"),
}
each_shared = pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
each_handle = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
each_named = pytest.mark.parametrize("make", list(SHARED.values())[:2], ids=list(SHARED)[:2])


async def rows_under(block: Block) -> Rows:
    async with block as entered:
        while True:
            yield entered


def check(entered: Any) -> None:
    """Check that the lease of a block is still held."""
    held = entered.lease if isinstance(entered, Turn) else entered
    if held is not None:
        held.check()


@asynccontextmanager
async def in_another_task(enter: Callable[[], Awaitable[Any]]) -> AsyncIterator[Any]:
    """The value that *enter* gives in a task. The task lives on until the end, and leaves nothing by itself."""
    entered, go_on = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def run() -> None:
        entered.set_result(await enter())
        await go_on.wait()

    task = asyncio.create_task(run())
    yield await entered
    go_on.set()
    await task


@asynccontextmanager
async def inside_another_task(block: Block) -> AsyncIterator[None]:
    """A task that is in a block of its own, which nobody ends."""
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with block as entered:
            inside.set()
            await go_on.wait()
            check(entered)

    task = asyncio.create_task(run())
    await inside.wait()
    yield
    go_on.set()
    await task


async def nothing_is_held(locks: LockClient) -> None:
    await until(lambda: locks.statistics().held == 0)


@pytest.fixture
async def clean(locks: LockClient) -> AsyncIterator[LockClient]:
    """A client that holds nothing at the end of the test, before it is closed."""
    yield locks
    await nothing_is_held(locks)
    assert await locks.counting_semaphore("desks", 9).available() == 9


@pytest.fixture
def emptied(server: Server) -> Server:
    """The server, for tests whose loop is their own."""
    with synchronous.Redis.from_url(server.url) as redis:
        redis.flushall()
    return server


@each_shared
@pytest.mark.parametrize("inner", [False, True], ids=["begun before", "begun within"])
async def test_a_generator_that_another_task_began_leaves_its_own_block_within_one_of_ours(
    clean: LockClient, make: Make, inner: bool
) -> None:
    handle = make(clean)
    rows = rows_under(handle)
    async with AsyncExitStack() as other:
        if not inner:
            await other.enter_async_context(in_another_task(rows.__anext__))
        async with handle as mine:
            if inner:
                await other.enter_async_context(in_another_task(rows.__anext__))
            await rows.aclose()
            check(mine)
    with pytest.raises(RuntimeError, match="was not entered"):
        await handle.__aexit__(None, None, None)


@each_handle
async def test_a_generator_of_a_task_that_has_ended_leaves_its_own_block_within_one_of_ours(
    clean: LockClient, make: Make
) -> None:
    handle = make(clean)
    rows = rows_under(handle)
    async with in_another_task(rows.__anext__):
        pass
    async with handle as mine:
        await rows.aclose()
        check(mine)


@each_shared
async def test_a_wrapped_block_that_another_task_entered_is_left_within_one_of_ours(
    clean: LockClient, make: Make
) -> None:
    handle = make(clean)

    @asynccontextmanager
    async def wrapped() -> AsyncIterator[Any]:
        async with handle as entered:
            yield entered

    stack = AsyncExitStack()
    async with handle as mine, in_another_task(lambda: stack.enter_async_context(wrapped())):
        await asyncio.wait_for(stack.aclose(), 5)
        check(mine)


@each_shared
async def test_a_loop_that_breaks_off_leaves_its_block_beside_that_of_another_task(
    clean: LockClient, make: Make
) -> None:
    """The event loop closes the generator, in a task of its own."""
    handle = make(clean)

    async def first_row() -> None:
        async for entered in rows_under(handle):
            check(entered)
            break

    async with inside_another_task(handle):
        await first_row()
        gc.collect()
        await asyncio.sleep(0)
    await nothing_is_held(clean)
    async with aclosing(rows_under(handle)) as rows:
        check(await anext(rows))


@each_shared
@pytest.mark.parametrize("stacked", [False, True], ids=["async with", "exit stack"])
async def test_the_collector_leaves_the_block_of_the_task_that_it_destroys_within_one_of_ours(
    clean: LockClient, make: Make, stacked: bool
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    handle, inside = make(clean), asyncio.Event()

    async def forgotten() -> None:
        async with AsyncExitStack() if stacked else handle as entered:
            if isinstance(entered, AsyncExitStack):
                await entered.enter_async_context(handle)
            inside.set()
            await asyncio.get_running_loop().create_future()

    async with handle as mine:
        _ = asyncio.create_task(forgotten())
        del _
        await inside.wait()
        gc.collect()
        check(mine)
        await asyncio.sleep(0)
        check(mine)


@each_handle
async def test_a_stack_that_one_task_entered_is_closed_by_another(clean: LockClient, make: Make) -> None:
    stack = AsyncExitStack()
    async with in_another_task(lambda: stack.enter_async_context(make(clean))):
        await asyncio.create_task(asyncio.wait_for(stack.aclose(), 5))
        await nothing_is_held(clean)


@pytest.mark.parametrize("owner", [None, "job-17"])
async def test_blocks_of_one_lock_that_a_task_entered_are_left_in_any_order(
    clean: LockClient, owner: str | None
) -> None:
    """The blocks share a hold, so that only the last one gives the lock back, also when another task leaves them."""
    lock, stacks = clean.lock("orders", owner=owner), [AsyncExitStack() for _ in range(4)]

    async def enter() -> Any:
        return [await stack.enter_async_context(lock) for stack in stacks]

    async with in_another_task(enter) as [lease, *_]:
        for left, stack in enumerate(stacks, 1):
            await stack.aclose()
            assert lease.holds == len(stacks) - left


@each_shared
async def test_a_block_that_nothing_tells_from_others_is_an_error_and_stays_held_by_no_task_that_has_ended(
    clean: LockClient, make: Make
) -> None:
    handle = make(clean)
    stacks = [AsyncExitStack() for _ in range(2)]

    async def entered(stack: AsyncExitStack) -> Any:
        return await stack.enter_async_context(handle)

    async with in_another_task(lambda: entered(stacks[0])), in_another_task(lambda: entered(stacks[1])):
        with pytest.raises(RuntimeError, match=r"one of several that other tasks entered\. Leave it in the task that"):
            await stacks[0].aclose()
        error = ZeroDivisionError()
        await handle.__aexit__(ZeroDivisionError, error, None)
        assert "one of several that other tasks entered" in error.__notes__[0]


@each_named
async def test_a_block_that_was_doubted_is_left_by_its_task_all_the_same(clean: LockClient, make: Make) -> None:
    handle = make(clean)
    async with inside_another_task(handle), inside_another_task(handle):
        with pytest.raises(RuntimeError, match="one of several"):
            await handle.__aexit__(None, None, None)


@each_handle
def test_a_forked_child_silently_leaves_a_block_that_it_did_not_enter(emptied: Server, make: Make) -> None:
    async def main() -> None:
        async with LockClient.from_url(emptied.url) as locks:
            handle = make(locks)
            async with handle as entered:

                async def child() -> None:
                    for _ in range(2):
                        await handle.__aexit__(None, None, None)
                    error = KeyError()
                    await handle.__aexit__(KeyError, error, None)
                    assert not hasattr(error, "__notes__")

                in_child(child)
                check(entered)

    asyncio.run(main())


def test_a_block_that_unittest_enters_is_left_in_another_task(emptied: Server) -> None:
    """Each step of an `IsolatedAsyncioTestCase` is a task of its own; unittest calls `__aexit__` outside the loop."""

    @asynccontextmanager
    async def wrapped(block: Block) -> AsyncIterator[Any]:
        async with block as entered:
            yield entered

    class Steps(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self) -> None:
            self.locks = await self.enterAsyncContext(LockClient.from_url(emptied.url))
            self.lock = self.locks.lock("orders", owner="job-17")
            self.outer = await self.enterAsyncContext(wrapped(self.lock))

        async def test_inner(self) -> None:
            await self.enterAsyncContext(wrapped(self.lock))
            self.addAsyncCleanup(self.check, 2)

        async def asyncTearDown(self) -> None:
            await self.check(2)

        async def check(self, holds: int) -> None:
            assert self.outer.holds == holds

    result = unittest.TestResult()
    Steps("test_inner").run(result)
    assert result.wasSuccessful(), result.errors + result.failures


async def call(function: Callable[..., Awaitable[Any]], *args: object) -> Any:
    """Stands for a helper that measures: a later call of it has the frame, or the address, of one that has returned."""
    return await function(*args)


@each_shared
async def test_one_function_that_enters_and_leaves_for_several_tasks(make: Make, locks: LockClient) -> None:
    """The first task's call has returned when the second one leaves, in a frame with the address of that call."""
    block = make(locks)
    first_in, parked, second_in, unparked = (asyncio.Event() for _ in range(4))

    async def second() -> None:
        await parked.wait()
        await call(block.__aenter__)
        second_in.set()
        await unparked.wait()
        await call(block.__aexit__, None, None, None)

    async def between() -> None:
        """Be inside the helper while the second task enters, so that the second task has another frame."""

        async def park() -> None:
            # Python makes the object of a frame when it is asked for.
            _ = sys._getframe(1)
            parked.set()
            await second_in.wait()

        await first_in.wait()
        await call(park)
        unparked.set()

    others = [asyncio.create_task(each()) for each in (second, between)]
    entered = await call(block.__aenter__)
    first_in.set()
    await asyncio.gather(*others)
    check(entered)
    await block.__aexit__(None, None, None)


@pytest.mark.parametrize("kind", ["semaphore", "counting_semaphore"])
async def test_handles_for_different_numbers_of_permits_are_left_in_any_order(kind: str, locks: LockClient) -> None:
    one = getattr(locks, kind)("desks", 4)
    three = one.taking(3)
    first, second = AsyncExitStack(), AsyncExitStack()
    await first.enter_async_context(one)
    entered = await second.enter_async_context(three)
    await first.aclose()
    check(entered)
    assert await one.available() == 1
    await second.aclose()
    assert await one.available() == 4


async def test_finding_a_block_costs_the_same_however_many_others_are_open() -> None:
    """Otherwise thousands of readers that leave at once would block the event loop for seconds."""
    assert lines_to_leave_beside(10) == lines_to_leave_beside(1000)


async def test_blocks_may_be_left_while_the_open_ones_are_looked_at() -> None:
    """The garbage collector may destroy tasks in their blocks at any moment."""
    opened, record = Opened[_Entry](), Owners("client", lambda task: None).running()
    for number in range(3):
        opened.add(_Entry((number, sys._getframe().f_code), record, nullcontext()))
    for each in opened:
        opened.remove(each)
    assert len(opened) == 0


def lines_to_leave_beside(others: int) -> int:
    """The number of lines that find and remove the first one of many blocks."""
    here, opened = sys._getframe(), Opened[_Entry]()
    record = Owners("client", lambda task: None).running()
    first = _Entry(frame_id(here), record, nullcontext())
    for entry in (first, *(_Entry((number, here.f_code), record, nullcontext()) for number in range(others))):
        opened.add(entry)

    def leave() -> None:
        assert opened.find_left(here, current_task()) is first
        opened.remove(first)

    return lines_of(leave)


async def test_the_collector_may_leave_a_block_while_the_blocks_are_looked_at() -> None:
    """Before Python 3.12 it may run while a tuple is made of them."""
    record = Owners("client", lambda task: None).running()
    for allocations in range(1, 40):
        opened = Opened[_Entry]()
        entries = [_Entry((number, lines_of.__code__), record, nullcontext()) for number in range(30)]
        for entry in entries:
            opened.add(entry)
        with collected_after(allocations, partial(opened.remove, entries[0])):
            assert len(list(opened)) in {29, 30}


class _Leaves:
    """Garbage, until the collector destroys it: then it calls *leave*."""

    def __init__(self, leave: Callable[[], object]) -> None:
        self.leave, self.me = leave, self

    def __del__(self) -> None:
        self.leave()


@contextmanager
def collected_after(allocations: int, leave: Callable[[], object]) -> Iterator[None]:
    """The collector runs after that many *allocations*, and then calls *leave*."""
    gc.collect()
    thresholds = gc.get_threshold()
    _Leaves(leave)
    gc.set_threshold(gc.get_count()[0] + allocations, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.collect()


async def test_leaving_a_block_costs_the_same_however_many_others_the_task_is_in(locks: LockClient) -> None:
    """Otherwise the exit of a multi lock of thousands of names would block the event loop for seconds."""
    assert await lines_to_leave_in(locks, 2) == await lines_to_leave_in(locks, 200)


async def lines_to_leave_in(locks: LockClient, others: int) -> int:
    """The number of lines that leave a block, up to the wait for the server, of a task that is in *others* as well."""
    lock, leaving = locks.lock("a"), list[Awaitable[None]]()
    async with locks.multi(*(f"other {number}" for number in range(others))):
        await lock.__aenter__()
        lines = lines_of(lambda: leaving.append(lock.__aexit__(None, None, None)))
        await leaving[0]
    return lines


def lines_of(act: Callable[[], object]) -> int:
    """The number of lines of Python that *act* runs."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    # A collection would run lines of its own.
    gc.disable()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
        gc.enable()
    return lines
