"""The result of a body that runs once: it may say how long it is kept, and some callers get an old one."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis

import aiolock._primitives.once
from aiolock import LeaseLostError, LockClient, LockConfig
from aiolock._keys import LockKeys, old_key
from aiolock._primitives.once import Failures
from aiolock._scripts import OLD, ONCE, RELEASE_LATER
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, drop_reply, hold, script

KEY, KEEP, STALE = "oauth:partner", 3600.0, 600.0
REDIS_KEY = "aiolock_once:{oauth:partner}"
OLD_KEY = old_key(LockKeys.of_once(KEY, ""))


class Refresh:
    """A body: its results are numbered, and it may be made to wait, or to fail."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.runs += 1
        number = self.runs
        self.begun.set()
        await self.may_end.wait()
        if self.error is not None:
            raise self.error
        return f"token {number}"


@pytest.fixture
def refresh() -> Refresh:
    return Refresh()


# Kept for as long as the result says.


async def issue() -> str:
    return json.dumps({"secret": "s", "expires_in": 3600})


async def test_a_result_says_for_how_long_it_is_kept(locks: LockClient, other: LockClient, redis: Redis) -> None:
    def keep(token: str) -> int:
        return int(json.loads(token)["expires_in"]) - 30

    token = await locks.once(KEY, keep=keep).run(issue)
    assert 3500 < await redis.pttl(REDIS_KEY) / 1000 <= 3570
    assert await other.once(KEY, keep=keep).run(issue) == token


async def test_it_is_asked_once_with_the_result_of_a_run_and_of_a_block(locks: LockClient, refresh: Refresh) -> None:
    asked: list[object] = []

    def keep(result: object) -> timedelta:
        asked.append(result)
        return timedelta(hours=1)

    once = locks.once(KEY, keep=keep)
    await asyncio.gather(*(once.run(refresh) for _ in range(3)))
    async with locks.once("block", keep=keep) as turn:
        turn.result = b"no"
        turn.result = b"done"
    async with locks.once("none", keep=keep):
        pass
    assert asked == ["token 1", b"done", None]


@pytest.mark.parametrize("keep", [0, -10, timedelta(seconds=-1), 0.0001, float("-inf")])
async def test_a_result_that_is_over_already_is_returned_and_not_kept(
    locks: LockClient, other: LockClient, redis: Redis, refresh: Refresh, keep: Any
) -> None:
    refresh.may_end.clear()
    first = asyncio.create_task(locks.once(KEY, keep=lambda _: keep).run(refresh))
    await refresh.begun.wait()
    second = asyncio.create_task(other.once(KEY, keep=lambda _: keep).run(refresh))
    await until(lambda: other.statistics().parked == 1)
    refresh.may_end.set()
    assert [await first, await second] == ["token 1", "token 2"]
    assert not await redis.exists(REDIS_KEY)


def fails(_: object) -> float:
    raise ZeroDivisionError


async def later() -> float:
    return 7.0


@pytest.mark.parametrize(
    ("keep", "error"),
    [
        (fails, ZeroDivisionError),
        (lambda _: "7", TypeError),
        (lambda _: True, TypeError),
        (lambda _: False, TypeError),
        (lambda _: None, TypeError),
        (lambda _: later(), TypeError),
        (lambda _: float("nan"), ValueError),
        (lambda _: float("inf"), ValueError),
    ],
)
async def test_an_invalid_keep_is_a_failure_and_the_next_one_runs_it(
    locks: LockClient, other: LockClient, refresh: Refresh, keep: Callable[[object], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await locks.once(KEY, keep=keep).run(refresh)
    with pytest.raises(error):
        async with locks.once(KEY, keep=keep) as turn:
            pass
    assert not turn.done
    assert locks.statistics().held == 0
    assert await other.once(KEY, keep=KEEP).run(refresh) == "token 2"


async def test_the_error_names_the_function_and_the_key(locks: LockClient, refresh: Refresh) -> None:
    with pytest.raises(
        TypeError, match=r"the result of <function .*>, which is the keep of once 'oauth:partner', must"
    ):
        await locks.once(KEY, keep=lambda _: None).run(refresh)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"keep": later}, TypeError),
        ({"keep": fails, "failures": "remember"}, ValueError),
        ({"keep": 1, "failures": "remember", "stale": 1}, ValueError),
        ({"keep": 1, "stale": 0}, ValueError),
        ({"keep": 1, "stale": fails}, TypeError),
        ({"keep": 1, "on_unavailable": "skip"}, ValueError),
    ],
)
async def test_impossible_settings_are_refused_at_once(
    locks: LockClient, settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        locks.once(KEY, **settings)


# Old results.


async def ran(locks: LockClient, refresh: Refresh, redis: Redis) -> None:
    """Run the body, and make its result old."""
    assert await locks.once(KEY, keep=KEEP, stale=STALE).run(refresh) == f"token {refresh.runs}"
    await redis.delete(REDIS_KEY)


@pytest.mark.parametrize("wait", [None, 0, 5])
async def test_one_refreshes_and_all_others_get_the_old_result_at_once(
    locks: LockClient, other: LockClient, redis: Redis, refresh: Refresh, wait: float | None
) -> None:
    await ran(locks, refresh, redis)
    refresh.may_end.clear()
    refresh.begun.clear()
    refreshing = asyncio.create_task(locks.once(KEY, keep=KEEP, stale=STALE, wait=wait).run(refresh))
    await refresh.begun.wait()
    for client in (locks, other):
        once = client.once(KEY, keep=KEEP, stale=STALE, wait=wait)
        assert await asyncio.gather(*(once.run(refresh) for _ in range(10))) == ["token 1"] * 10
        async with once as turn:
            assert (bool(turn), turn.done, turn.stale, turn.result) == (False, True, True, "token 1")
        assert client.statistics().parked == 0
    refresh.may_end.set()
    assert await refreshing == "token 2"
    async with other.once(KEY, keep=KEEP, stale=STALE) as turn:
        assert (turn.done, turn.stale, turn.result) == (True, False, "token 2")
    assert refresh.runs == 2


async def test_without_an_old_result_callers_wait(locks: LockClient, other: LockClient, refresh: Refresh) -> None:
    refresh.may_end.clear()
    runner = asyncio.create_task(locks.once(KEY, keep=KEEP, stale=STALE).run(refresh))
    await refresh.begun.wait()
    onces = [other.once(KEY, keep=KEEP, stale=STALE, wait=wait) for wait in (None, 60)]
    waiting = asyncio.gather(*(once.run(refresh) for once in onces))
    await until(lambda: other.statistics().parked == 2)
    assert await other.once(KEY, keep=KEEP, stale=STALE, wait=0).run(refresh) is None
    refresh.may_end.set()
    assert [await runner, *await waiting] == ["token 1"] * 3


async def test_an_old_result_has_an_end(locks: LockClient, other: LockClient, redis: Redis, refresh: Refresh) -> None:
    await ran(locks, refresh, redis)
    assert KEEP < await redis.pttl(OLD_KEY) / 1000 <= KEEP + STALE
    await redis.delete(OLD_KEY)
    refresh.may_end.clear()
    refresh.begun.clear()
    refreshing = asyncio.create_task(locks.once(KEY, keep=KEEP, stale=STALE).run(refresh))
    await refresh.begun.wait()
    async with other.once(KEY, keep=KEEP, stale=STALE, wait=0) as turn:
        assert (bool(turn), turn.done) == (False, False)
    refresh.may_end.set()
    await refreshing


async def test_a_result_that_is_over_when_its_lock_is_released_takes_the_place_of_the_old_one(
    locks: LockClient, other: LockClient, redis: Redis, refresh: Refresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was paused between the two for longer than the result is fresh."""

    async def is_forgotten() -> bool:
        return not await redis.exists(REDIS_KEY)

    await ran(locks, refresh, redis)
    with monkeypatch.context() as paused:
        paused.setattr(aiolock._primitives.once, "monotonic", lambda: monotonic() - KEEP - 1)
        assert await locks.once(KEY, keep=KEEP, stale=STALE).run(refresh) == "token 2"
    await until(is_forgotten)
    refresh.may_end.clear()
    refresh.begun.clear()
    refreshing = asyncio.create_task(locks.once(KEY, keep=KEEP, stale=STALE).run(refresh))
    await refresh.begun.wait()
    assert await other.once(KEY, keep=KEEP, stale=STALE).run(refresh) == "token 2"
    refresh.may_end.set()
    await refreshing


async def test_a_caller_without_stale_waits_and_leaves_no_old_result(
    locks: LockClient, other: LockClient, redis: Redis, refresh: Refresh
) -> None:
    assert await locks.once(KEY, keep=KEEP).run(refresh) == "token 1"
    assert not await redis.exists(OLD_KEY)
    await redis.delete(REDIS_KEY)
    await ran(locks, refresh, redis)
    refresh.may_end.clear()
    refresh.begun.clear()
    refreshing = asyncio.create_task(locks.once(KEY, keep=KEEP, stale=STALE).run(refresh))
    await refresh.begun.wait()
    waiting = asyncio.create_task(other.once(KEY, keep=KEEP).run(refresh))
    await until(lambda: other.statistics().parked == 1)
    refresh.may_end.set()
    assert [await refreshing, await waiting] == ["token 3"] * 2


async def test_after_a_failure_the_next_one_refreshes_and_others_still_get_the_old_result(
    locks: LockClient, other: LockClient, redis: Redis, refresh: Refresh
) -> None:
    await ran(locks, refresh, redis)
    refresh.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await locks.once(KEY, keep=KEEP, stale=STALE).run(refresh)
    refresh.error = None
    refresh.may_end.clear()
    refresh.begun.clear()
    refreshing = asyncio.create_task(other.once(KEY, keep=KEEP, stale=STALE).run(refresh))
    await refresh.begun.wait()
    assert await locks.once(KEY, keep=KEEP, stale=STALE).run(refresh) == "token 1"
    refresh.may_end.set()
    assert await refreshing == "token 3"


async def test_lost_replies_change_nothing(
    proxy: Proxy, through: Redis, other: LockClient, redis: Redis, refresh: Refresh
) -> None:
    async with LockClient(through) as client:
        proxy.install(Rule(script(RELEASE_LATER), drop_reply()))
        await ran(client, refresh, redis)
        async with other.once(KEY, keep=KEEP, stale=STALE):
            for each in (ONCE.acquire, OLD):
                proxy.install(Rule(script(each), drop_reply()))
            assert await client.once(KEY, keep=KEEP, stale=STALE).run(refresh) == "token 1"
        await answered(client)
    assert refresh.runs == 1


async def test_a_late_release_replaces_no_result(
    proxy: Proxy, through: Redis, other: LockClient, redis: Redis, refresh: Refresh
) -> None:
    async with LockClient(through) as client:
        late = proxy.install(Rule(script(RELEASE_LATER), hold()))
        await client.once(KEY, keep=KEEP, stale=STALE).run(refresh)
        await redis.delete(REDIS_KEY)
        await other.once(KEY, keep=KEEP, stale=STALE).run(refresh)
        await redis.delete(REDIS_KEY)
        await late.deliver()
    assert await redis.hget(OLD_KEY, "aiolock:outcome") == b"stoken 2"
    assert not await redis.exists(REDIS_KEY)


async def test_a_task_that_would_wait_for_itself_is_told_though_there_is_an_old_result(
    locks: LockClient, redis: Redis, refresh: Refresh
) -> None:
    await ran(locks, refresh, redis)
    once = locks.once(KEY, keep=KEEP, stale=STALE)
    with pytest.raises(RuntimeError, match="would wait for itself"):
        await once.run(lambda: once.run(refresh))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("held", [False, True])
async def test_cancelled_anywhere_it_leaves_the_old_result_or_a_new_one(
    mode: Mode, held: bool, locks: LockClient, other: LockClient, redis: Redis
) -> None:
    refresh = Refresh()
    once = locks.once(KEY, keep=KEEP, stale=STALE)
    elsewhere = other.once(KEY, keep=KEEP, stale=STALE)

    async def setup() -> None:
        refresh.runs = 0
        await redis.delete(REDIS_KEY)
        await ran(other, refresh, redis)
        if held:
            await elsewhere.__aenter__()

    async def run(_: None) -> object:
        return await once.run(refresh)

    async def verify(_: None, outcome: Outcome[object]) -> None:
        await answered(locks)
        assert (locks.statistics().held, locks.statistics().parked, outcome.swallowed) == (0, 0, 0)
        if held:
            await elsewhere.__aexit__(ZeroDivisionError, ZeroDivisionError(), None)
            assert refresh.runs == 1
        there = {await redis.hget(key, "aiolock:outcome") for key in (REDIS_KEY, OLD_KEY)} - {None}
        assert there <= {b"stoken 1", b"stoken 2"}
        assert await redis.hget(OLD_KEY, "aiolock:outcome") is not None

    assert await every_suspension(mode, setup, run, verify) > 1


async def test_after_a_loss_that_nothing_has_noticed_no_outcome_is_stored(locks: LockClient, redis: Redis) -> None:
    """The body has blocked the loop beyond the deadline; the lease has not ended on the server."""

    async def body() -> str:
        time.sleep(0.75)
        return "partial"

    async with LockClient(redis, config=LockConfig(lease=0.8, max_hold=0.8, drift=0.2)) as client:
        with pytest.raises(LeaseLostError):
            await client.once(KEY, keep=KEEP).run(body)
    assert await locks.once(KEY, keep=KEEP).run(answered_now) == "second"


@pytest.mark.parametrize("failures", ["release", "remember"])
@pytest.mark.parametrize("swallows", [True, False])
async def test_after_a_loss_by_the_clock_no_outcome_is_stored(
    locks: LockClient, redis: Redis, failures: Failures, swallows: bool
) -> None:
    """The release comes while the key is still there: after the deadline, and before the end of the lease."""

    async def body() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if not swallows:
                raise
        return "partial"

    async with LockClient(redis, config=LockConfig(lease=0.8, max_hold=1.0, drift=0.2)) as client:
        with pytest.raises(LeaseLostError):
            await client.once(KEY, keep=0.8 if failures == "remember" else KEEP, failures=failures).run(body)
    assert await locks.once(KEY, keep=KEEP).run(answered_now) == "second"


async def answered_now() -> str:
    return "second"
