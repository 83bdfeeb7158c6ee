"""The guarantees for every holder: how its hold ends, how it learns of the end, and who gets the lock next."""

import asyncio
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from aiolock import (
    Acquired,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    Lost,
    NotHeldError,
    Orphaned,
    Released,
)
from tests.contract.acts import SOON, is_untouched, nothing_under_way, waiting
from tests.contract.kinds import HAD, LEASED, NAME, Kind, each_block, each_leased
from tests.support.observe import all_parked, until


@pytest.mark.parametrize("kind", [kind for kind in LEASED if kind.reentrant], ids=repr)
async def test_owner_and_others_are_told_the_holder(kind: Kind, locks: LockClient, other: LockClient) -> None:
    mine, theirs = kind.of(locks), kind.of(other)
    for _ in range(2):
        await kind.take(locks)
    for holds in (2, 1):
        assert (await mine.hold_count(), await theirs.hold_count()) == (holds, 0)
        assert (await mine.held(), await theirs.held(), await theirs.locked()) == (True, False, True)
        assert 10 < (await theirs.remaining() or 0) <= 30
        await mine.release()
    assert (await mine.hold_count(), await mine.held(), await theirs.locked()) == (0, False, False)
    assert await theirs.remaining() is None
    with pytest.raises(NotHeldError):
        await mine.release()


@each_leased
async def test_force_frees_it_wakes_the_waiters_and_tells_the_holder(
    kind: Kind, redis: Redis, locks: LockClient, other: LockClient
) -> None:
    lease = await kind.take(locks)
    tasks = await waiting(kind.rival, other, 2)
    assert await kind.of(other).force_release()
    await asyncio.wait_for(asyncio.gather(*tasks), SOON)
    with pytest.raises(LeaseLostError, match="by force"):
        await kind.give(locks, lease)
    assert not await kind.of(other).force_release()
    await is_untouched(kind, other)


@each_leased
async def test_force_cancels_a_block_and_is_told_once(kind: Kind, redis: Redis, other: LockClient) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(lease=6, renew_interval=0.1, on_event=events.append)) as locks:
        with pytest.raises(LeaseLostError, match="by force"):
            async with kind.of(locks):
                assert await kind.of(other).force_release()
                await asyncio.Event().wait()
        await until(lambda: nothing_under_way(locks))
    assert [each.reason for each in events if isinstance(each, Lost) and each.name == NAME] == ["forced"]
    await is_untouched(kind, other)


@each_leased
async def test_the_holds_of_a_task_that_ends_are_given_back_with_an_event(
    kind: Kind, redis: Redis, other: LockClient
) -> None:
    events: list[LockEvent] = []

    async def forgets() -> None:
        await kind.take(locks)
        await kind.take(locks)

    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        await asyncio.create_task(forgets(), name="forgetful")
        theirs = await kind.rival.take(other, wait=10)
        assert theirs
        await kind.rival.give(other, theirs)
    assert {each.task for each in events if isinstance(each, Orphaned)} == {"forgetful"}


@each_leased
async def test_it_is_renewed_until_it_is_given_back(kind: Kind, redis: Redis, other: LockClient) -> None:
    async with LockClient(redis, config=LockConfig(lease=1.5, renew_interval=0.1)) as locks:
        async with kind.of(locks) as lease:
            await until(lambda: locks.statistics().renewals >= 20 and lease.remaining > 0.5, within=20)
            assert not await kind.rival.take(other)
            lease.check()
        assert locks.statistics().losses == 0
    await is_untouched(kind, other)


@each_leased
async def test_renewed_by_hand_it_is_never_shorter(kind: Kind, locks: LockClient) -> None:
    lease = await kind.of(locks).acquire(lease=timedelta(seconds=10))
    assert 9 < lease.remaining <= 10
    for seconds in (40, 1):
        await lease.renew(seconds)
        assert lease.remaining > 30
    await lease.release()
    with pytest.raises(NotHeldError):
        await lease.renew(40)
    short = await kind.of(locks).acquire(lease=0.4)
    assert await short.lost == "expired"
    with pytest.raises(LeaseLostError):
        await short.renew(40)


@pytest.mark.parametrize("kind", [kind for kind in HAD if kind.most == 1], ids=repr)
async def test_tasks_of_one_client_get_it_in_the_order_in_which_they_came(
    kind: Kind, locks: LockClient, other: LockClient
) -> None:
    order: list[int] = []

    async def take(number: int) -> None:
        taken = await kind.take(locks, wait=None)
        order.append(number)
        await kind.give(locks, taken)

    remove = await kind.obstruct(other)
    tasks = []
    for number in range(10):
        tasks.append(asyncio.create_task(take(number)))
        await all_parked(locks, len(tasks))
    await remove()
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks)
    assert order == list(range(10))


@each_leased
async def test_tokens_grow_and_events_have_them(kind: Kind, redis: Redis, other: LockClient) -> None:
    events: list[LockEvent] = []
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        async with kind.of(locks) as first:
            pass
        async with kind.of(other) as second:
            pass
        async with kind.of(locks) as third:
            assert first.given_back
    members = [lease.tokens for lease in (first, second, third) if hasattr(lease, "tokens")]
    tokens = [each[NAME] for each in members] or [first.token, second.token, third.token]
    assert tokens == sorted(set(tokens))
    assert [type(each) for each in events if each.name == NAME] == [Acquired, Released] * 2
    assert [each.token for each in events if each.name == NAME] == [tokens[0]] * 2 + [tokens[2]] * 2


@each_leased
async def test_an_acquire_that_becomes_a_task_is_refused(kind: Kind, locks: LockClient) -> None:
    with pytest.raises(RuntimeError, match="runs in another"):
        await asyncio.create_task(kind.of(locks).acquire())
    await is_untouched(kind, locks)


@each_block
async def test_a_hold_that_is_never_entered_is_noticed(kind: Kind, locks: LockClient) -> None:
    with pytest.warns(RuntimeWarning, match=f"{NAME}.*hold\\(\\) was never entered"):
        kind.of(locks).hold()


@each_block
async def test_a_block_releases_its_hold_though_its_body_fails(kind: Kind, locks: LockClient) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        async with kind.of(locks):
            raise ZeroDivisionError
    assert not hasattr(raised.value, "__notes__")
    await until(lambda: nothing_under_way(locks))
    await is_untouched(kind, locks)
