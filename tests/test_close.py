"""The end of a client, closed or not: everybody is told, everything is released, nothing is left."""

import asyncio
import gc
import os
import subprocess
import sys
import time
import warnings
from contextlib import AsyncExitStack, nullcontext, suppress
from time import monotonic
from typing import Any

import anyio
import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from aiolock import BackendError, ClientClosedError, Lease, LeaseLostError, LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE, RELEASE, RELEASE_CLEAN
from tests.support.calls import CALLS, acquire_and_release
from tests.support.cancellation import suspended_in
from tests.support.inside import reader_of, redis_of, session_of
from tests.support.observe import connected, freed, renewed, until, until_connected
from tests.support.proxy import Proxy, Rule, script, withhold_reply
from tests.support.waiters import Waiters

NAME = "closing"
MANY = 300


class Holders:
    """Tasks that hold a lock each, and note how they were told to stop."""

    def __init__(self, locks: LockClient) -> None:
        self.tasks: list[asyncio.Task[str]] = []
        self.holding = 0
        self.told: list[float] = []
        self._locks = locks

    async def start(self, count: int) -> None:
        self.tasks += [asyncio.create_task(self._hold(f"held {number}")) for number in range(count)]
        await until(lambda: self.holding == count, within=10)

    async def reasons(self) -> list[object]:
        return list(await asyncio.gather(*self.tasks, return_exceptions=True))

    async def _hold(self, name: str) -> str:
        try:
            async with self._locks.lock(name) as lease:
                self.holding += 1
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    self.told.append(monotonic())
                    assert lease.lost.is_set()
                    await asyncio.sleep(0)
                    raise
        except LeaseLostError as error:
            return error.reason
        return "never told"


async def test_closing_tells_hundreds_of_holders_and_waiters_and_releases_everything(redis: Redis) -> None:
    before = asyncio.all_tasks()
    connections = await connected(redis)
    locks = LockClient(redis, config=LockConfig(release_timeout=5))
    async with LockClient(redis) as other, Waiters(locks, NAME) as waiters:
        await other.lock(NAME).acquire(lease=60)
        holders = Holders(locks)
        await holders.start(MANY)
        await waiters.park(MANY)
        started = monotonic()
        await locks.aclose()
        assert monotonic() - started < 5
        assert await holders.reasons() == ["closed"] * MANY
        ends = await asyncio.gather(*waiters.tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [ClientClosedError] * MANY
        assert await redis.keys("held *") == []
        assert locks.statistics().held == locks.statistics().parked == locks.statistics().pending == 0
        assert locks.statistics().connections == 0
        assert await other.lock(NAME).held()
    await until_connected(redis, connections)
    await until(lambda: asyncio.all_tasks() == before)


async def test_each_waiter_of_a_client_that_is_closed_gets_an_error_of_its_own(locks: LockClient, redis: Redis) -> None:
    await locks.lock(NAME).acquire()
    client = LockClient(redis)
    async with Waiters(client, NAME) as waiters:
        await waiters.park(10)
        await client.aclose()
        errors = await asyncio.gather(*waiters.tasks, return_exceptions=True)
    assert {type(error) for error in errors} == {ClientClosedError}
    assert len(set(map(id, errors))) == 10
    assert len({str(error) for error in errors}) == 1


async def test_holders_are_cancelled_before_their_locks_are_released(proxy: Proxy) -> None:
    async with LockClient.from_url(proxy.url) as locks:
        holders = Holders(locks)
        await holders.start(50)
        await locks.aclose()
        assert await holders.reasons() == ["closed"] * 50
        released = [request.at for request in proxy.requests if script(RELEASE, RELEASE_CLEAN)(request)]
        assert len(released) == 2, "the releases are as few commands as possible"
        assert max(holders.told) <= min(released)


async def test_a_lease_without_a_scope_is_lost_when_its_client_is_closed(redis: Redis) -> None:
    locks = LockClient(redis)
    lock = locks.lock(NAME)
    lease = await lock.acquire()
    await lock.acquire()
    assert not lease.lost.is_set()
    await locks.aclose()
    assert await lease.lost == "closed"
    assert lease.holds == lease.remaining == 0
    for give_back in (lock.release, lease.release):
        with pytest.raises(LeaseLostError, match="client was closed") as caught:
            await give_back()
        assert caught.value.reason == "closed"
    assert await redis.exists(NAME) == 0


@pytest.mark.parametrize("state", ["paused", "killed"])
async def test_closing_is_bounded_when_the_server_is_paused_or_killed(state: str, own: Server) -> None:
    config = LockConfig(release_timeout=0.5, command_timeout=1)
    locks = LockClient.from_url(own.url, config=config)
    holder = LockClient.from_url(own.url, config=config)
    await holder.lock(NAME, owner="long").acquire()
    async with Waiters(locks, NAME) as waiters:
        holders = Holders(locks)
        await holders.start(100)
        await waiters.park(100)
        (own.pause if state == "paused" else own.kill)()
        started = monotonic()
        await asyncio.gather(locks.aclose(), holder.aclose())
        assert 0.4 < monotonic() - started < 3
        assert await holders.reasons() == ["closed"] * 100
        ends = await asyncio.gather(*waiters.tasks, return_exceptions=True)
        assert [type(end) for end in ends] == [ClientClosedError] * 100
        assert locks.statistics().connections == 0


async def test_closing_twice_or_at_the_same_time_is_closing_once(redis: Redis) -> None:
    locks = LockClient(redis)
    await locks.lock(NAME, owner="long").acquire()
    await asyncio.gather(*(locks.aclose() for _ in range(10)))
    await locks.aclose()
    assert await redis.exists(NAME) == 0
    with pytest.raises(ClientClosedError):
        async with locks:
            pass


async def test_closing_a_client_that_was_never_used_opens_no_connection(redis: Redis) -> None:
    before = (await redis.info("stats"))["total_connections_received"]
    async with LockClient(redis):
        pass
    await LockClient(redis).aclose()
    assert (await redis.info("stats"))["total_connections_received"] == before


async def test_a_close_that_is_cancelled_goes_on_by_itself(own: Server) -> None:
    locks = LockClient.from_url(own.url)
    async with Redis.from_url(own.url) as observer:
        await locks.lock(NAME, owner="long").acquire()
        own.pause()
        closing = asyncio.create_task(locks.aclose())
        await until(lambda: session_of(locks).closed)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        own.resume()
        await freed(observer, NAME)
        await locks.aclose()
        assert locks.statistics().connections == 0


async def test_a_close_in_a_cancelled_anyio_scope_is_complete(redis: Redis) -> None:
    locks = LockClient(redis)
    await locks.lock(NAME, owner="long").acquire()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await locks.aclose()
    assert await redis.exists(NAME) == 0
    assert locks.statistics().connections == 0


async def test_a_closed_client_refuses_everything_and_says_why(redis: Redis) -> None:
    async with LockClient(redis) as locks:
        lock = locks.lock(NAME)
        lease = await lock.acquire()
        await lease.release()
    for call in CALLS.values():
        with pytest.raises(ClientClosedError, match="is closed"):
            await call(lock)
    for use in (lock.release, lease.renew, locks.__aenter__):
        with pytest.raises(ClientClosedError, match="is closed"):
            await use()
    assert locks.statistics().held == 0
    assert await redis.ping()


async def test_a_client_that_made_its_redis_closes_it_and_no_other(server: Server, redis: Redis) -> None:
    own = LockClient.from_url(server.url)
    await redis_of(own).ping()
    before = await connected(redis)
    await own.aclose()
    await until_connected(redis, before - 1)
    async with LockClient(redis) as locks, locks.lock(NAME):
        pass
    assert await redis.ping()


@pytest.mark.parametrize("turns", range(5))
async def test_handlers_cancelled_before_the_client_is_closed_stay_cancelled_and_hold_nothing(
    redis: Redis, turns: int
) -> None:
    """uvicorn shuts down like that: it cancels the handlers, and ends the lifespan before they have finished."""
    locks = LockClient(redis)

    async def handle(number: int) -> None:
        async with locks.lock(f"handled {number}"):
            await asyncio.sleep(60)

    handlers = [asyncio.create_task(handle(number % 25)) for number in range(50)]
    await until(lambda: locks.statistics().held == 25 and locks.statistics().parked == 25)
    for handler in handlers:
        handler.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    await locks.aclose()
    ends = await asyncio.gather(*handlers, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError] * 50
    assert await redis.keys("handled *") == []
    assert locks.statistics().held == locks.statistics().parked == locks.statistics().connections == 0


@pytest.mark.parametrize("cancelled_before", [True, False])
async def test_closing_lets_bodies_roll_back_under_their_locks(redis: Redis, cancelled_before: bool) -> None:
    """The handlers were cancelled before, as uvicorn does it, or closing cancels them."""
    locks = LockClient(redis, config=LockConfig(release_timeout=30))
    held: list[int] = []

    async def handle(number: int) -> None:
        async with locks.lock(f"handled {number}"):
            try:
                await asyncio.sleep(60)
            finally:
                # After a real loss a scope would not leave a body alone for so long.
                await asyncio.sleep(1)
                held.append(await redis.exists(f"handled {number}"))

    handlers = [asyncio.create_task(handle(number)) for number in range(50)]
    await until(lambda: locks.statistics().held == 50)
    if cancelled_before:
        for handler in handlers:
            handler.cancel()
        await asyncio.sleep(0)
    started = monotonic()
    await locks.aclose()
    # The bodies would have 15 seconds.
    assert monotonic() - started < 10
    assert held == [1] * 50
    ends = await asyncio.gather(*handlers, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError if cancelled_before else LeaseLostError] * 50
    assert await redis.keys("handled *") == []


@pytest.mark.parametrize("cancelled_before", [True, False])
async def test_locks_of_bodies_that_roll_back_are_renewed_while_their_client_is_closed(
    redis: Redis, cancelled_before: bool
) -> None:
    locks = LockClient(redis, config=LockConfig(lease=1, release_timeout=30))
    held: list[int] = []
    handler = asyncio.create_task(hold(locks, redis, 2.5, held))
    await until(lambda: locks.statistics().held == 1)
    if cancelled_before:
        handler.cancel()
        await asyncio.sleep(0)
    await locks.aclose()
    assert held == [1]
    await asyncio.gather(handler, return_exceptions=True)


async def hold(locks: LockClient, redis: Redis, seconds: float, held: list[int], owner: str | None = None) -> None:
    """Hold the lock for ever; when cancelled, roll back for these *seconds*."""
    async with locks.lock(NAME, owner=owner):
        await roll_back_in(redis, seconds, held)


async def roll_back_in(redis: Redis, seconds: float, held: list[int]) -> None:
    """Wait for ever; when cancelled, roll back for these *seconds*, and note whether the lock is there then."""
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(seconds)
        held.append(await redis.exists(NAME))


async def test_a_holder_that_waits_for_another_lock_rolls_back_under_its_own(redis: Redis, other: LockClient) -> None:
    locks = LockClient(redis, config=LockConfig(release_timeout=30))
    held: list[int] = []

    async def wait_for(name: str) -> None:
        async with locks.lock(name):
            pass

    async def handle(name: str, *, by_child: bool) -> None:
        async with locks.lock(name):
            try:
                if by_child:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(wait_for("second"))
                else:
                    await wait_for("second")
            finally:
                await asyncio.sleep(0.3)
                held.append(await redis.exists(name))

    async with other.lock("second"):
        handlers = [asyncio.create_task(handle("a", by_child=False)), asyncio.create_task(handle("b", by_child=True))]
        await until(lambda: locks.statistics().parked == 2)
        await locks.aclose()
    assert held == [1, 1]
    ends = await asyncio.gather(*handlers, return_exceptions=True)
    assert [type(end) for end in ends] == [LeaseLostError] * 2


async def test_a_holder_whose_try_for_another_lock_is_answered_meanwhile_rolls_back_once(
    redis: Redis, other: LockClient, proxy: Proxy
) -> None:
    """The answer to the try comes some turns before the holder is cancelled, or after."""
    rolled_back = 0

    async def handle(locks: LockClient, held: asyncio.Event) -> None:
        nonlocal rolled_back
        async with locks.lock("first"):
            held.set()
            try:
                await locks.lock("second").acquire()
            finally:
                await asyncio.sleep(0.05)
                rolled_back += 1

    async def close_after(turns: int) -> None:
        locks, held = LockClient.from_url(proxy.url), asyncio.Event()
        handling = asyncio.create_task(handle(locks, held))
        await held.wait()
        withheld = proxy.install(Rule(script(ACQUIRE), withhold_reply()))
        await withheld.caught()
        withheld.let_go()
        for _ in range(turns):
            await asyncio.sleep(0)
        await locks.aclose()
        await asyncio.wait([handling])
        assert isinstance(handling.exception(), LeaseLostError)

    async with other.lock("second"):
        for turns in range(12):
            await close_after(turns)
            assert rolled_back == turns + 1


async def test_a_holder_that_asks_for_another_lock_as_its_client_closes_rolls_back_once(redis: Redis) -> None:
    """The holder asks some turns before it is cancelled."""
    rolled_back = 0

    async def handle(locks: LockClient, held: asyncio.Event, turns: int) -> None:
        nonlocal rolled_back
        async with locks.lock("first"):
            held.set()
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
                async with locks.lock("second"):
                    await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                rolled_back += 1

    for turns in range(12):
        locks, held = LockClient(redis), asyncio.Event()
        handling = asyncio.create_task(handle(locks, held, turns))
        await held.wait()
        await locks.aclose()
        await asyncio.wait([handling])
        assert isinstance(handling.exception(), LeaseLostError)
        assert rolled_back == turns + 1


async def test_a_block_that_is_entered_as_its_client_closes_rolls_back_under_its_lock(
    redis: Redis, server: Server
) -> None:
    held: list[int] = []
    entered_late = 0

    async def handle(locks: LockClient, closing: asyncio.Event) -> None:
        nonlocal entered_late
        async with locks.lock(NAME):
            entered_late += closing.is_set()
            await roll_back_in(redis, 0.05, held)

    def wait_for_the_grant() -> None:
        """Let the loop stand still until the server has granted the lock; the first turns have not sent the command."""
        for _ in range(50):
            if operator.exists(NAME):
                return
            time.sleep(0.02)

    async def close_after(turns: int) -> None:
        locks, closing = LockClient(redis, config=LockConfig(release_timeout=20)), asyncio.Event()
        await acquire_and_release(locks.lock("before"))
        handling = asyncio.create_task(handle(locks, closing))
        for _ in range(turns):
            await asyncio.sleep(0)
        wait_for_the_grant()
        closing.set()
        await locks.aclose()
        await asyncio.wait([handling])
        assert isinstance(handling.exception(), LeaseLostError | ClientClosedError)

    with SyncRedis.from_url(server.url) as operator:
        for turns in range(12):
            await close_after(turns)
    assert entered_late
    assert held == [1] * len(held)


async def test_a_lock_that_a_rollback_takes_does_not_end_it(redis: Redis) -> None:
    locks = LockClient(redis, config=LockConfig(release_timeout=20))
    rolled_back = False

    async def handle() -> None:
        nonlocal rolled_back
        async with locks.lock("first"):
            try:
                await asyncio.sleep(60)
            finally:
                async with locks.lock("second"):
                    await asyncio.sleep(1)
                rolled_back = True

    handler = asyncio.create_task(handle())
    await until(lambda: locks.statistics().held == 1)
    handler.cancel()
    await until(lambda: locks.statistics().held == 2)
    await locks.aclose()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert rolled_back


async def test_a_body_that_goes_on_after_a_timeout_of_its_own_is_cancelled_then(redis: Redis) -> None:
    locks = LockClient(redis, config=LockConfig(release_timeout=30))
    timed_out = False
    held: list[int] = []

    async def handle() -> None:
        nonlocal timed_out
        async with locks.lock(NAME):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    try:
                        await asyncio.sleep(60)
                    finally:
                        timed_out = True
                        await asyncio.sleep(0.5)
            await roll_back_in(redis, 0.2, held)

    handler = asyncio.create_task(handle())
    await until(lambda: timed_out)
    started = monotonic()
    await locks.aclose()
    # The handler would have 15 seconds.
    assert monotonic() - started < 10
    assert held == [1]
    with pytest.raises(LeaseLostError):
        await handler


async def test_tasks_that_act_as_one_owner_are_each_told_in_their_time(redis: Redis) -> None:
    """One task was cancelled before, and rolls back; closing tells the other one all the same."""
    locks = LockClient(redis, config=LockConfig(release_timeout=30))
    held: list[int] = []
    handlers = [asyncio.create_task(hold(locks, redis, seconds, held, "both")) for seconds in (0.7, 0.2)]
    await until(lambda: sum(map(len, session_of(locks).blocks.opened.values())) == 2)
    handlers[0].cancel()
    await asyncio.sleep(0)
    started = monotonic()
    await locks.aclose()
    # The handlers would have 15 seconds.
    assert monotonic() - started < 10
    assert held == [1, 1]
    ends = await asyncio.gather(*handlers, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError, LeaseLostError]


@pytest.mark.parametrize("cancelled_before", [True, False])
async def test_bodies_that_do_not_end_keep_their_locks_for_half_of_the_time(
    redis: Redis, cancelled_before: bool
) -> None:
    locks = LockClient(redis, config=LockConfig(release_timeout=2))
    leases: list[Lease] = []
    cancelled: list[float] = []
    go_on = asyncio.Event()

    async def handle() -> None:
        async with locks.lock(NAME) as lease:
            leases.append(lease)
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    cancelled.append(monotonic())

    handler = asyncio.create_task(handle())
    await until(lambda: len(leases) == 1)
    if cancelled_before:
        handler.cancel()
        await until(lambda: len(cancelled) == 1)
    started = monotonic()
    closing = asyncio.create_task(locks.aclose())
    try:
        await freed(redis, NAME)
        assert monotonic() - started >= 1
        assert leases[0].lost.is_set()
        assert len(cancelled) == 1 + cancelled_before
        await closing
    finally:
        go_on.set()
    with pytest.raises(LeaseLostError, match="client was closed"):
        await handler


async def test_a_block_whose_task_ends_without_leaving_it_is_not_waited_for(redis: Redis) -> None:
    locks = LockClient(redis, config=LockConfig(release_timeout=30))
    block, entered, may_end = locks.lock(NAME).hold(), asyncio.Event(), asyncio.Event()

    async def never_leaves() -> None:
        await block.__aenter__()
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            await may_end.wait()

    task = asyncio.create_task(never_leaves())
    await entered.wait()
    session = session_of(locks)
    closing = asyncio.create_task(locks.aclose())
    await until(lambda: session.leases.body_ended is not None)
    may_end.set()
    await asyncio.wait_for(closing, 10)
    assert task.cancelled()
    assert not await redis.exists(NAME)


@pytest.mark.parametrize("ends", ["before", "meanwhile"])
@pytest.mark.parametrize("of", ["a lease that was handed on", "a named owner"])
async def test_a_block_that_another_task_entered_and_nobody_leaves_is_not_waited_for(
    redis: Redis, of: str, ends: str
) -> None:
    locks = LockClient(redis, config=LockConfig(release_timeout=30))
    owner = "me" if of == "a named owner" else None
    block: Any = locks.lock(NAME, owner=owner).hold() if owner else await locks.lock(NAME).acquire()
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def never_leaves() -> None:
        await block.__aenter__()
        entered.set()
        try:
            await may_end.wait()
        except asyncio.CancelledError:
            await may_end.wait()

    task = asyncio.create_task(never_leaves())
    await entered.wait()
    if ends == "before":
        may_end.set()
        await task
    closing = asyncio.create_task(locks.aclose())
    await until(lambda: session_of(locks).leases.body_ended is not None or closing.done())
    may_end.set()
    await asyncio.wait_for(closing, 10)
    await task
    assert not await redis.exists(NAME)


async def test_a_lock_without_a_body_is_freed_while_others_roll_back(redis: Redis) -> None:
    locks = LockClient(redis, config=LockConfig(release_timeout=30))
    done = asyncio.Event()

    async def handle() -> None:
        async with locks.lock("body"):
            try:
                await asyncio.sleep(60)
            finally:
                await done.wait()

    handler = asyncio.create_task(handle())
    await locks.lock("none", owner="long").acquire()
    await until(lambda: locks.statistics().held == 2)
    closing = asyncio.create_task(locks.aclose())
    await freed(redis, "none")
    assert await redis.exists("body")
    assert not closing.done()
    done.set()
    await closing
    await asyncio.gather(handler, return_exceptions=True)


async def test_a_close_that_the_end_of_the_loop_cuts_short_leaves_nothing(redis: Redis) -> None:
    before = asyncio.all_tasks()
    locks = LockClient(redis)
    rolling_back = asyncio.Event()

    async def work() -> None:
        async with locks.lock(NAME):
            try:
                await asyncio.sleep(600)
            finally:
                rolling_back.set()
                await asyncio.sleep(600)

    handler = asyncio.create_task(work())
    await until(lambda: locks.statistics().held == 1)
    closing = asyncio.create_task(locks.aclose())
    await rolling_back.wait()
    for task in asyncio.all_tasks() - before:
        task.cancel()
    await asyncio.gather(closing, handler, return_exceptions=True)
    await locks.aclose()
    await until(lambda: asyncio.all_tasks() <= before)
    assert locks.statistics().connections == 0


async def test_a_body_that_closes_its_own_client_is_not_waited_for(redis: Redis) -> None:
    locks = LockClient(redis, config=LockConfig(release_timeout=30))
    started = monotonic()
    with pytest.raises(LeaseLostError, match="client was closed"):
        async with locks.lock(NAME):
            await locks.aclose()
    await locks.aclose()
    # Other tasks would have 15 seconds.
    assert monotonic() - started < 10
    assert await redis.exists(NAME) == 0


async def test_handlers_whose_release_is_on_its_way_get_its_answer(redis: Redis) -> None:
    locks = LockClient(redis)
    leases: list[Lease] = [await locks.lock(f"{NAME} {number}").acquire() for number in range(50)]
    releasing = [asyncio.create_task(lease.release()) for lease in leases]
    await asyncio.sleep(0)
    await locks.aclose()
    assert await asyncio.gather(*releasing) == [None] * 50
    assert await redis.keys(f"{NAME} *") == []


@pytest.mark.parametrize("holding", [True, False])
def test_a_loop_that_ends_without_closing_leaves_no_warning(
    server: Server, holding: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 60
        locks = LockClient.from_url(server.url)
        job = locks.lock(f"{NAME} {os.getpid()} {holding}", owner="long")
        await job.acquire(lease=1)
        waiting = asyncio.create_task(acquire_and_release(locks.lock(job.name)))
        await until(lambda: locks.statistics().subscriptions == 1)
        if not holding:
            waiting.cancel()
            await job.release()

    asyncio.run(main())
    # Unclosed transports and never-awaited coroutines warn now, and warnings are errors.
    gc.collect()
    assert caplog.records == []


@pytest.mark.parametrize("closing", [True, False])
def test_a_loop_that_ends_by_cancelling_every_task_waits_for_no_answer(server: Server, closing: bool) -> None:
    """A server that is forced to exit cancels holders and closers together with aiolock's own tasks."""
    name = f"{NAME} forced {os.getpid()} {closing}"
    config = LockConfig(release_timeout=30, command_timeout=30)
    tasks: list[asyncio.Task[None]] = []

    async def handle(locks: LockClient, holding: asyncio.Event) -> None:
        async with locks.lock(name):
            holding.set()
            await asyncio.sleep(3600)

    async def lifespan(locks: LockClient) -> None:
        async with locks:
            await asyncio.sleep(3600)

    async def main() -> float:
        locks, holding = LockClient.from_url(server.url, config=config), asyncio.Event()
        tasks.append(asyncio.create_task(handle(locks, holding)))
        if closing:
            tasks.append(asyncio.create_task(lifespan(locks)))
        await holding.wait()
        return monotonic()

    async def is_freed() -> None:
        async with Redis.from_url(server.url) as observer:
            await freed(observer, name)

    ending = asyncio.run(main())
    assert monotonic() - ending < 20
    assert all(task.cancelled() for task in tasks)
    asyncio.run(is_freed())


@pytest.mark.parametrize("closed_by", ["nobody", "another task", "the holder"])
def test_a_loop_that_ends_by_cancelling_every_task_waits_for_those_that_roll_back(
    server: Server, closed_by: str
) -> None:
    """The tasks roll back under their locks, which are renewed meanwhile, and then released."""
    name = f"{NAME} rolled back {os.getpid()} {closed_by}"
    held: list[int] = []

    async def exists() -> int:
        async with Redis.from_url(server.url) as observer:
            return int(await observer.exists(name))

    async def handle(locks: LockClient, holding: asyncio.Event) -> None:
        async with locks if closed_by == "the holder" else nullcontext(), locks.lock(name):
            await renewed(locks, 1)
            holding.set()
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0.2)
                await renewed(locks, 2)
                held.append(await exists())

    async def lifespan(locks: LockClient) -> None:
        async with locks:
            await asyncio.sleep(3600)

    async def main() -> None:
        locks = LockClient.from_url(server.url, config=LockConfig(renew_interval=0.05, release_timeout=30))
        holding = asyncio.Event()
        tasks.append(asyncio.create_task(handle(locks, holding)))
        if closed_by == "another task":
            tasks.append(asyncio.create_task(lifespan(locks)))
        await holding.wait()

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert held == [1]
    assert asyncio.run(exists()) == 0
    assert all(task.cancelled() for task in tasks)


async def end_the_loop(spared: set[asyncio.Task[Any]]) -> None:
    """Cancel every task but those of the test, as asyncio.run does, and wait until they have ended."""
    ours = {task for task in asyncio.all_tasks() if "support/proxy.py" in repr(task)}
    ending = asyncio.all_tasks() - spared - ours
    for task in ending:
        task.cancel()
    _, left = await asyncio.wait(ending, timeout=20)
    assert not left


@pytest.mark.parametrize(
    "at", ["_run wait", "_run _serve _rest", "_run _serve _connected _open"], ids=["idle", "rests", "connects"]
)
async def test_a_loop_that_ends_while_there_is_no_connection_waits_for_those_that_roll_back(
    redis: Redis, proxy: Proxy, through: Redis, at: str
) -> None:
    """The server closed the connection; the locks are renewed on another one."""
    spared, held = asyncio.all_tasks(), list[int]()
    config = LockConfig(renew_interval=0.05, command_timeout=30, release_timeout=30, client_name="ending")
    locks = LockClient(through, config=config)

    async def handle() -> None:
        async with locks.lock(NAME):
            try:
                await asyncio.sleep(600)
            finally:
                await proxy.heal()
                await asyncio.sleep(0.2)
                held.append(await redis.exists(NAME))

    handler = asyncio.create_task(handle())
    await until(lambda: locks.statistics().renewals > 0)
    if "_rest" in at:
        await proxy.refuse()
    if "_open" in at:
        proxy.black_hole()
    ordinary = min(int(each["id"]) for each in await redis.client_list() if each["name"] == "ending")
    await redis.client_kill_filter(_id=str(ordinary))
    await until(lambda: "_read" not in suspended_in(reader_of(locks)))
    asking = None if "wait" in at else asyncio.create_task(locks.ping())
    await until(lambda: " ".join(suspended_in(reader_of(locks))).startswith(at))
    await end_the_loop(spared)
    assert handler.cancelled()
    assert asking is None or asking.cancelled()
    assert held == [1]
    assert not await redis.exists(NAME)
    assert locks.statistics().connections == 0
    await locks.aclose()


async def test_a_loop_that_ends_waits_for_no_release_longer_than_the_task_that_released(own: Server) -> None:
    """The server refuses releases for now: they would be tried until no command of their holds can be late any more."""
    spared, held = asyncio.all_tasks(), list[int]()
    async with Redis.from_url(own.url) as operator:
        locks = LockClient(operator, config=LockConfig(release_timeout=0.5))
        told = await locks.lock("told").acquire()
        holder = asyncio.create_task(hold(locks, operator, 0, held))
        await until(lambda: locks.statistics().held == 2)
        await operator.config_set("min-replicas-to-write", 1)
        with pytest.raises(BackendError):
            await told.release()
        await end_the_loop(spared)
        assert holder.cancelled()
        assert held == [1]
        assert locks.statistics().pending == 2
        await locks.aclose()


HOLDING = f"""
import asyncio, sys
from aiolock import LockClient

async def main():
    locks = LockClient.from_url(sys.argv[1])
    await locks.lock({NAME!r}).acquire(lease=3600)
    if sys.argv[2] == "fails":
        raise ValueError
    if sys.argv[2] == "exits":
        sys.exit(7)

asyncio.run(main())
"""


@pytest.mark.parametrize(("end", "status"), [("returns", 0), ("fails", 1), ("exits", 7)])
async def test_a_program_that_ends_without_closing_its_client_releases_at_once_and_is_told(
    server: Server, redis: Redis, end: str, status: int
) -> None:
    command = [sys.executable, "-c", HOLDING, server.url, end]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == status, ended.stderr
    assert f"lock {NAME!r}" in ended.stderr
    assert "ended while it held the lock" in ended.stderr
    # An hour is left of the lease.
    await freed(redis, NAME)


TYPICAL = """
import asyncio
import sys
from aiolock import LockClient, LockConfig

async def work(locks, number):
    async with locks.lock(f"dev {number % 3}") as lease:
        await asyncio.sleep(0.01)
        lease.check()
    if lease := await locks.lock("dev").try_lock(wait=0.05):
        await lease.release()

async def main(url, close):
    asyncio.get_running_loop().slow_callback_duration = 60  # How fast the machine is does not matter.
    locks = LockClient.from_url(url, config=LockConfig(lease=1))
    async with asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(work(locks, number))
    async with locks.lock("dev renewed"):
        await asyncio.sleep(0.5)
    if close:
        await locks.aclose()

asyncio.run(main(sys.argv[1], sys.argv[2] == "close"))
"""


@pytest.mark.parametrize("end", ["close", "leave"])
def test_a_typical_program_is_told_in_dev_mode_only_that_it_closes_no_client(server: Server, end: str) -> None:
    environment = os.environ | {"PYTHONDEVMODE": "1", "PYTHONASYNCIODEBUG": "1", "PYTHONWARNINGS": "always"}
    command = [sys.executable, "-c", TYPICAL, server.url, end]
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=30)
    told = [line for line in ended.stderr.splitlines() if not line.startswith("  ") and "tracemalloc" not in line]
    assert len(told) == (end == "leave"), ended.stderr
    assert all("ResourceWarning: unclosed <LockClient" in line for line in told)
    assert ended.returncode == 0


def test_a_loop_that_ends_waits_for_no_block_whose_task_is_gone(server: Server) -> None:
    """A task that has ended entered the block of a named owner, and nobody leaves it."""
    name = f"{NAME} abandoned {os.getpid()}"

    async def main() -> float:
        await asyncio.create_task(enter(locks))
        return monotonic()

    async def enter(locks: LockClient) -> None:
        await AsyncExitStack().enter_async_context(locks.lock(name, owner="job"))

    locks = LockClient.from_url(server.url, config=LockConfig(lease=300))
    ending = asyncio.run(main())
    assert monotonic() - ending < 20


def test_a_lock_of_a_named_owner_is_released_by_its_last_task_however_late_in_the_end_of_a_loop(
    server: Server,
) -> None:
    """No block tells the connection that a release will come."""
    name = f"{NAME} late {os.getpid()}"

    async def work(locks: LockClient, entered: asyncio.Event) -> None:
        lease = await locks.lock(name, owner="job").acquire(lease=300)
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            await lease.release()

    async def main() -> None:
        entered = asyncio.Event()
        working.append(asyncio.create_task(work(LockClient.from_url(server.url), entered)))
        await entered.wait()

    working: list[asyncio.Task[None]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())
        gc.collect()
    assert working.pop().cancelled()
    with SyncRedis.from_url(server.url) as operator:
        assert not operator.exists(name)


async def test_a_client_that_was_never_used_is_closed_by_leaving_it(server: Server) -> None:
    locks = LockClient.from_url(server.url)
    async with AsyncExitStack() as stack:
        stack.push_async_exit(locks)
    with pytest.raises(ClientClosedError):
        await locks.lock(NAME).acquire()


async def test_a_client_remembers_no_task_that_only_closes_it(redis: Redis) -> None:
    """Such a task may live long, and make one client after the other for other tasks."""
    async with LockClient(redis) as locks:
        await locks.ping()
    assert session_of(locks).owners.tasks() == {}
