"""`async with`: the body is cancelled when the lock is lost, once, and nothing else is mistaken for that."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aiolock import AsyncRLock, Lease, LeaseLostError, LockClient
from aiolock._core.held import CLEANUP
from tests.support.holding import ROLLBACK, Holder
from tests.support.inside import hold_of
from tests.support.observe import until

Body = Callable[[Lease], Awaitable[object]]


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def for_ever(_: object = None) -> None:
    await asyncio.sleep(60)


async def lose(*locks: AsyncRLock) -> None:
    """Take the locks away, all of them within one turn of the loop; one alone without a further turn."""
    if len(locks) == 1:
        assert await locks[0].force_release()
    else:
        assert all(await asyncio.gather(*(lock.force_release() for lock in locks)))


async def loses(body: Body, *locks: AsyncRLock) -> object:
    """Run the body in a scope of each lock, the first outermost, and take them all away while it waits."""
    async with running(body, *locks) as task:
        await lose(*locks)
        async with asyncio.timeout(5):
            return await task


@contextlib.asynccontextmanager
async def running(body: Body, *locks: AsyncRLock) -> AsyncIterator["asyncio.Task[object]"]:
    """The body in a task of its own, in a scope of each lock; entered when it has them."""
    inside = asyncio.Event()

    async def work() -> object:
        async with contextlib.AsyncExitStack() as stack:
            leases = [await stack.enter_async_context(lock) for lock in locks]
            inside.set()
            return await body(leases[-1])

    async def whole() -> object:
        try:
            return await work()
        finally:
            assert cancelling() == 0, "a cancellation of our own was left behind"
            # A cancellation still to come would be raised here.
            await asyncio.sleep(0)

    task = asyncio.create_task(whole())
    await inside.wait()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_the_same_lock_nested_is_cancelled_once(locks: LockClient) -> None:
    lock = locks.lock("a")
    async with Holder(lock, lock, lock) as holder:
        await lose(lock)
        error = await holder.lost()
        assert (error.name, error.reason, error.token) == ("a", "forced", holder.leases[0].token)
        assert (holder.cancelled, holder.rolled_back, holder.uncancelled) == (1, ROLLBACK, True)
        assert locks.statistics().losses == 1


async def test_between_nested_scopes_of_one_lock_the_loss_is_a_cancellation(locks: LockClient) -> None:
    """Otherwise a handler between them would go on without the lock, and be cancelled a second time."""
    lock = locks.lock("a")
    seen: list[type[BaseException]] = []

    async def inner() -> None:
        try:
            async with lock:
                await lose(lock)
                await for_ever()
        except BaseException as error:
            seen.append(type(error))
            raise

    with pytest.raises(LeaseLostError):
        async with lock:
            await inner()
    assert seen == [asyncio.CancelledError]


async def test_two_locks_lost_in_one_turn_cancel_once(locks: LockClient) -> None:
    outer, inner = locks.lock("outer"), locks.lock("inner")
    for order in ((outer, inner), (inner, outer)):
        async with Holder(outer, inner) as holder:
            await lose(*order)
            error = await holder.lost()
            assert error.name in ("outer", "inner")
            assert (holder.cancelled, holder.rolled_back, holder.uncancelled) == (1, ROLLBACK, True)
            assert all(lease.lost.is_set() for lease in holder.leases)


async def test_the_inner_lock_is_lost_and_the_outer_goes_on(locks: LockClient) -> None:
    outer, inner = locks.lock("outer"), locks.lock("inner")
    async with outer as lease:
        with pytest.raises(LeaseLostError, match="'inner'"):
            async with inner:
                await lose(inner)
                await for_ever()
        lease.check()
        await asyncio.sleep(0.01)
        assert await outer.held()
    assert not await outer.locked()


async def test_the_outer_lock_is_lost_and_the_inner_is_released_on_the_way_out(locks: LockClient) -> None:
    outer, inner = locks.lock("outer"), locks.lock("inner")
    async with Holder(outer, inner) as holder:
        await lose(outer)
        error = await holder.lost()
        assert error.name == "outer"
        assert (holder.cancelled, holder.rolled_back, holder.uncancelled) == (1, ROLLBACK, True)
        assert not holder.leases[1].lost.is_set()
        assert not await inner.locked()


async def test_the_outer_lock_lost_while_the_inner_scope_cleans_up_lets_it_finish(locks: LockClient) -> None:
    outer, inner = locks.lock("outer"), locks.lock("inner")
    steps: list[str] = []

    async def body() -> None:
        try:
            await for_ever()
        finally:
            await lose(outer)
            for _ in range(3):
                await asyncio.sleep(0.001)
            steps.append("rolled back")

    with pytest.raises(LeaseLostError) as lost:
        async with outer:
            try:
                async with inner:
                    await lose(inner)
                    await body()
            except LeaseLostError as error:
                steps.append(error.name)
                try:
                    await for_ever()
                except asyncio.CancelledError:
                    steps.append("cancelled for the outer lock")
                    raise
    assert lost.value.name == "outer"
    assert steps == ["rolled back", "inner", "cancelled for the outer lock"]
    assert cancelling() == 0


@pytest.mark.parametrize("first", [0, 1])
async def test_a_lock_of_another_client_that_is_lost_meanwhile_lets_the_cleanup_finish(
    locks: LockClient, other: LockClient, first: int
) -> None:
    ended = False

    async def body(_: Lease) -> None:
        nonlocal ended
        try:
            await for_ever()
        except asyncio.CancelledError:
            await lose(held[1 - first])
            # Longer than the time that a cleanup after a cancellation by the user has.
            await asyncio.sleep(2 * CLEANUP)
            ended = True
            raise

    held = locks.lock("a"), other.lock("b")
    async with running(body, *held) as task:
        await lose(held[first])
        with pytest.raises(LeaseLostError):
            await task
    assert ended


async def test_a_body_is_cancelled_when_a_block_between_its_own_and_that_of_another_client_is_left(
    locks: LockClient, other: LockClient
) -> None:
    went_on = False

    outer, inner = locks.lock("outer"), other.lock("inner")

    async def within() -> None:
        async with locks.lock("middle"), inner:
            await lose(inner)
            try:
                await for_ever()
            except asyncio.CancelledError:
                await lose(outer)
                raise

    async def body(lease: Lease) -> None:
        nonlocal went_on
        with pytest.raises(LeaseLostError, match="inner"):
            await within()
        for _ in range(3):
            await asyncio.sleep(0)
        went_on = True

    async with running(body, outer) as task:
        with pytest.raises(LeaseLostError, match="outer"):
            await task
    assert not went_on


async def test_a_users_cancellation_after_the_loss_of_another_clients_lock_has_time_for_its_cleanup(
    locks: LockClient, other: LockClient
) -> None:
    ended = False

    async def within(lease: Lease) -> None:
        try:
            await for_ever()
        finally:
            await lose(outer)
            # Longer than the time that a cleanup after a cancellation by the user has.
            asyncio.get_running_loop().call_later(1.5 * CLEANUP, tasks[0].cancel)
            await asyncio.sleep(2 * CLEANUP)

    async def body(_: Lease) -> None:
        nonlocal ended
        try:
            async with inner as lease:
                await within(lease)
        finally:
            await asyncio.sleep(CLEANUP / 2)
            ended = True

    outer, inner = other.lock("outer"), locks.lock("inner")
    tasks: list[asyncio.Task[object]] = []
    async with running(body, outer) as task:
        tasks.append(task)
        await until(lambda: locks.statistics().held == 1)
        await lose(inner)
        await asyncio.wait([task])
    assert ended


async def test_the_inner_lock_lost_while_the_outer_unwinds_adds_nothing(locks: LockClient) -> None:
    outer, inner = locks.lock("outer"), locks.lock("inner")
    cancelled = 0

    async def body(_: Lease) -> None:
        nonlocal cancelled
        try:
            await for_ever()
        except asyncio.CancelledError:
            cancelled += 1
            await lose(inner)
            await asyncio.sleep(0.001)
            raise

    with pytest.raises(LeaseLostError, match="'outer'"):
        async with running(body, outer, inner) as task:
            await lose(outer)
            await task
    assert cancelled == 1


async def test_a_body_that_ends_in_the_turn_of_the_loss_raises_and_the_next_await_works(locks: LockClient) -> None:
    lock = locks.lock("a")
    with pytest.raises(LeaseLostError) as lost:
        async with lock:
            await lose(lock)
    assert lost.value.reason == "forced"
    assert cancelling() == 0
    await asyncio.sleep(0.01)


async def test_a_body_that_swallows_the_cancellation_is_not_cancelled_again(locks: LockClient) -> None:
    lock = locks.lock("a")
    with pytest.raises(LeaseLostError):
        async with lock as lease:
            await lose(lock)
            with contextlib.suppress(asyncio.CancelledError):
                await for_ever()
            await asyncio.sleep(0.05)
            assert lease.lost.is_set()
    assert cancelling() == 0
    await asyncio.sleep(0)


async def test_an_error_of_the_body_is_kept_with_a_note(locks: LockClient) -> None:
    lock = locks.lock("a")
    with pytest.raises(ValueError, match="mine") as kept:
        async with lock:
            await lose(lock)
            try:
                await for_ever()
            except asyncio.CancelledError:
                raise ValueError("mine") from None
    assert any("'a'" in note and "by force" in note for note in kept.value.__notes__)
    assert cancelling() == 0
    await asyncio.sleep(0)


async def test_an_error_raised_in_the_turn_of_the_loss_is_kept_and_nothing_is_cancelled_later(
    locks: LockClient,
) -> None:
    lock = locks.lock("a")
    with pytest.raises(ValueError, match="mine") as kept:
        async with lock:
            await lose(lock)
            raise ValueError("mine")
    assert any("by force" in note for note in kept.value.__notes__)
    assert cancelling() == 0
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("by_lease", [True, False])
async def test_a_body_that_releases_in_its_cleanup_still_raises_the_loss(locks: LockClient, by_lease: bool) -> None:
    lock = locks.lock("a")

    async def body(lease: Lease) -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            with pytest.raises(LeaseLostError):
                await (lease.release() if by_lease else lock.release())
            raise

    with pytest.raises(LeaseLostError, match="by force"):
        await loses(body, lock)


async def test_a_nested_acquire_in_a_lost_scope_is_refused(locks: LockClient) -> None:
    lock = locks.lock("a")
    refused: list[str] = []

    async def body(_: Lease) -> None:
        try:
            await for_ever()
        finally:
            for attempt in (lock.acquire, lock.try_lock, lock.hold(wait=1).__aenter__):
                try:
                    await attempt()
                except LeaseLostError as error:
                    refused.append(error.reason)

    with pytest.raises(LeaseLostError):
        await loses(body, lock)
    assert refused == ["forced"] * 3
    assert not await lock.locked()


async def test_a_lost_scope_does_not_keep_another_task_from_the_lock(locks: LockClient) -> None:
    lock = locks.lock("a")

    async def take() -> int:
        async with lock as mine:
            return mine.token

    async def body(lease: Lease) -> None:
        try:
            await for_ever()
        finally:
            assert await asyncio.create_task(take()) > lease.token

    with pytest.raises(LeaseLostError):
        await loses(body, lock)


async def test_a_named_owner_loses_in_every_task_that_has_a_scope(locks: LockClient) -> None:
    async with contextlib.AsyncExitStack() as stack:
        holders = [await stack.enter_async_context(Holder(locks.lock("a", owner="job-17"))) for _ in range(3)]
        await lose(locks.lock("a"))
        for holder in holders:
            error = await holder.lost()
            assert (error.reason, error.token) == ("forced", holders[0].leases[0].token)
            assert (holder.cancelled, holder.rolled_back, holder.uncancelled) == (1, ROLLBACK, True)
        assert locks.statistics().losses == 1


async def test_a_scope_that_was_left_is_not_cancelled_by_a_later_loss(locks: LockClient) -> None:
    """A named owner goes on holding the lock when one of its tasks has left its scope."""
    lock = locks.lock("a", owner="job-17")
    kept = await lock.acquire()
    async with lock:
        pass
    assert not hold_of(kept).bodies, "otherwise the hold grows with each scope"
    await lose(lock)
    assert kept.lost.is_set()
    await asyncio.sleep(0.01)
    assert cancelling() == 0
    with pytest.raises(LeaseLostError):
        await kept.release()


async def test_a_loss_after_the_release_was_sent_is_no_loss(locks: LockClient) -> None:
    lock = locks.lock("a")
    async with lock as lease:
        pass
    assert not await lock.force_release()
    assert not lease.lost.is_set()
    assert locks.statistics().losses == 0
