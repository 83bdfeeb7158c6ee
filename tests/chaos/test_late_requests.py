"""Late requests: a request that arrives when its call is long over changes nothing, neither the lock nor its TTL."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from aiolock import BackendError, LockClient, LockConfig
from aiolock._scripts import ACQUIRE, RELEASE, RELEASE_CLEAN, RENEW
from aiolock._scripts.replies import STALE
from tests.chaos.operations import OPERATIONS, Operation, Stage, change_nothing, clean_up, leftovers, stage
from tests.support.observe import answered, until
from tests.support.proxy import ALWAYS, Action, Proxy, Rule, drop_reply, hold, reset, script

NAME = "late"
# The owner's hold count after the cancelled call: the client undoes an acquire, and sends a release all the same.
LEFT_BY_CANCELLED = {
    "acquire": 0,
    "try_lock": 0,
    "nested acquire": 1,
    "release to 1": 1,
    "release to 0": 0,
    "renew": 1,
    "force_release": 0,
    "force_release of another's": 0,
    "force_release of nobody's": 0,
}
CANCELLED = [pytest.param(OPERATIONS[name], left, id=name) for name, left in LEFT_BY_CANCELLED.items()]


@pytest.fixture
async def on(redis: Redis, through: Redis) -> AsyncIterator[Stage]:
    """A stage whose lock has a named owner, so that any task may go on with it."""
    async with stage(redis, through, NAME, owner="job", renew_interval=0.3) as stage_:
        yield stage_


async def nothing_more(on: Stage) -> None:
    pass


async def acquired_twice_again(on: Stage) -> None:
    on.leases += [await on.lock.acquire(), await on.lock.acquire()]


async def acquired_by_another(on: Stage) -> None:
    await on.other.lock(NAME, owner="a third").acquire()


@pytest.mark.parametrize(
    "then", [nothing_more, acquired_twice_again, acquired_by_another], ids=lambda then: then.__name__
)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
async def test_a_copy_that_arrives_after_the_release_changes_nothing(
    redis: Redis, proxy: Proxy, on: Stage, operation: Operation, then: Callable[[Stage], Awaitable[None]]
) -> None:
    await operation.prepare(on)
    await on.answered()
    late = proxy.install(Rule(script(operation.script), hold()))
    await operation.run(on)
    await late.caught()
    await clean_up(on)
    await then(on)
    await on.answered()
    await change_nothing(on, proxy, late)
    await clean_up(on)
    assert NAME.encode() not in await leftovers(redis)


async def begin_and_cancel(on: Stage, operation: Operation, proxy: Proxy) -> Rule:
    """Let the call's first copy be held back, in silence, and cancel its caller before it is sent again."""
    await operation.prepare(on)
    await on.answered()
    late = proxy.install(Rule(script(operation.script), hold(reset=False)))

    async def call() -> None:
        await operation.run(on)

    task = asyncio.create_task(call())
    await late.caught()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return late


@pytest.mark.parametrize(("operation", "left"), CANCELLED)
async def test_a_request_that_arrives_after_its_caller_was_cancelled_and_before_it_is_sent_again(
    proxy: Proxy, on: Stage, operation: Operation, left: int
) -> None:
    late = await begin_and_cancel(on, operation, proxy)
    assert on.client.statistics().pending
    await late.deliver()
    await on.answered()
    assert await on.holds() == left
    await clean_up(on)


@pytest.mark.parametrize(("operation", "left"), CANCELLED)
async def test_a_request_that_arrives_after_its_caller_was_cancelled_and_after_it_was_sent_again(
    proxy: Proxy, on: Stage, operation: Operation, left: int
) -> None:
    late = await begin_and_cancel(on, operation, proxy)
    await on.answered()
    assert await on.holds() == left
    await change_nothing(on, proxy, late)
    await clean_up(on)


async def test_a_cancelled_acquire_that_arrives_after_the_next_one_of_its_owner_leaves_that_alone(
    proxy: Proxy, on: Stage
) -> None:
    late = await begin_and_cancel(on, OPERATIONS["acquire"], proxy)
    lease = await on.lock.acquire()
    await on.answered()
    assert (await on.fields())["aiolock:token"] == str(lease.token)
    await change_nothing(on, proxy, late)
    await lease.release()


async def test_an_overtaken_nested_acquire_does_not_raise_the_count_again(proxy: Proxy, on: Stage) -> None:
    outer = await on.lock.acquire()
    late = proxy.install(Rule(script(ACQUIRE), hold()))
    inner = await on.lock.acquire()
    await inner.release()
    assert await on.holds() == 1
    await change_nothing(on, proxy, late)
    await outer.release()
    assert not await on.lock.locked()


async def test_an_overtaken_release_does_not_lower_the_count_again(proxy: Proxy, on: Stage) -> None:
    outer, inner = await on.lock.acquire(), await on.lock.acquire()
    late = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), hold()))
    await inner.release()
    again = await on.lock.acquire()
    assert await on.holds() == 2
    await change_nothing(on, proxy, late)
    await again.release()
    await outer.release()


async def test_an_overtaken_renewal_does_not_touch_the_ttl(proxy: Proxy, on: Stage) -> None:
    """The first copy never ran: the lock knows only that its number is lower than that of the last renewal."""
    lease = await on.lock.acquire(lease=60)
    await lease.renew()
    late = proxy.install(Rule(script(RENEW), hold(reset=False)))
    first = asyncio.create_task(lease.renew(90))
    await late.caught()
    first.cancel()
    await asyncio.wait([first])
    await lease.renew(70)
    await change_nothing(on, proxy, late)
    await lease.release()


async def test_a_refused_try_whose_first_copy_arrives_when_the_lock_is_free_takes_nothing(
    proxy: Proxy, on: Stage
) -> None:
    theirs = await on.other.lock(NAME).acquire()
    late = proxy.install(Rule(script(ACQUIRE), hold()))
    assert await on.lock.try_lock(0) is None
    await on.answered()
    await theirs.release()
    await late.deliver()
    assert not await on.lock.locked()


async def test_a_refused_try_whose_first_copy_is_granted_in_secret_gives_it_back(proxy: Proxy, on: Stage) -> None:
    theirs = await on.other.lock(NAME).acquire()
    late = proxy.install(Rule(script(ACQUIRE), hold()))
    giving_up = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), hold(reset=False)))
    assert await on.lock.try_lock(0) is None
    await giving_up.caught()
    await theirs.release()
    await late.deliver()
    assert await on.holds() == 1, "granted, and nobody knows"
    await on.answered()
    assert not await on.lock.locked()


@pytest.mark.parametrize("action", [drop_reply(), drop_reply(reset=False), hold(), hold(reset=False)], ids=str)
async def test_a_wait_that_ends_after_a_lost_reply_takes_nothing(proxy: Proxy, on: Stage, action: Action) -> None:
    theirs = await on.other.lock(NAME).acquire()
    lost = proxy.install(Rule(script(ACQUIRE), action))
    assert await on.lock.try_lock(0.1) is None
    await lost.caught()
    await on.answered()
    await theirs.release()
    with suppress(IndexError):
        await lost.deliver()
    assert not await on.lock.locked()
    assert on.lock.statistics().parked == 0


async def test_a_wait_that_ends_while_every_reply_is_lost_takes_nothing(proxy: Proxy, on: Stage) -> None:
    """The lock becomes free while the waiter's tries are executed and never answered."""
    theirs = await on.other.lock(NAME).acquire()
    waiting = asyncio.create_task(try_for(on, 0.5))
    await until(lambda: on.lock.statistics().parked == 1)
    await on.answered()
    proxy.install(Rule(script(ACQUIRE), drop_reply(), ALWAYS))
    await theirs.release()
    await until(lambda: on.client.statistics().pending > 0)
    await until(on.is_held)
    waiting.cancel()
    await asyncio.wait([waiting])
    proxy.clear_rules()
    await on.answered()
    assert not await on.lock.locked()


async def try_for(on: Stage, wait: float) -> None:
    await on.lock.try_lock(wait)


async def test_a_try_with_a_lost_reply_gets_the_grant_that_it_already_has(proxy: Proxy, on: Stage) -> None:
    lost = proxy.install(Rule(script(ACQUIRE), drop_reply(reset=False)))
    lease = await on.lock.try_lock(0.1)
    await lost.caught()
    assert lease is not None
    assert (await on.fields())["aiolock:token"] == str(lease.token)
    await lease.release()


async def test_a_client_that_closes_leaves_nothing_for_late_copies(redis: Redis, proxy: Proxy, through: Redis) -> None:
    async with LockClient(through) as client:
        late = proxy.install(Rule(script(ACQUIRE), hold()))
        await client.lock(NAME).acquire()
    await late.deliver()
    assert await leftovers(redis) == set()


async def test_an_acquire_that_arrives_long_after_its_lease_would_have_ended_takes_nothing(
    redis: Redis, proxy: Proxy, through: Redis
) -> None:
    """The client sends its give-up until the server has it: the lease would begin when the acquire arrives."""
    async with LockClient(through, config=LockConfig(command_timeout=0.3, release_timeout=0.3)) as client:
        late = proxy.install(Rule(script(ACQUIRE), hold(), ALWAYS))
        proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), reset(), ALWAYS))
        with pytest.raises(BackendError):
            await client.lock(NAME).acquire(lease=0.3)
        await asyncio.sleep(0.7)
        assert client.statistics().pending == 1, "the client forgot the give-up with the lease"
        proxy.clear_rules()
        await answered(client)
        assert (await late.deliver()).startswith(f"*3\r\n:{STALE}\r\n".encode())
        assert await leftovers(redis) == set()
