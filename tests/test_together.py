"""Several coroutines in one task: what each does when it is begun, awaited, cancelled and closed."""

import asyncio
import gc

import pytest

from aiolock import BackendError, LeaseLostError
from aiolock._helpers.together import Begun, all_of

Log = list[str]


async def steps(log: Log, future: "asyncio.Future[str]") -> str:
    log.append("begun")
    try:
        first = await future
        await asyncio.sleep(0)
        return first
    except asyncio.CancelledError:
        log.append("cancelled")
        raise
    finally:
        log.append("over")


def a_future() -> "asyncio.Future[str]":
    return asyncio.get_running_loop().create_future()


async def test_a_begun_coroutine_runs_to_its_first_wait_and_goes_on_in_the_same_task() -> None:
    log: Log = []
    one, two = a_future(), a_future()
    begun = [Begun(steps(log, each)) for each in (one, two)]
    assert log == ["begun", "begun"]
    two.set_result("two")
    asyncio.get_running_loop().call_soon(one.set_result, "one")
    assert await all_of(begun) == ["one", "two"]
    assert log == ["begun", "begun", "over", "over"]


async def test_a_begun_coroutine_that_ends_at_once_has_its_result_or_its_error() -> None:
    async def at_once() -> int:
        return 7

    async def fails() -> int:
        raise BackendError("no")

    assert await Begun(at_once()) == 7
    failed = Begun(fails())
    with pytest.raises(BackendError):
        await failed


async def test_a_cancellation_reaches_the_awaited_coroutine_and_closes_the_others() -> None:
    log: Log = []
    futures = [a_future(), a_future()]

    async def waits() -> None:
        await all_of([Begun(steps(log, each)) for each in futures])

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert log == ["begun", "begun", "cancelled", "over", "over"]
    assert futures[0].cancelled()


async def test_the_first_error_is_raised_when_all_have_ended_with_the_others_as_notes() -> None:
    ended: list[int] = []

    async def fails(number: int) -> None:
        await asyncio.sleep(0)
        ended.append(number)
        raise BackendError(f"failure {number}")

    with pytest.raises(BackendError, match="failure 1") as raised:
        await all_of([Begun(fails(number)) for number in (1, 2, 3)])
    assert ended == [1, 2, 3]
    assert raised.value.__notes__ == ["aiolock: failure 2", "aiolock: failure 3"]


async def test_a_loss_is_raised_before_an_earlier_error() -> None:
    one, two = a_future(), a_future()
    begun = [Begun(steps([], each)) for each in (one, two)]
    one.set_exception(BackendError("refused"))
    two.set_exception(LeaseLostError("orders", 7, "expired"))
    with pytest.raises(LeaseLostError) as raised:
        await all_of(begun)
    assert raised.value.__notes__ == ["aiolock: refused"]


async def test_a_begun_coroutine_sees_the_task_that_begins_it() -> None:
    async def who() -> "asyncio.Task[object] | None":
        before = asyncio.current_task()
        await asyncio.sleep(0)
        assert asyncio.current_task() is before
        return before

    assert await all_of([Begun(who()), Begun(who())]) == [asyncio.current_task()] * 2


async def test_a_closed_coroutine_leaves_no_unseen_error_behind() -> None:
    """A call may fail when nobody waits for it any more, or while its task waits for others."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    for fails_before in (True, False):
        future = a_future()
        begun = Begun(steps([], future))
        if fails_before:
            future.set_exception(BackendError("no"))
        begun.close()
        assert future.done()
        del begun, future
        gc.collect()
    assert told == []
