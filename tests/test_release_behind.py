"""`LockConfig(release="behind")`: which blocks it is for, what they give up, and what they keep all the same."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import (
    AsyncRLock,
    AsyncSemaphore,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    Lost,
    Released,
)
from aiolock._backend import Call
from aiolock._core.behind import Before
from aiolock._core.queue import MOST_HAND_OFFS
from aiolock._embedded_server import Server
from aiolock._scripts import ACQUIRE, HAND_OFF, PERMIT, RELEASE, RELEASE_CLEAN
from aiolock._types import BlockRelease
from tests.contract.acts import nothing_under_way
from tests.support.holding import client_behind
from tests.support.inside import hold_of, listeners_of, session_of
from tests.support.observe import answered, until
from tests.support.proxy import Action, Proxy, Rule, refuse, script, withhold_reply


@pytest.fixture
async def behind(redis: Redis) -> AsyncIterator[LockClient]:
    async with LockClient(redis, config=LockConfig(release="behind")) as client:
        yield client


# Which blocks leave their release behind.


@pytest.mark.parametrize("value", ["later", "", None, True])
def test_an_unknown_word_for_release_is_refused(value: Any, locks: LockClient) -> None:
    with pytest.raises(ValueError, match=r'^release must be "answered" or "behind", not '):
        LockConfig(release=value)
    if value is not None:
        for refused in (locks.lock("a").hold, locks.multi("a").hold, locks.read_write_lock("a").read.hold):
            with pytest.raises(ValueError, match=r"^release must be"):
                refused(release=value)
        with pytest.raises(ValueError, match=r"^release must be"):
            locks.synchronized("a", release=value)


def test_it_is_refused_where_a_lock_is_kept_for_a_while(locks: LockClient) -> None:
    with pytest.raises(ValueError, match=r'^release must be "answered" with at_least'):
        locks.lock("a").hold(at_least=1, release="behind")
    with pytest.raises(ValueError, match=r'^release must be "answered" with at_least'):
        locks.synchronized("a", at_least=1, release="behind")


async def test_a_semaphore_that_only_counts_takes_no_such_word(locks: LockClient) -> None:
    @locks.synchronized("seats", of=lambda locks, name: locks.counting_semaphore(name, 1), release="behind")
    async def sit() -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="only counts permits, and waits for the answer: leave out `release`"):
        await sit()


async def test_some_ends_are_waited_for_in_any_case(behind: LockClient) -> None:
    async with behind.counting_semaphore("seats", 1):
        pass
    assert behind.statistics().pending == 0
    async with behind.counting_semaphore("seats", 1).hold():
        pass
    assert behind.statistics().pending == 0
    async with behind.once("report", keep=60):
        pass
    assert behind.statistics().pending == 0
    async with behind.once("another", keep=60):
        assert True
    assert behind.statistics().pending == 0
    async with behind.lock("kept").hold(at_least=0.05):
        pass
    assert behind.statistics().pending == 0


async def test_a_failed_body_that_runs_once_is_waited_for(behind: LockClient) -> None:
    with pytest.raises(ZeroDivisionError):
        async with behind.once("report", keep=60):
            raise ZeroDivisionError
    assert behind.statistics().pending == 0


async def test_a_decorated_function(locks: LockClient) -> None:
    @locks.synchronized("order:{number}", release="behind")
    async def ship(number: int) -> int:
        return number

    assert await ship(7) == 7
    assert locks.statistics().pending == 1


async def test_the_block_of_a_lease(behind: LockClient) -> None:
    lease = await behind.lock("a").try_lock()
    assert lease is not None
    async with lease:
        pass
    assert lease.given_back
    assert behind.statistics().pending == 1


async def test_inner_blocks(behind: LockClient, other: LockClient) -> None:
    lock = behind.lock("a")
    async with lock:
        async with lock:
            pass
        assert behind.statistics().pending == 1
        assert await other.lock("a").try_lock() is None
    assert await lock.try_lock()
    await answered(behind)
    assert await lock.hold_count() == 1


# What the holder is told.


async def test_a_loss_by_the_clock_is_raised(behind: LockClient) -> None:
    with pytest.raises(LeaseLostError):
        async with behind.lock("a").hold() as lease:
            hold = hold_of(lease)
            hold.deadline = hold.expires = 0.0


async def test_a_loss_that_an_inner_release_finds_cancels_the_body_around_it(behind: LockClient, redis: Redis) -> None:
    with pytest.raises(LeaseLostError):
        async with behind.lock("a"):
            async with behind.lock("a"):
                await redis.flushall()
            await asyncio.sleep(60)
    assert behind.statistics().losses == 1
    assert behind.statistics().losses_behind == 0


@pytest.mark.parametrize("inner", ["answered", "behind"])
@pytest.mark.parametrize("outer", ["answered", "behind"])
async def test_a_loss_in_nested_blocks_is_raised_if_one_of_them_waits(
    inner: BlockRelease, outer: BlockRelease, locks: LockClient, redis: Redis
) -> None:
    """The loss counts as one that no block has raised only if no block has raised it."""
    lock, raised = locks.lock("a"), False
    try:
        async with lock.hold(release=outer), lock.hold(release=inner):
            await redis.flushall()
    except LeaseLostError:
        raised = True
    await answered(locks)
    assert raised == ("answered" in (inner, outer))
    assert (locks.statistics().losses, locks.statistics().losses_behind) == (1, int(not raised))


async def test_a_lock_that_was_freed_by_force(behind: LockClient, other: LockClient) -> None:
    async with behind.lock("a"):
        assert await other.lock("a").force_release()
    await answered(behind)
    assert behind.statistics().losses_behind == 1


async def test_a_body_that_fails_raises_its_own_error(behind: LockClient, redis: Redis) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        async with behind.lock("a"):
            await redis.flushall()
            raise ZeroDivisionError
    assert not hasattr(raised.value, "__notes__")
    await answered(behind)
    assert behind.statistics().losses_behind == 1


@pytest.mark.parametrize(
    ("fault", "why"), [(withhold_reply(), "no answer in time"), (refuse(b"NOPERM no permissions"), "NOPERM")]
)
async def test_a_release_that_fails_is_logged(
    fault: Action, why: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[LockEvent] = []
    async with client_behind(proxy, release="behind", release_timeout=0.1, on_event=events.append) as client:
        lock = client.lock("a")
        async with lock:
            pass
        await answered(client)
        proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), fault))
        async with lock:
            pass
        await until(lambda: events[-1:] != [] and isinstance(events[-1], Released) and not events[-1].confirmed)
        logged = [each for each in caplog.records if f"when the release of 'a' failed: {why}" in each.getMessage()]
        assert [(each.levelname, each.__dict__["lock_name"]) for each in logged] == [("WARNING", "a")]
        proxy.reset_all()
        await until(lambda: nothing_under_way(client))
    assert not any(isinstance(event, Lost) for event in events)


# The promises that are kept.


async def test_closing_waits_for_the_answer(through: Redis, proxy: Proxy, redis: Redis) -> None:
    client = LockClient(through, config=LockConfig(release="behind"))
    async with client.lock("a"):
        pass
    await answered(client)
    withheld = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), withhold_reply()))
    async with client.lock("a"):
        pass
    closing = asyncio.create_task(client.aclose())
    await withheld.caught()
    assert not closing.done()
    withheld.let_go()
    await closing
    assert not await redis.exists("a")


PROGRAM = """
import asyncio
from aiolock import LockClient, LockConfig

async def main():
    locks = LockClient.from_url({url!r}, config=LockConfig(release="behind"))
    async with locks.lock("a"):
        pass
    asyncio.current_task().keeps = locks

asyncio.run(main())
"""


async def test_a_program_that_ends_has_given_it_back(server: Server, redis: Redis) -> None:
    """The end of the loop cancels every task, and the connection waits for the replies that have not arrived."""
    program = PROGRAM.replace("    asyncio.current_task().keeps = locks\n", "").format(url=server.url)
    process = await asyncio.create_subprocess_exec(sys.executable, "-W", "ignore", "-c", program)
    assert await process.wait() == 0
    assert await redis.exists("a") == 0
    assert await redis.exists("aiolock_token:{a}") == 1


async def test_tasks_that_end_at_once_leave_nothing(behind: LockClient, other: LockClient) -> None:
    async def work() -> None:
        async with behind.lock("a"):
            pass

    for _ in range(20):
        await asyncio.create_task(work())
    await until(lambda: nothing_under_way(behind))
    assert behind.statistics().losses == 0
    assert await other.lock("a").try_lock()


async def test_local_waiters_go_along_with_it(behind: LockClient) -> None:
    async def work() -> None:
        for _ in range(30):
            async with behind.lock("a"):
                await asyncio.sleep(0)

    async with asyncio.timeout(30):
        await asyncio.gather(*(work() for _ in range(5)))
    assert behind.statistics().hand_offs > 0
    await until(lambda: nothing_under_way(behind))


async def test_after_a_number_in_a_row_the_answer_is_waited_for(through: Redis, proxy: Proxy) -> None:
    async with LockClient(through, config=LockConfig(release="behind")) as client:
        lock = client.lock("a")
        for number in range(40):
            async with lock:
                pass
            [in_a_row] = session_of(client).leases.behind.releases["a"].values()
            assert in_a_row == number % (MOST_HAND_OFFS + 1)
    scripts = [each for each in proxy.requests if script(ACQUIRE, RELEASE, RELEASE_CLEAN)(each)]
    hand_offs = [each for each in proxy.requests if script(HAND_OFF)(each)]
    assert len(scripts) + 2 * len(hand_offs) == 80
    # Two of the 39 releases between two sections are waited for, and the first one of each row leaves by itself.
    assert len(hand_offs) == 39 - 2 - 3


@pytest.mark.parametrize("wait", [0, 0.001, None])
async def test_an_acquire_waits_for_that_answer_however_short_its_wait_is(proxy: Proxy, wait: float | None) -> None:
    async with client_behind(proxy, release="behind", release_timeout=10, command_timeout=10) as client:
        lock = client.lock("a")
        for _ in range(MOST_HAND_OFFS):
            async with lock:
                pass
        async with lock:
            withheld = proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), withhold_reply()))
        await withheld.caught()
        asking = asyncio.create_task(asked(lock, wait))
        await asyncio.sleep(0.01)
        assert client.statistics().pending == 1
        withheld.let_go()
        assert await asking


async def test_a_try_adds_nothing_to_the_releases_before_it(behind: LockClient) -> None:
    """Otherwise a thousand requests that share one name would pay for a million pairs."""
    seats = behind.semaphore("seats", 100)
    async with AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(seats)
    releases = list(session_of(behind).leases.behind.releases["seats"])
    assert len(releases) == 20
    before = [listeners_of(release) for release in releases]
    trying = [asyncio.create_task(tried(seats)) for _ in range(20)]
    await asyncio.sleep(0)
    assert [listeners_of(release) for release in releases] == before
    assert all(await asyncio.gather(*trying))


@pytest.mark.parametrize("releases_answered", [0, 1, 2])
async def test_a_refusal_counts_if_each_release_was_answered_before_it(releases_answered: int) -> None:
    """A new connection may carry the try in front of a release that the server had refused, in one batch."""
    first, second, refused = (Call(RELEASE, (), (), 0.0) for _ in range(3))
    ends = [first, second]
    ends.insert(releases_answered, refused)
    for call in ends:
        call.end(None)
    assert await Before([second, first], 1).overtaken_by(refused) == (releases_answered < 2)


async def tried(seats: AsyncSemaphore) -> bool:
    return await seats.try_acquire() is not None


async def asked(lock: AsyncRLock, wait: float | None) -> bool:
    lease = await lock.try_lock(wait)
    if lease is not None:
        await lease.release()
    return lease is not None


@pytest.mark.parametrize("refusals", [1, 2])
async def test_each_release_that_was_overtaken_is_waited_for(proxy: Proxy, refusals: int) -> None:
    """Two permits of two are given back, and the server refuses the first release, or both, for the moment."""
    async with client_behind(proxy, release="behind") as client:
        seats = client.semaphore("seats", 2)
        async with seats:
            pass
        await answered(client)
        refused = proxy.install(Rule(script(PERMIT.release), refuse(b"BUSY for the moment"), refusals))
        async with seats, seats:
            pass
        assert await seats.try_acquire(permits=2)
        await refused.caught(refusals)
