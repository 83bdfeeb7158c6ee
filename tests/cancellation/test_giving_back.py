"""A release that is cancelled wherever it suspends is sent; any other verb leaves nothing behind."""

import asyncio
from typing import Any

import pytest

from aiolock import Lease, LockClient
from tests.cancellation.rounds import (
    ME,
    Arena,
    Round,
    Run,
    State,
    Temperature,
    each_mode,
    each_temperature,
    one_server,
    visit,
)
from tests.cancellation.verbs import release
from tests.support.cancellation import Mode, Outcome, cancel_at, every_suspension
from tests.support.observe import answered, until

pytestmark = one_server


async def release_lease(round_: Round) -> None:
    assert round_.lease is not None
    await round_.lease.release()


async def release_in_cleanup(round_: Round) -> None:
    try:
        await asyncio.sleep(0)
    finally:
        await round_.lock.release()


async def leave(round_: Round) -> None:
    """The body gives our first lease back, so that the end of the block releases the last hold."""
    async with round_.lock:
        await release_lease(round_)


async def renew(round_: Round) -> None:
    assert round_.lease is not None
    await round_.lease.renew(60)


async def renew_and_release(round_: Round) -> None:
    try:
        await renew(round_)
    finally:
        await round_.lock.release()


async def ask(round_: Round) -> None:
    lock = round_.lock
    await lock.locked()
    await lock.held()
    await lock.hold_count()
    await lock.remaining()
    await lock.holder()


async def force_what_is_free(round_: Round) -> None:
    assert not await round_.lock.force_release()


@each_mode
@each_temperature
async def test_release(arena: Arena, temperature: Temperature, mode: Mode) -> None:
    await visit(arena, mode, temperature, "waited", release)


@each_mode
@pytest.mark.parametrize(
    ("run", "state"), [(release_lease, "nested"), (leave, "waited"), (leave, "nested"), (release_in_cleanup, "waited")]
)
async def test_release_by_other_ways(arena: Arena, run: Run, state: State, mode: Mode) -> None:
    await visit(arena, mode, "cold", state, run)


@each_mode
@each_temperature
async def test_renew(arena: Arena, temperature: Temperature, mode: Mode) -> None:
    await visit(arena, mode, temperature, "nested", renew)


@each_mode
async def test_renew_while_others_wait(arena: Arena, mode: Mode) -> None:
    # They get it only when we have released it.
    await visit(arena, mode, "cold", "waited", renew_and_release)


@each_mode
async def test_asking(arena: Arena, mode: Mode) -> None:
    await visit(arena, mode, "cold", "nested", ask)


@each_mode
async def test_forcing_a_free_lock(arena: Arena, mode: Mode) -> None:
    await visit(arena, mode, "cold", "free", force_what_is_free)


@each_mode
async def test_forcing_a_lock_that_another_holds(arena: Arena, mode: Mode) -> None:
    """The lock is freed or not: if it is, a waiter gets it at once, and the holder cannot free it again."""
    holder, waiter = LockClient(arena.redis), LockClient(arena.redis)
    async with holder, waiter:

        async def setup() -> tuple[LockClient, Lease, "asyncio.Task[Lease | None]"]:
            lease = await holder.lock("forced", owner="holder").acquire()
            lock = waiter.lock("forced", owner="waiter")

            async def waits() -> Lease | None:
                return await lock.try_lock(wait=5)

            task = asyncio.create_task(waits())
            await until(lambda: lock.statistics().parked == 1)
            return LockClient(arena.redis), lease, task

        async def run(context: tuple[LockClient, Lease, Any]) -> bool:
            return await context[0].lock("forced").force_release()

        async def verify(context: Any, outcome: Outcome[bool]) -> None:
            client, lease, waiting = context
            assert outcome.swallowed == 0
            assert isinstance(outcome.error, asyncio.CancelledError) or outcome.result is True
            gained = await asyncio.wait_for(waiting, 10)
            assert gained is not None
            await gained.release()
            with pytest.raises(Exception, match="released by force"):
                await lease.release()
            await answered(client)
            await client.aclose()

        visited = await every_suspension(mode, setup, run, verify)
        assert visited == 1
        arena.record("suspensions", visited)


@each_mode
@pytest.mark.parametrize("state", ["nested", "waited"])
async def test_a_cancelled_release_needs_no_second_one(arena: Arena, state: State, mode: Mode) -> None:
    """A lock that was held twice is held once, at any point of the inner release's cancellation."""
    round_ = await Round.begin(arena, "cold", state, ME)
    inner = await round_.lock.acquire()
    outcome = await cancel_at(1, mode, round_.lock.release)
    assert isinstance(outcome.error, asyncio.CancelledError) or mode == "scope"
    assert inner.given_back
    assert await round_.lock.hold_count() == 1
    await round_.lock.release()
    await round_.end(outcome)
