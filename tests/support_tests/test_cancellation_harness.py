"""The harness cancels at every suspension, in each of its ways, and reports the outcome."""

import asyncio
from typing import Any

import anyio
import pytest

from tests.support.cancellation import MODES, Mode, Outcome, cancel_at, every_suspension, suspensions

each_mode = pytest.mark.parametrize("mode", MODES)


async def three_steps(log: list[str] | None = None) -> str:
    """Suspends at a bare yield, at a future of the loop, and at a task."""
    log = [] if log is None else log
    await asyncio.sleep(0)
    log.append("yield")
    await asyncio.sleep(0.02)
    log.append("future")
    await asyncio.create_task(asyncio.sleep(0))
    log.append("task")
    return "done"


async def test_counts_suspensions() -> None:
    assert await suspensions(three_steps) == 3


async def test_a_coroutine_that_never_suspends_has_no_suspension() -> None:
    async def straight() -> None:
        pass

    assert await suspensions(straight) == 0


@each_mode
async def test_cancels_at_exactly_that_suspension(mode: Mode) -> None:
    reached = []
    for k in (1, 2, 3):
        log: list[str] = []
        outcome = await cancel_at(k, mode, lambda log=log: three_steps(log))  # type: ignore[misc]
        assert isinstance(outcome.error, asyncio.CancelledError)
        assert outcome.cancelled
        assert (outcome.suspended, outcome.result) == (k, None)
        reached.append(log)
    assert reached == [[], ["yield"], ["yield", "future"]]


@each_mode
async def test_beyond_the_last_suspension_it_just_ends(mode: Mode) -> None:
    assert await cancel_at(4, mode, three_steps) == Outcome(3, False, "done", None, "")


async def test_says_where_it_was_cancelled() -> None:
    outcome = await cancel_at(2, "native", three_steps)
    assert outcome.where.startswith("tasks.py:")
    assert outcome.where.endswith(" sleep")


@each_mode
async def test_an_error_of_the_coroutine_is_its_outcome(mode: Mode) -> None:
    async def converts() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise LookupError from None

    outcome = await cancel_at(1, mode, converts) if mode != "native_late" else None
    assert outcome is None or isinstance(outcome.error, LookupError)


async def cleanup(log: list[str]) -> None:
    try:
        await asyncio.sleep(0.02)
    finally:
        log.append("first")
        await asyncio.sleep(0)
        log.append("second")
        await asyncio.sleep(0)
        log.append("third")


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("native", ["first", "second", "third"]),
        ("native_late", ["first", "second", "third"]),
        ("native_twice", ["first"]),
        ("scope", ["first"]),
    ],
)
async def test_cancellations_in_the_cleanup(mode: Mode, expected: list[str]) -> None:
    log: list[str] = []
    outcome = await cancel_at(1, mode, lambda: cleanup(log))
    assert log == expected
    assert outcome.cancelled


async def stubborn(log: list[str]) -> str:
    for _ in range(4):
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            log.append("cancelled")
        else:
            log.append("slept")
    return "done"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("native", ["slept", "cancelled", "slept", "slept"]),
        ("native_late", ["slept", "cancelled", "slept", "slept"]),
        ("native_twice", ["slept", "cancelled", "cancelled", "slept"]),
        ("scope", ["slept", "cancelled", "cancelled", "cancelled"]),
    ],
)
async def test_a_coroutine_that_refuses_is_cancelled_as_often_as_the_mode_says(mode: Mode, expected: list[str]) -> None:
    log: list[str] = []
    outcome = await cancel_at(2, mode, lambda: stubborn(log))
    assert log == expected
    assert (outcome.cancelled, outcome.result, outcome.error) == (True, "done", None)


async def test_late_cancellation_finds_the_result_there() -> None:
    future = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        asyncio.get_running_loop().call_soon(future.set_result, "granted")
        await future

    outcome = await cancel_at(1, "native_late", waits)
    assert isinstance(outcome.error, asyncio.CancelledError)
    assert future.result() == "granted"


async def test_an_early_cancellation_cancels_the_awaited_future() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def waits() -> str:
        return await future

    await cancel_at(1, "native", waits)
    assert future.cancelled()


@each_mode
async def test_the_coroutine_runs_as_in_a_task(mode: Mode) -> None:
    async def looks() -> Any:
        task = asyncio.current_task()
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0.001) as scope:
            await anyio.sleep(60)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        return (task is asyncio.current_task(), scope.cancelled_caught)

    assert (await cancel_at(0, mode, looks)).result == (True, True)


@each_mode
async def test_a_timeout_inside_stays_its_own(mode: Mode) -> None:
    async def times_out() -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(60)

    outcome = await cancel_at(2, mode, times_out)
    assert isinstance(outcome.error, TimeoutError)
    assert not outcome.cancelled


async def test_a_shielded_cleanup_is_left_alone_by_the_scope() -> None:
    log = []

    async def shielded() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(0.02)
                log.append("cleaned")

    outcome = await cancel_at(1, "scope", shielded)
    assert log == ["cleaned"]
    assert isinstance(outcome.error, asyncio.CancelledError)


async def test_a_coroutine_that_hangs_is_reported_with_its_place() -> None:
    async def hangs() -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"native, suspension 1 \(tasks.py:.*\): hangs in locks.py:\d+ Event.wait"):
        await cancel_at(1, "native", hangs, within=0.02)


class Bank:
    """A transfer takes something and gives it: a cancellation in between may leave it taken."""

    def __init__(self) -> None:
        self.taken = self.given = 0

    async def transfer(self) -> None:
        await asyncio.sleep(0)
        self.taken += 1
        try:
            await asyncio.sleep(0)
        finally:
            self.given += 1
        await asyncio.sleep(0)

    async def careless(self) -> None:
        self.taken += 1
        await asyncio.sleep(0)
        self.given += 1


async def new_bank() -> Bank:
    return Bank()


async def is_balanced(bank: Bank, outcome: Outcome[None]) -> None:
    assert bank.taken == bank.given
    assert isinstance(outcome.error, asyncio.CancelledError) or not outcome.cancelled


@each_mode
async def test_visits_every_suspension(mode: Mode) -> None:
    assert await every_suspension(mode, new_bank, Bank.transfer, is_balanced) == 3


@each_mode
async def test_finds_a_leftover_and_says_where(mode: Mode) -> None:
    with pytest.raises(AssertionError) as caught:
        await every_suspension(mode, new_bank, Bank.careless, is_balanced)
    assert f"{mode}, suspension 1: Outcome(suspended=1, cancelled=True" in caught.value.__notes__[0]


async def test_the_last_round_is_verified_uncancelled() -> None:
    outcomes = []

    async def collect(bank: Bank, outcome: Outcome[None]) -> None:
        outcomes.append(outcome.cancelled)

    await every_suspension("native", new_bank, Bank.transfer, collect)
    assert outcomes == [True, True, True, False]


async def test_endless_suspensions_are_an_error() -> None:
    async def endless(bank: Bank) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def ignore(bank: Bank, outcome: Outcome[None]) -> None:
        pass

    with pytest.raises(AssertionError, match="native: more than 3 suspensions"):
        await every_suspension("native", new_bank, endless, ignore, limit=3)


async def test_leaves_no_task_when_its_own_caller_is_cancelled() -> None:
    before = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await cancel_at(0, "native", lambda: asyncio.sleep(60))
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("mode", ["native", "native_twice", "native_late"])
async def test_tells_when_the_cancellation_was_taken_back(mode: Mode) -> None:
    async def takes_back() -> None:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            raise

    assert (await cancel_at(1, mode, takes_back)).swallowed == 1
    assert (await cancel_at(1, mode, three_steps)).swallowed == 0


async def test_tells_when_a_cancellation_of_its_own_is_left_behind() -> None:
    async def leaves_one() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)

    assert (await cancel_at(0, "native", leaves_one)).swallowed == -1
