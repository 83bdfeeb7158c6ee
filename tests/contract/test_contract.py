"""
The promises that every primitive keeps: one server, two clients, and each kind in turn.

`tests/lua` sends each script twice, from every state that can be reached. In `tests/processes/test_kinds.py` many
processes share a primitive, and one of them is killed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any
from weakref import ref

import anyio
import pytest
from redis.asyncio import Redis

from aiolock import ClientClosedError, LeaseLostError, LockClient, LockTimeoutError, NotALockError, NotHeldError
from tests.contract.acts import (
    check_that_messages_wake,
    check_that_no_more_have_it_than_may,
    is_untouched,
    nothing_under_way,
    section,
    wait_quietly,
    waiting,
)
from tests.contract.kinds import NAME, Counted, Kind, Latch, Multi, each_block, each_had, each_kind, each_leased
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.holding import foreign
from tests.support.observe import until
from tests.support.proxy import Proxy, Request, Rule, drop_reply, hold, script

# The number of holders.


@each_had
async def test_there_are_never_too_many_holders(kind: Kind, locks: LockClient, other: LockClient) -> None:
    await check_that_no_more_have_it_than_may(kind, locks, other)
    await is_untouched(kind, other)


@each_block
async def test_the_holder_takes_it_again(kind: Kind, locks: LockClient, other: LockClient) -> None:
    """A reentrant kind counts one hold more, which ends with the last release; the others have none left for it."""
    taken = await kind.take(locks)
    again = await kind.take(locks)
    assert bool(again) == kind.reentrant
    if again:
        await kind.give(locks, again)
    assert not await kind.rival.take(other)
    await kind.give(locks, taken)
    await is_untouched(kind, other)


@each_leased
async def test_a_child_is_another_owner_and_a_named_one_is_the_same_in_any_task(kind: Kind, locks: LockClient) -> None:
    async def release(owner: str | None) -> None:
        await kind.of(locks, owner).release()

    for owner in (None, "job"):
        assert await kind.take(locks, owner=owner)
        with pytest.raises(NotHeldError):
            await asyncio.create_task(release(None))
        await (release(None) if owner is None else asyncio.create_task(release(owner)))
        await is_untouched(kind, locks)


@each_leased
@pytest.mark.parametrize(
    "way", [asyncio.shield, asyncio.gather, asyncio.create_task, partial(asyncio.wait_for, timeout=5)]
)
async def test_a_release_that_another_task_awaits_is_that_of_its_caller(
    way: Callable[[Coroutine[Any, Any, None]], Awaitable[object]], kind: Kind, locks: LockClient
) -> None:
    await kind.take(locks)
    await way(kind.of(locks).release())
    await is_untouched(kind, locks)
    with pytest.raises(NotHeldError):
        await way(kind.of(locks).release())


# Waiters.


@each_kind
async def test_a_waiter_is_woken_by_a_message(kind: Kind, locks: LockClient, other: LockClient) -> None:
    await check_that_messages_wake(kind, locks, other)


@each_kind
async def test_a_wait_that_ends_leaves_nothing(kind: Kind, locks: LockClient, other: LockClient, redis: Redis) -> None:
    remove = await kind.obstruct(other)
    before = await users_keys(redis)
    assert not await kind.take(locks, wait=0.02)
    await until(lambda: nothing_under_way(locks))
    assert await users_keys(redis) == before
    await remove()
    await is_untouched(kind, other)


async def users_keys(redis: Redis) -> set[bytes]:
    """The keys, without those that aiolock keeps for itself for a time."""
    keys: list[bytes] = await redis.keys("*")  # type: ignore[assignment]
    return {key for key in keys if not key.startswith(b"aiolock_")}


@each_block
async def test_a_block_raises_a_timeout_when_its_wait_ends(kind: Kind, locks: LockClient, other: LockClient) -> None:
    remove = await kind.obstruct(other)
    with pytest.raises(LockTimeoutError, match="not granted within"):
        async with kind.of(locks).hold(wait=0.01):
            pass
    await remove()
    async with kind.of(locks).hold(wait=10):
        assert locks.statistics().held > 0
    await until(lambda: nothing_under_way(locks))


# Cancellations.


@each_kind
@pytest.mark.parametrize("how", ["native", "scope"])
async def test_cancelled_waits_leave_nothing(kind: Kind, how: str, locks: LockClient, other: LockClient) -> None:
    remove = await kind.obstruct(other)
    if how == "native":
        tasks = await waiting(kind, locks, 3)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    else:
        with anyio.move_on_after(0.02) as scope:
            await section(kind, locks)
        assert scope.cancelled_caught
    await until(lambda: nothing_under_way(locks))
    await remove()
    await is_untouched(kind, other)


@each_kind
@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_wherever_it_suspends(kind: Kind, mode: Mode, redis: Redis, other: LockClient) -> None:
    """A block is cancelled, and not a bare acquire, whose grant would stay: nobody would be left to give it back."""

    async def setup() -> LockClient:
        client = LockClient(redis)
        await client.ping()
        return client

    async def run(client: LockClient) -> None:
        await kind.visit(client)

    async def verify(client: LockClient, outcome: Outcome[None]) -> None:
        assert isinstance(outcome.error, asyncio.CancelledError | None)
        assert not outcome.swallowed
        await until(lambda: nothing_under_way(client))
        await is_untouched(kind, other)
        await client.aclose()

    assert await every_suspension(mode, setup, run, verify) >= 1


@each_kind
@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_wherever_it_suspends_while_it_waits(
    kind: Kind, mode: Mode, redis: Redis, other: LockClient
) -> None:
    """The other client gives it back when the waiter hears messages; the next waiter then gets it at once."""

    async def setup() -> tuple[LockClient, asyncio.Event, asyncio.Task[object]]:
        client, over = LockClient(redis), asyncio.Event()
        await client.ping()
        remove = await kind.obstruct(other)

        async def make_way() -> object:
            await until(lambda: over.is_set() or wait_quietly(kind, client, 1), within=20)
            return await remove()

        return client, over, asyncio.create_task(make_way())

    async def run(context: tuple[LockClient, asyncio.Event, asyncio.Task[object]]) -> None:
        client, *_ = context
        await kind.visit(client, wait=60)

    async def verify(context: tuple[LockClient, asyncio.Event, asyncio.Task[object]], outcome: Outcome[None]) -> None:
        client, over, making_way = context
        assert isinstance(outcome.error, asyncio.CancelledError | None)
        assert not outcome.swallowed
        over.set()
        await making_way
        await until(lambda: nothing_under_way(client))
        await is_untouched(kind, other)
        await client.aclose()

    assert await every_suspension(mode, setup, run, verify) >= 2


# Replies that are lost, and commands that come late.


@each_kind
@pytest.mark.parametrize("number", [0, 1])
async def test_any_reply_is_lost(kind: Kind, number: int, proxy: Proxy, through: Redis, other: LockClient) -> None:
    async with LockClient(through) as client:
        await client.ping()
        seen = 0

        def is_the_one(request: Request) -> bool:
            nonlocal seen
            seen += request.name in {b"EVALSHA", b"EVAL"} and kind.keys.lock.encode() in request.args
            return seen == number + 1

        rule = proxy.install(Rule(is_the_one, drop_reply()))
        await section(kind, client)
        # A take of a latch sends no second command.
        if number == 0 or not isinstance(kind, Latch):
            await rule.caught()
        await until(lambda: nothing_under_way(client))
    await is_untouched(kind, other)


@each_kind
async def test_an_acquire_that_comes_after_its_caller_gave_up(
    kind: Kind, proxy: Proxy, through: Redis, other: LockClient
) -> None:
    async with LockClient(through) as client:
        await client.ping()
        late = proxy.install(Rule(script(kind.scripts.acquire), hold(reset=False)))
        task = asyncio.create_task(section(kind, client))
        await late.caught()
        task.cancel()
        await asyncio.wait([task])
        proxy.reset_all()
        await until(lambda: client.statistics().pending == 0, within=20)
        await late.deliver()
        await is_untouched(kind, other)


@each_leased
async def test_an_acquire_that_comes_after_the_loss(
    kind: Kind, proxy: Proxy, through: Redis, other: LockClient
) -> None:
    """A holder that lost the lock gives nothing back, so that a grant to a late copy would never end."""
    async with LockClient(through) as client:
        await client.ping()
        late = proxy.install(Rule(script(kind.scripts.acquire), hold()))
        lease = await kind.of(client).acquire(lease=0.3)
        await lease.lost

        async def is_free() -> bool:
            return client.statistics().pending == 0 and not await kind.of(other).locked()

        await until(is_free)
        await late.deliver()
        await is_untouched(kind, other)


# Losses.


@each_leased
async def test_the_holder_is_told_of_the_loss_before_another_has_it(
    kind: Kind, locks: LockClient, other: LockClient
) -> None:
    """The other client takes the rival: the write half, if this is a reader."""
    told: list[bool] = []

    async def take_over() -> None:
        taken = await kind.rival.take(other, wait=30)
        told.append(lease.lost.is_set())
        await kind.rival.give(other, taken)

    with pytest.raises(LeaseLostError, match="its lease ended"):
        async with kind.of(locks).hold(lease=0.3) as lease:
            heir = asyncio.create_task(take_over())
            await asyncio.Event().wait()
    await asyncio.wait_for(heir, 20)
    assert told == [True]


@each_leased
async def test_the_holder_is_told_that_the_server_forgot(kind: Kind, redis: Redis, locks: LockClient) -> None:
    taken = await kind.take(locks)
    await redis.flushall()
    with pytest.raises(LeaseLostError):
        await kind.give(locks, taken)
    await until(lambda: nothing_under_way(locks))
    await is_untouched(kind, locks)


# Closed clients.


@each_kind
async def test_closing_ends_waits(kind: Kind, redis: Redis, other: LockClient) -> None:
    client = LockClient(redis)
    remove = await kind.obstruct(other)
    tasks = await waiting(kind, client, 2)
    await client.aclose()
    for task in tasks:
        with pytest.raises(ClientClosedError):
            await task
    with pytest.raises(ClientClosedError):
        await kind.take(client)
    for method, *arguments in kind.asks:
        with pytest.raises(ClientClosedError):
            await getattr(kind.of(client), method)(*arguments)
    await remove()
    await is_untouched(kind, other)


@each_had
async def test_closing_cancels_blocks_and_releases_every_hold(kind: Kind, redis: Redis, other: LockClient) -> None:
    """The close of a client frees its locks, also the holds that were acquired without a block."""
    client = LockClient(redis)
    inside = asyncio.Event()

    async def work() -> None:
        async with kind.of(client):
            assert not kind.reentrant or await kind.take(client)
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    await client.aclose()
    with pytest.raises(LeaseLostError, match="closed"):
        await task
    await is_untouched(kind, other)


@each_kind
async def test_in_another_loop(kind: Kind, locks: LockClient) -> None:
    await locks.ping()
    with pytest.raises(ClientClosedError, match="event loop"):
        await asyncio.to_thread(partial(asyncio.run, kind.take(locks)))


# The keys in Redis.


@each_kind
async def test_no_key_stays(kind: Kind, redis: Redis, locks: LockClient, other: LockClient) -> None:
    await check_that_messages_wake(kind, locks, other)
    found: list[bytes] = await redis.keys("*")  # type: ignore[assignment]
    keys = {key.decode() for key in found} - set(kind.kept)
    assert all(key.startswith(("aiolock_token:", "aiolock_once_token:")) for key in keys), keys
    assert all([await redis.pttl(key) > 0 for key in keys])
    await until(lambda: nothing_under_way(locks))


@each_kind
@pytest.mark.parametrize("put", ["list", "string", "hash"])
async def test_a_key_that_is_something_else_is_not_touched(
    kind: Kind, put: str, redis: Redis, locks: LockClient
) -> None:
    await foreign(redis, kind.key, put)
    before = await redis.dump(kind.key)
    for wait in (0, 1):
        with pytest.raises(NotALockError, match=NAME):
            await kind.take(locks, wait=wait)
    for method, *arguments in kind.asks:
        with pytest.raises(NotALockError, match=NAME):
            await getattr(kind.of(locks), method)(*arguments)
    assert await redis.dump(kind.key) == before
    await until(lambda: nothing_under_way(locks))


# The handles.


@each_kind
async def test_handles_are_cheap_and_behave_alike(kind: Kind, locks: LockClient) -> None:
    handle = kind.of(locks)
    assert NAME in (handle.names if isinstance(kind, Multi) else [handle.name])
    assert ref(handle)() is handle
    assert NAME in repr(handle)
    assert repr(handle).startswith(f"<{type(handle).__name__} ")
    if kind.expires and not isinstance(kind, Multi):
        assert repr(kind.of(locks, "job")) == f"<{type(handle).__name__} '{NAME}' owner='job'>"
    if not isinstance(kind, Latch | Counted):
        taken = await kind.take(locks)
        assert locks.statistics().held > 0
        await kind.give(locks, taken)


@pytest.mark.parametrize(
    "make",
    ["lock", "fair_lock", "multi", "read_write_lock", "semaphore", "counting_semaphore", "count_down_latch"],
)
def test_invalid_names_are_refused(make: str) -> None:
    client = LockClient.from_url("redis://127.0.0.1:1")
    for no_name in (7, None):
        with pytest.raises(TypeError, match=f"not (of )?{no_name}"):
            getattr(client, make)(no_name)
    for name, why in {"": "not be empty", "\ud800": "cannot be encoded", "aiolock_token:{x}": "aiolock's own"}.items():
        with pytest.raises(ValueError, match=why):
            getattr(client, make)(name)
