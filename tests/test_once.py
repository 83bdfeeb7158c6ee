"""`LockClient.once`: a body runs once per key in the fleet, and later callers get its result."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig, OnceFailedError, Turn
from aiolock._keys import LockKeys
from aiolock._scripts import ONCE, RELEASE_LATER
from aiolock.testing import delayed_renewals
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.observe import all_parked, answered, until
from tests.support.proxy import Proxy, Rule, drop_reply, script

KEY, KEEP = "invoice:42", 3600.0
REDIS_KEY = "aiolock_once:{invoice:42}"
WAITERS = 20


class Report:
    """A body that counts its runs, and ends when it may."""

    def __init__(self, result: str | bytes | None = "report 7", error: BaseException | None = None) -> None:
        self.runs = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self._result = result
        self._error = error

    async def __call__(self) -> str | bytes | None:
        self.runs += 1
        self.begun.set()
        await self.may_end.wait()
        if self._error is not None:
            raise self._error
        return self._result


@pytest.fixture
def report() -> Report:
    return Report()


def at_once(report: Report) -> Report:
    report.may_end.set()
    return report


async def test_a_lock_of_the_same_name_keeps_nobody_from_running_it(locks: LockClient, other: LockClient) -> None:
    """A plain lock was refused while a fair one was held; then the line of the fair ones goes first."""
    async with locks.fair_lock(KEY).hold():
        waiting = asyncio.create_task(other.fair_lock(KEY, owner="next").acquire())
        await until(lambda: other.statistics().parked == 1)
        assert await locks.lock(KEY, owner="another").try_lock() is None
        assert await locks.once(KEY, keep=KEEP, wait=0).run(at_once(Report())) == "report 7"
    await (await waiting).release()


@pytest.mark.parametrize("result", ["report 7", "", "\N{SNOWMAN}", b"\xff\x00", b"", None, "x" * 65_536])
async def test_it_runs_once_and_all_get_its_result(
    locks: LockClient, other: LockClient, result: str | bytes | None
) -> None:
    report = at_once(Report(result))
    got = [await client.once(KEY, keep=KEEP).run(report) for client in (locks, locks, other)]
    assert (got, report.runs) == ([result] * 3, 1)


async def test_callers_during_the_run_wait_and_all_are_told_at_once(
    locks: LockClient, other: LockClient, report: Report
) -> None:
    runner = asyncio.create_task(locks.once(KEY, keep=KEEP).run(report))
    await report.begun.wait()
    once = other.once(KEY, keep=KEEP)
    waiting = [asyncio.create_task(once.run(report)) for _ in range(WAITERS)]
    await all_parked(other, WAITERS)
    before = other.statistics()
    report.may_end.set()
    assert set(await asyncio.gather(runner, *waiting)) == {"report 7"}
    assert report.runs == 1
    # Each waiter has asked once more, and they asked together.
    assert other.statistics().commands - before.commands <= WAITERS + 1
    assert other.statistics().batches - before.batches <= 3


async def test_a_turn_is_done_when_its_body_has_run_to_its_end(locks: LockClient) -> None:
    once = locks.once(KEY, keep=KEEP)
    with pytest.raises(ZeroDivisionError):
        async with once as failed:
            raise ZeroDivisionError
    async with once as turn:
        assert (turn.done, repr(turn)) == (False, "<Turn to be run>")
    assert [(bool(each), each.done, repr(each)) for each in (failed, turn)] == [
        (True, False, "<Turn to be run>"),
        (True, True, "<Turn done>"),
    ]


async def test_a_caller_that_need_not_wait_skips_it(locks: LockClient, other: LockClient, report: Report) -> None:
    runner = asyncio.create_task(locks.once(KEY, keep=KEEP).run(report))
    await report.begun.wait()
    async with other.once(KEY, keep=KEEP, wait=0) as turn:
        assert (bool(turn), turn.done, turn.result, turn.lease) == (False, False, None, None)
    assert await other.once(KEY, keep=KEEP, wait=0.01).run(report) is None
    report.may_end.set()
    await runner
    async with other.once(KEY, keep=KEEP, wait=0) as turn:
        assert (bool(turn), turn.done, turn.result) == (False, True, "report 7")


async def test_a_block_sets_the_result(locks: LockClient, other: LockClient) -> None:
    async with locks.once(KEY, keep=KEEP) as turn:
        assert turn
        assert turn.lease is not None
        assert turn.lease.token > 0
        turn.result = b"done"
    async with other.once(KEY, keep=KEEP) as late:
        assert not late
        assert late.result == b"done"


async def test_only_the_caller_that_runs_the_body_sets_the_result(locks: LockClient, other: LockClient) -> None:
    async with locks.once(KEY, keep=KEEP) as turn:
        turn.result = "done"
    async with other.once(KEY, keep=KEEP) as late:
        with pytest.raises(RuntimeError, match="`if turn:`"):
            late.result = "done again"
        assert late.result == "done"


async def test_the_body_may_have_an_argument_of_any_name(locks: LockClient) -> None:
    async def body(function: str) -> str:
        return function

    assert await locks.once(KEY, keep=KEEP).run(body, function="x") == "x"


async def test_it_runs_again_when_its_outcome_is_forgotten(locks: LockClient, report: Report) -> None:
    at_once(report)
    await locks.once(KEY, keep=0.05).run(report)
    once = locks.once(KEY, keep=0.05)
    # The server's clock says when `keep` is over.
    while report.runs == 1:
        await once.run(report)


async def test_a_failure_lets_the_next_run_it(locks: LockClient, other: LockClient, report: Report) -> None:
    failing = Report(error=ZeroDivisionError())
    first = asyncio.create_task(locks.once(KEY, keep=KEEP).run(failing))
    await failing.begun.wait()
    second = asyncio.create_task(other.once(KEY, keep=KEEP).run(at_once(report)))
    await until(lambda: other.statistics().parked == 1)
    failing.may_end.set()
    with pytest.raises(ZeroDivisionError):
        await first
    assert await second == "report 7"


async def test_a_failure_that_is_remembered_is_raised_and_not_tried_again(
    locks: LockClient, other: LockClient, report: Report
) -> None:
    failing = at_once(Report(error=ZeroDivisionError("by zero")))
    with pytest.raises(ZeroDivisionError):
        await locks.once(KEY, keep=KEEP, failures="remember").run(failing)
    with pytest.raises(OnceFailedError) as told:
        await other.once(KEY, keep=KEEP).run(report)
    assert (told.value.name, told.value.failure, report.runs) == (KEY, "ZeroDivisionError: by zero", 0)
    async with other.once(KEY, keep=KEEP) as turn:
        assert (bool(turn), turn.done, turn.failure) == (False, True, "ZeroDivisionError: by zero")


class SpeechlessError(Exception):
    """An exception that cannot make its text."""

    def __str__(self) -> str:
        raise AttributeError("the session that the text needs is closed")


async def test_a_failure_whose_text_cannot_be_made_is_raised_and_remembered(
    locks: LockClient, other: LockClient, report: Report
) -> None:
    with pytest.raises(SpeechlessError):
        await locks.once(KEY, keep=KEEP, failures="remember").run(at_once(Report(error=SpeechlessError())))
    with pytest.raises(OnceFailedError, match="SpeechlessError: an error without a text"):
        await other.once(KEY, keep=KEEP).run(report)


@pytest.mark.parametrize("failures", ["release", "remember"])
async def test_a_body_that_is_cancelled(locks: LockClient, other: LockClient, report: Report, failures: str) -> None:
    task = asyncio.create_task(locks.once(KEY, keep=KEEP, failures=failures).run(report))  # type: ignore[arg-type]
    await report.begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    later = at_once(Report("another"))
    if failures == "release":
        assert await other.once(KEY, keep=KEEP).run(later) == "another"
    else:
        with pytest.raises(OnceFailedError, match="CancelledError"):
            await other.once(KEY, keep=KEEP).run(later)


async def test_a_remembered_body_is_not_run_again_though_the_process_died(locks: LockClient, redis: Redis) -> None:
    """The lease is as long as `keep`: nothing else is left of a process that died."""
    async with locks.once(KEY, keep=KEEP, failures="remember"):
        assert await redis.pttl(REDIS_KEY) > (KEEP - 60) * 1000
    async with locks.once("another", keep=KEEP):
        assert await redis.pttl("aiolock_once:{another}") <= 30_000


async def test_a_runner_that_lost_the_lock_overwrites_no_outcome(
    redis: Redis, other: LockClient, report: Report
) -> None:
    async with LockClient(redis, config=LockConfig(lease=0.5)) as short:
        with delayed_renewals(short):
            late = Report("too late")
            paused = asyncio.create_task(short.once(KEY, keep=KEEP).run(late))
            await late.begun.wait()
            assert await other.once(KEY, keep=KEEP).run(at_once(report)) == "report 7"
            with pytest.raises(LeaseLostError):
                await paused
        await answered(short)
        assert await short.once(KEY, keep=KEEP).run(report) == "report 7"


async def test_a_lock_that_the_server_forgot_remembers_nothing(locks: LockClient, redis: Redis, report: Report) -> None:
    """Nor does the server know whether somebody was granted the lock since."""
    with pytest.raises(LeaseLostError):
        async with locks.once(KEY, keep=KEEP) as turn:
            assert turn
            await redis.flushall()
            turn.result = "too late"
    assert await locks.once(KEY, keep=KEEP).run(at_once(report)) == "report 7"


async def test_a_server_that_forgot_everything_has_it_run_again(
    locks: LockClient, redis: Redis, report: Report
) -> None:
    once = locks.once(KEY, keep=KEEP)
    await once.run(at_once(report))
    await redis.flushall()
    await once.run(report)
    assert report.runs == 2


async def test_a_lost_reply_changes_nothing(proxy: Proxy, through: Redis, other: LockClient, report: Report) -> None:
    async with LockClient(through) as client:
        for each in (ONCE.acquire, RELEASE_LATER):
            proxy.install(Rule(script(each), drop_reply()))
        assert await client.once(KEY, keep=KEEP).run(at_once(report)) == "report 7"
        proxy.install(Rule(script(ONCE.acquire), drop_reply()))
        assert await client.once(KEY, keep=KEEP).run(report) == "report 7"
        await answered(client)
    assert await other.once(KEY, keep=KEEP).run(report) == "report 7"
    assert report.runs == 1


async def test_an_outcome_that_comes_after_the_lease_is_stored_if_nobody_was_granted_the_lock(
    locks: LockClient, other: LockClient, redis: Redis, report: Report
) -> None:
    """The server may have stood still from before the end of the body until the lease was over."""
    async with locks.once(KEY, keep=KEEP) as turn:
        await redis.delete(REDIS_KEY)
        turn.result = "first"
    assert 0 < await redis.pttl(REDIS_KEY) <= KEEP * 1000
    assert await other.once(KEY, keep=KEEP).run(report) == "first"
    assert report.runs == 0


async def test_an_outcome_that_comes_after_the_lease_is_dropped_if_somebody_was_granted_the_lock(
    locks: LockClient, other: LockClient, redis: Redis, report: Report
) -> None:
    """The outcome is dropped also if the body of that grant has failed, and the key is free again."""
    with pytest.raises(LeaseLostError):
        async with locks.once(KEY, keep=KEEP):
            await redis.delete(REDIS_KEY)
            with pytest.raises(ZeroDivisionError):
                await other.once(KEY, keep=KEEP).run(at_once(Report(error=ZeroDivisionError())))
    assert not await redis.exists(REDIS_KEY)
    assert await other.once(KEY, keep=KEEP).run(at_once(report)) == "report 7"


async def test_a_lock_may_have_the_same_name(locks: LockClient, other: LockClient, redis: Redis) -> None:
    async with other.lock(KEY):
        assert await locks.once(KEY, keep=KEEP).run(at_once(Report())) == "report 7"
    assert {key for key in await redis.keys() if b"client" not in key} == {
        REDIS_KEY.encode(),
        b"aiolock_token:{invoice:42}",
        b"aiolock_once_token:{invoice:42}",
    }


async def test_a_task_that_would_wait_for_itself_is_told(locks: LockClient) -> None:
    once = locks.once(KEY, keep=KEEP)
    with pytest.raises(RuntimeError, match="would wait for itself"):
        await once.run(lambda: once.run(at_once(Report())))


async def test_blocks_of_one_handle_are_each_left_by_their_own(locks: LockClient) -> None:
    once = locks.once(KEY, keep=KEEP)
    with pytest.raises(RuntimeError, match="not entered"):
        await once.__aexit__(None, None, None)

    async def use() -> bool:
        async with once as turn:
            await asyncio.sleep(0)
            return bool(turn)

    assert sorted(await asyncio.gather(*(use() for _ in range(5)))) == [False] * 4 + [True]


@pytest.mark.parametrize(("result", "error"), [(7, TypeError), ({}, TypeError), ("x" * 65_537, ValueError)])
async def test_a_result_that_cannot_be_remembered_is_a_failure(
    locks: LockClient, result: object, error: type[Exception], report: Report
) -> None:
    async def bad() -> str:
        return result  # type: ignore[return-value]

    with pytest.raises(error, match="a result must be"):
        await locks.once(KEY, keep=KEEP).run(bad)
    assert await locks.once(KEY, keep=KEEP).run(at_once(report)) == "report 7"


async def test_a_function_that_returns_nothing_to_await_is_named(locks: LockClient) -> None:
    def body() -> str:
        return "done"

    with pytest.raises(TypeError, match=r"body at .* must be a coroutine function .* returned 'done'"):
        await locks.once(KEY, keep=KEEP).run(body)  # type: ignore[arg-type]


def test_impossible_settings_are_refused_at_once(locks: LockClient) -> None:
    makes: list[tuple[type[Exception], Callable[[], object]]] = [
        (TypeError, lambda: locks.once(7, keep=1)),  # type: ignore[arg-type]
        (ValueError, lambda: locks.once("", keep=1)),
        (ValueError, lambda: locks.once("aiolock_once:a", keep=1)),
        (ValueError, lambda: locks.once("a", keep=0)),
        (ValueError, lambda: locks.once("a", keep=1, wait=-1)),
        (ValueError, lambda: locks.once("a", keep=1, failures="retry")),  # type: ignore[arg-type]
    ]
    for error, make in makes:
        with pytest.raises(error):
            make()
    assert repr(locks.once("a", keep=1)) == "<AsyncOnce 'a'>"
    assert [repr(Turn(None, each)) for each in (None, b"n", b"fbad")] == [
        "<Turn skipped>",
        "<Turn done>",
        "<Turn failed>",
    ]


@pytest.mark.parametrize("mode", MODES)
async def test_cancelled_anywhere_it_is_done_or_runs_again(mode: Mode, locks: LockClient, redis: Redis) -> None:
    """Nothing is held then, and the server remembers what was done."""
    done: list[bool] = []

    async def body() -> str:
        await asyncio.sleep(0)
        done.append(True)
        return "mine"

    async def setup() -> None:
        done.clear()
        await redis.delete(REDIS_KEY)

    async def run(_: None) -> object:
        return await locks.once(KEY, keep=KEEP).run(body)

    async def verify(_: None, outcome: Outcome[object]) -> None:
        await answered(locks)
        assert (locks.statistics().held, outcome.swallowed) == (0, 0)
        assert await locks.once(KEY, keep=KEEP, wait=0).run(at_once(Report("again"))) == ("mine" if done else "again")

    assert await every_suspension(mode, setup, run, verify) > 1


# Slots.


async def test_all_clients_agree_on_the_slot_though_their_clocks_differ(
    locks: LockClient, other: LockClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time()
    slots = []
    for client, error in ((locks, 0.0), (other, 86_400.0)):
        monkeypatch.setattr(time, "time", lambda error=error: real + error)
        monkeypatch.setattr(time, "time_ns", lambda error=error: int((real + error) * 1e9))
        slots.append(await client.slot("nightly", every=3600))
    first, second = slots
    seconds, _ = await redis.time()
    # The hour may have ended between the two.
    assert second.number - first.number in {0, 1}
    assert seconds // 3600 - first.number in {0, 1}
    assert first.name == f"nightly:{first.number}"
    assert 0 <= first.remaining <= 3600
    assert not await redis.keys()


async def test_a_slot_is_over_when_its_remaining_time_is(locks: LockClient) -> None:
    slot = await locks.slot("often", every=0.02)
    while slot.remaining:
        # Timers may ring a little early.
        await asyncio.sleep(slot.remaining)
    assert (await locks.slot("often", every=0.02)).number > slot.number


async def test_a_job_once_per_slot_is_three_lines(locks: LockClient, other: LockClient) -> None:
    ran: list[str] = []

    async def work(locks: LockClient, job: Callable[[str], Awaitable[None]]) -> None:
        while len(ran) < 5:
            slot = await locks.slot("often", every=0.1)
            await locks.once(slot.name, keep=60, wait=0).run(job, slot.name)
            await asyncio.sleep(slot.remaining)

    async def job(slot: str) -> None:
        ran.append(slot)

    await asyncio.gather(*(work(client, job) for client in (locks, other)))
    assert len(set(ran)) == len(ran)


@pytest.mark.parametrize("every", [0, -1, float("nan"), 0.0001])
async def test_no_slot_is_as_short(locks: LockClient, every: float) -> None:
    with pytest.raises(ValueError, match="every"):
        await locks.slot("a", every=every)


def test_its_keys_are_in_one_slot_of_a_cluster() -> None:
    for name, tag in (("a", "{a}"), ("a{b}c", "a{b}c")):
        keys = LockKeys.of_once(name, "")
        assert {key.endswith(tag) for key in (*keys.all, keys.channel)} == {True}
