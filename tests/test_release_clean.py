"""Clean releases: when a client sends one, and what it is told when the answer was lost."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from aiolock import AsyncFairLock, AsyncRLock, LeaseLostError, LockClient
from aiolock._backend import Call
from aiolock._config import LockConfig, Timing
from aiolock._core.commands import Commands
from aiolock._core.hold import Hold
from aiolock._keys import LockKeys
from aiolock._scripts import ACQUIRE, FAIR, LOCK, RELEASE_CLEAN, Claim, Want
from aiolock._scripts.replies import Applied
from tests.support import inside
from tests.support.proxy import Proxy, Request, Rule, drop_reply, script

NAME = "orders"
KEYS = LockKeys.of(NAME, "")
CLEAN = (RELEASE_CLEAN, FAIR.release_clean)

AnyLock = AsyncRLock | AsyncFairLock


@pytest.fixture(params=["plain", "fair"])
async def behind(proxy: Proxy, request: pytest.FixtureRequest) -> AsyncIterator[AnyLock]:
    """A lock of a client behind the proxy."""
    async with LockClient.from_url(proxy.url) as client:
        yield client.lock(NAME) if request.param == "plain" else client.fair_lock(NAME)


def releases(proxy: Proxy) -> list[Request]:
    """The clean releases that the proxy has seen."""
    return [request for request in proxy.requests if script(*CLEAN)(request)]


async def members(redis: Redis) -> tuple[int, int]:
    """How many marks and ids are remembered."""
    found: set[Any] = set(await redis.zrange(KEYS.tokens, 0, -1)) - {b"token"}
    marks = {member for member in found if member.startswith(b"freed ")}
    return len(marks), len(found - marks)


async def test_sections_of_a_client_leave_one_mark(behind: AnyLock, redis: Redis) -> None:
    for _ in range(3):
        async with behind, behind:
            pass
        assert await members(redis) == (1, 0)


async def test_a_second_copy_of_a_release_gets_the_answer_of_the_first(
    behind: AnyLock, proxy: Proxy, redis: Redis, other: LockClient
) -> None:
    lease = await behind.acquire()
    lost = proxy.install(Rule(script(*CLEAN), drop_reply()))
    await lease.release()
    assert len(lost.requests) == 1
    assert len(releases(proxy)) == 2
    assert await members(redis) == (1, 0)
    assert await other.lock(NAME).try_lock()


Stage = tuple[AnyLock, Proxy, Redis, LockClient]


@pytest.fixture
def on(behind: AnyLock, proxy: Proxy, redis: Redis, other: LockClient) -> Stage:
    """All that a test of a loss needs."""
    return behind, proxy, redis, other


async def deleted(redis: Redis, other: LockClient) -> None:
    assert await redis.delete(NAME) == 1


async def deleted_and_taken(redis: Redis, other: LockClient) -> None:
    await deleted(redis, other)
    assert await other.lock(NAME).try_lock()


async def forced(redis: Redis, other: LockClient) -> None:
    assert await other.lock(NAME).force_release()


async def flushed(redis: Redis, other: LockClient) -> None:
    await redis.flushall()


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("lose", [deleted, deleted_and_taken, forced, flushed], ids=lambda lose: lose.__name__)
async def test_a_release_of_a_lost_lock_raises_however_often_it_is_sent(
    on: Stage, lose: Callable[[Redis, LockClient], Awaitable[None]], copies: int
) -> None:
    behind, proxy, redis, other = on
    # The first section leaves a mark.
    async with behind:
        pass
    lease = await behind.acquire()
    await lose(redis, other)
    before = await redis.hgetall(NAME)
    if copies == 2:
        proxy.install(Rule(script(*CLEAN), drop_reply()))
    with pytest.raises(LeaseLostError):
        await lease.release()
    assert await redis.hgetall(NAME) == before


async def test_a_grant_of_which_an_acquire_can_be_late_is_remembered_by_its_id(
    behind: AnyLock, proxy: Proxy, redis: Redis
) -> None:
    proxy.install(Rule(script(ACQUIRE, FAIR.acquire), drop_reply()))
    async with behind:
        pass
    assert not releases(proxy)
    assert await members(redis) == (0, 1)


async def test_a_hold_whose_inner_acquire_can_be_late_is_remembered_by_its_id(
    behind: AnyLock, proxy: Proxy, redis: Redis
) -> None:
    async with behind:
        proxy.install(Rule(script(ACQUIRE, FAIR.acquire), drop_reply()))
        async with behind:
            pass
    assert await members(redis) == (0, 1)


@pytest.mark.parametrize("field", ["since", "confirmed_at"])
async def test_a_long_hold_is_remembered_by_its_id(behind: AnyLock, redis: Redis, field: str) -> None:
    lease = await behind.acquire()
    hold = inside.hold_of(lease)
    setattr(hold, field, getattr(hold, field) - 20)
    await lease.release()
    assert await members(redis) == (0, 1)


async def test_a_release_that_keeps_the_lock_for_a_while_is_remembered_by_its_id(
    locks: LockClient, redis: Redis
) -> None:
    async with locks.lock(NAME).hold(at_least=0.1):
        pass
    assert await members(redis) == (0, 1)


async def test_the_last_token_is_kept_for_its_whole_retention(locks: LockClient, redis: Redis) -> None:
    ends = "local now = redis.call('TIME') return now[1] * 1000 + now[2] / 1000 + redis.call('PTTL', KEYS[1])"
    for _ in range(50):
        async with locks.lock(NAME) as lease:
            kept_until = await cast(Awaitable[int], redis.eval(ends, 1, KEYS.tokens))
        assert kept_until >= lease.token // 1000 + 3_600_000


class Silent:
    """A backend that answers nothing by itself."""

    def submit(self, call: Call[Any]) -> None: ...


def granted(claim: Claim, token: int) -> Hold:
    """A hold whose grant has just been answered."""
    hold = Hold(claim, token, keeper=None)  # type: ignore[arg-type]
    hold.confirmed_at = hold.since
    return hold


def test_a_client_sends_one_clean_release_of_a_name_at_a_time() -> None:
    commands = Commands("unique", Silent(), Timing.of(LockConfig()))  # type: ignore[arg-type]
    claims = [commands.claim(Want(KEYS, scripts), owner) for scripts, owner in ((LOCK, "a"), (FAIR, "b"), (LOCK, "c"))]
    elsewhere = commands.claim(Want(LockKeys.of("another", ""), LOCK), "d")
    first = commands.release_clean(granted(claims[0], 1), 0.0)
    assert first is not None
    assert commands.release_clean(granted(claims[1], 2), 0.0) is None
    assert commands.release_clean(granted(elsewhere, 3), 0.0) is not None
    first.end(Applied())
    assert commands.release_clean(granted(claims[2], 4), 0.0) is not None
