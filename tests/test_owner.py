"""Owner ids: one per task object, never used twice; named owners apart from them."""

import asyncio
import gc

import pytest

from aiolock._core.owners import Owners, is_named, running_task

Ends = list[tuple[str, str]]


@pytest.fixture
def ends() -> Ends:
    """Owners that were reported as ended, with the names of their tasks."""
    return []


@pytest.fixture
async def owners(ends: Ends) -> Owners:
    return Owners("client", lambda task: ends.append((task.owner, task.name)))


async def ask(owners: Owners) -> str:
    return owners.record(running_task()).owner


async def test_a_task_keeps_its_id(owners: Owners) -> None:
    first = owners.record(running_task()).owner
    await asyncio.sleep(0)
    assert owners.record(running_task()).owner == first
    assert first.startswith("client:")


async def test_a_child_task_is_another_owner(owners: Owners) -> None:
    mine = owners.record(running_task()).owner
    assert await asyncio.create_task(ask(owners)) != mine


async def test_dead_tasks_are_not_kept(owners: Owners) -> None:
    for _ in range(100):
        await asyncio.create_task(ask(owners))
    gc.collect()
    assert len(owners._tasks) <= 1


async def test_the_end_of_a_task_is_reported_once_with_its_name(owners: Owners, ends: Ends) -> None:
    async def asking_twice() -> str:
        owners.record(running_task())
        return owners.record(running_task()).owner

    owner = await asyncio.create_task(asking_twice(), name="worker 7")
    await asyncio.sleep(0)
    assert ends == [(owner, "worker 7")]


async def test_the_end_of_a_cancelled_or_failed_task_is_reported_too(owners: Owners, ends: Ends) -> None:
    async def fail() -> None:
        owners.record(running_task())
        raise ValueError

    async def wait() -> None:
        owners.record(running_task())
        await asyncio.Event().wait()

    tasks = [asyncio.create_task(fail(), name="failed"), asyncio.create_task(wait(), name="cancelled")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert {task for _, task in ends} == {"failed", "cancelled"}


async def test_a_task_that_has_ended_is_not_reported_again_while_its_record_is_kept(owners: Owners, ends: Ends) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async def kept() -> object:
        return owners.record(running_task())

    record = await asyncio.create_task(kept())
    gc.collect()
    await asyncio.sleep(0)
    assert record is not None
    assert len(ends) == 1
    assert failures == []


async def test_a_named_owner_is_no_task(owners: Owners) -> None:
    assert owners.named("1") == owners.named("1")
    assert owners.named("1") != owners.named("2")
    assert owners.named("1") not in {await asyncio.create_task(ask(owners)) for _ in range(3)}


async def test_named_owners_are_told_from_tasks(owners: Owners) -> None:
    assert is_named(owners.named("job"))
    assert not is_named(owners.record(running_task()).owner)


async def test_two_clients_never_share_an_owner(owners: Owners) -> None:
    other = Owners("other", lambda _: None)
    assert other.record(running_task()).owner != owners.record(running_task()).owner
    assert other.named("job") != owners.named("job")


async def test_outside_of_a_task_there_is_no_owner(owners: Owners) -> None:
    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def ask_in_callback() -> None:
        try:
            asked.set_result(owners.record(running_task()).owner)
        except RuntimeError as error:
            asked.set_exception(error)

    asyncio.get_running_loop().call_soon(ask_in_callback)
    with pytest.raises(RuntimeError, match="asyncio task"):
        await asked
