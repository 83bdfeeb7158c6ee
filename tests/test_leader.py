"""`LockClient.leader`: one leader at a time, whose work has ended before another one leads."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from functools import partial
from time import monotonic
from typing import Any
from weakref import ref

import anyio
import pytest
from redis.asyncio import Redis

from aiolock import AsyncLeader, BackendError, LeaseLostError, LockClient, LockConfig, NotHeldError, Term, background
from aiolock._config import Timing
from aiolock._embedded_server import Server
from aiolock._helpers import background as works
from aiolock._primitives import term as module
from aiolock._scripts import RELEASE, RELEASE_CLEAN
from aiolock.testing import delayed_renewals, lose
from tests.support.cancellation import MODES, Mode, Outcome, every_suspension
from tests.support.faults import script
from tests.support.holding import client_behind
from tests.support.inside import hold_of
from tests.support.observe import answered, until
from tests.support.proxy import Proxy, Rule, withhold_reply

NAME = "scheduler"
SOON = 30.0


class Office:
    """The acts of leaders, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.fail = asyncio.Event()

    async def work(self, who: str, swallowed: int = 0) -> None:
        """Work until it is cancelled once more than it swallows, or until it fails."""
        self.events.append(f"{who} begins")
        try:
            while True:
                try:
                    await self.fail.wait()
                    raise ZeroDivisionError(who)
                except asyncio.CancelledError:
                    swallowed -= 1
                    if swallowed < 0:
                        raise
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            self.events.append(f"{who} ends")

    async def lead(self, leader: AsyncLeader, who: str, swallowed: int = 0) -> None:
        async for term in leader:
            await term.run(self.work(who, swallowed))

    async def saw(self, *events: str) -> None:
        await until(lambda: self.events[: len(events)] == list(events), SOON)


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
async def short(redis: Redis) -> AsyncIterator[LockClient]:
    """A client that loses its locks soon when it does not renew them."""
    async with LockClient(redis, config=LockConfig(lease=1)) as client:
        yield client


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cancelled twice."""
    monkeypatch.setattr(works, "_TO_CLEAN_UP", 3600)
    monkeypatch.setattr(module, "_CANCELLATIONS", 1e-4)


async def ended(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_block_leads_and_hands_over_when_it_ends(locks: LockClient, other: LockClient) -> None:
    async with locks.leader(NAME) as term:
        assert (term.name, term.lost.is_set()) == (NAME, False)
        term.check()
        waiting = asyncio.create_task(_one_term(other.leader(NAME)))
        await until(lambda: other.statistics().parked == 1)
        left = monotonic()
    assert await waiting > term.token
    assert monotonic() - left < 15
    with pytest.raises(NotHeldError):
        term.check()
    assert not await locks.lock(NAME).locked()


async def _one_term(leader: AsyncLeader) -> int:
    async with leader as term:
        return term.token


async def test_started_work_has_ended_before_the_lock_is_given_back(
    locks: LockClient, office: Office, patient: None
) -> None:
    async with locks.leader(NAME) as term:
        first, second = term.start(office.work("first")), term.start(office.work("second"))
        await until(lambda: len(office.events) == 2)
        assert term.lease.holds == 1
    assert office.events[2:] == ["first ends", "second ends"]
    assert first.cancelled()
    assert second.cancelled()
    assert not await locks.lock(NAME).locked()


async def test_work_that_swallows_cancellations_does_not_keep_the_lead(
    locks: LockClient, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "_TO_CLEAN_UP", 0.01)
    async with locks.leader(NAME) as term:
        _ = term.start(office.work("it", swallowed=5))
        await office.saw("it begins")
    assert office.events == ["it begins", "it ends"]


async def test_work_that_returns_does_not_end_the_term(locks: LockClient) -> None:
    async def count() -> int:
        return 7

    async with locks.leader(NAME) as term:
        assert await term.start(count()) == 7
        term.check()


async def test_work_that_fails_ends_the_term_and_is_raised(locks: LockClient, office: Office) -> None:
    async def lead() -> None:
        async with locks.leader(NAME) as term:
            _ = term.start(office.work("failing")), term.start(office.work("other"))
            await until(lambda: len(office.events) == 2)
            office.fail.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(lead())
    with pytest.raises(ZeroDivisionError, match="failing"):
        await task
    assert office.events[2:] == ["failing ends", "other ends"]
    assert not await locks.lock(NAME).locked()


async def test_work_that_fails_as_it_is_stopped_breaks_into_no_cleanup(locks: LockClient) -> None:
    ended: list[str] = []

    async def work(cleanup: float, error: Exception | None) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(cleanup)
            if error is not None:
                raise error
            ended.append("cleaned up")

    with pytest.raises(KeyError):
        async with locks.leader(NAME) as term:
            _ = term.start(work(0, KeyError())), term.start(work(0.05, None))
            await asyncio.sleep(0)
    assert ended == ["cleaned up"]


async def test_of_several_failures_the_first_one_is_raised(locks: LockClient) -> None:
    """The work that began first fails because it is stopped."""

    async def stopped() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError

    async def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with locks.leader(NAME) as term:
            _ = term.start(stopped()), term.start(failing())
            await asyncio.Event().wait()


async def test_the_exception_of_the_block_comes_first(locks: LockClient, office: Office) -> None:
    with pytest.raises(KeyError):
        async with locks.leader(NAME) as term:
            _ = term.start(office.work("failing"))
            await office.saw("failing begins")
            office.fail.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise KeyError
    assert not await locks.lock(NAME).locked()


async def test_the_exception_of_the_block_comes_before_that_of_work_which_fails_as_it_is_stopped(
    locks: LockClient,
) -> None:
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    with pytest.raises(KeyError):
        async with locks.leader(NAME) as term:
            _ = term.start(work())
            await asyncio.sleep(0)
            raise KeyError
    assert not await locks.lock(NAME).locked()


async def test_a_time_limit_of_the_users_own_stays_one(locks: LockClient, office: Office) -> None:
    with pytest.raises(TimeoutError):
        async with locks.leader(NAME) as term:
            _ = term.start(office.work("it"))
            async with asyncio.timeout(0.01):
                await asyncio.sleep(SOON)
    assert not await locks.lock(NAME).locked()


@pytest.mark.parametrize("swallowed", [0, 3])
async def test_a_leader_that_cannot_renew_has_stopped_before_another_leads(
    short: LockClient, other: LockClient, office: Office, swallowed: int
) -> None:
    first = asyncio.create_task(office.lead(short.leader(NAME), "first", swallowed))
    await office.saw("first begins")
    second = asyncio.create_task(office.lead(other.leader(NAME), "second"))
    await until(lambda: other.statistics().parked == 1)
    with delayed_renewals(short):
        await office.saw("first begins", "first ends", "second begins")
    await ended(first, second)


async def test_a_term_that_is_lost_before_its_work_begins_lets_another_lead(
    short: LockClient, other: LockClient, office: Office
) -> None:
    term = await short.leader(NAME).try_lead()
    assert term is not None
    with delayed_renewals(short):
        await term.lost
    await term.run(office.work("it"))
    assert office.events == []
    async with asyncio.timeout(SOON), other.leader(NAME):
        assert short.statistics().held == 0


async def test_a_term_keeps_no_work_that_has_ended(locks: LockClient) -> None:
    async def work() -> None:
        pass

    async with locks.leader(NAME) as term:
        ended = term.start(work())
        await ended
        gone = ref(ended)
        del ended
        # The loop itself keeps the task until this step ends.
        await asyncio.sleep(0)
        gc.collect()
        assert gone() is None


async def test_the_block_of_a_leader_that_cannot_renew_is_cancelled_once_and_told_why(
    short: LockClient, office: Office
) -> None:
    terms: list[Term] = []

    async def lead() -> None:
        async with short.leader(NAME) as term:
            terms.append(term)
            _ = term.start(office.work("it"))
            with delayed_renewals(short):
                await asyncio.sleep(SOON)

    with pytest.raises(LeaseLostError) as lost:
        await asyncio.create_task(lead())
    assert lost.value.reason == "unreachable"
    (term,) = terms
    assert term.lost.is_set()
    with pytest.raises(LeaseLostError):
        _ = term.start(office.work("too late"))
    assert office.events == ["it begins", "it ends"]
    await answered(short)
    assert not await short.lock(NAME).locked()


# Each renewal is due as late, and the lease counts as ended as early, as is possible.
LATEST = LockConfig(lease=8, renew_interval=4, drift=2)


@pytest.mark.parametrize(("config", "renewals"), [(LockConfig(lease=3), 4), (LATEST, 1)], ids=["usual", "latest"])
async def test_a_lead_that_is_renewed_goes_on(redis: Redis, office: Office, config: LockConfig, renewals: int) -> None:
    async with LockClient(redis, config=config) as locks:
        task = asyncio.create_task(office.lead(locks.leader(NAME), "it"))
        await until(lambda: locks.statistics().renewals >= renewals, SOON)
        assert office.events == ["it begins"]
        assert locks.statistics().losses == 0
        await ended(task)


@pytest.mark.parametrize(("names", "seconds"), [(1, 1.955), (10_000, 1.0)])
def test_work_begins_to_stop_in_the_middle_between_the_due_renewal_and_the_deadline(names: int, seconds: float) -> None:
    timing = Timing.of(LockConfig(lease=8, renew_interval=4))
    assert module._time_to_stop(timing, names) == pytest.approx(seconds)


async def test_after_a_loss_it_stands_again(locks: LockClient, office: Office, redis: Redis) -> None:
    task = asyncio.create_task(office.lead(locks.leader(NAME, pause=0), "it"))
    await office.saw("it begins")
    await lose(locks, NAME)
    await office.saw("it begins", "it ends", "it begins")
    await ended(task)
    assert office.events == ["it begins", "it ends"] * 2


async def test_a_loop_that_is_left_gives_back(locks: LockClient, other: LockClient, office: Office) -> None:
    async for term in locks.leader(NAME):
        _ = term.start(office.work("it"))
        await office.saw("it begins")
        break
    async with other.leader(NAME):
        assert office.events == ["it begins", "it ends"]
    del term


class Cleaning:
    """Work whose cleanup asks Redis again and again whether the lock of its leader is held."""

    def __init__(self, client: LockClient) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.held: list[bool] = []
        self._lock = client.lock(NAME)

    async def work(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.held = [await self._lock.locked() for _ in range(5)]
            self.ended.set()

    async def kept_the_lock(self) -> bool:
        """Whether the lock was held until the cleanup had ended, and is free some time after."""
        await self.ended.wait()
        async with asyncio.timeout(SOON), self._lock:
            return all(self.held)


@pytest.fixture
def cleaning(other: LockClient, patient: None) -> Cleaning:
    return Cleaning(other)


async def test_a_loop_that_ends_its_task_gives_back_when_its_work_has_ended(
    locks: LockClient, cleaning: Cleaning
) -> None:
    async def stand() -> None:
        async for term in locks.leader(NAME):
            _ = term.start(cleaning.work())
            await cleaning.begun.wait()
            return

    await asyncio.create_task(stand())
    assert await cleaning.kept_the_lock()


async def test_a_lead_whose_task_has_ended_ends_with_its_lease_though_its_work_goes_on(
    short: LockClient, other: LockClient
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    async def stand() -> None:
        async for term in short.leader(NAME):
            _ = term.start(work())
            await begun.wait()
            return

    await asyncio.create_task(stand())
    try:
        async with asyncio.timeout(SOON), other.lock(NAME):
            assert not may_end.is_set()
    finally:
        may_end.set()


async def test_a_loop_that_somebody_keeps_gives_back_when_its_work_has_ended(
    locks: LockClient, cleaning: Cleaning
) -> None:
    terms = aiter(locks.leader(NAME))

    async def stand() -> None:
        term = await anext(terms)
        _ = term.start(cleaning.work())
        await cleaning.begun.wait()

    await asyncio.create_task(stand())
    assert await cleaning.kept_the_lock()
    await terms.aclose()


async def test_closing_the_client_lets_the_work_of_a_loop_end_before_it_gives_back(
    redis: Redis, cleaning: Cleaning
) -> None:
    client = LockClient(redis)
    async for term in client.leader(NAME):
        _ = term.start(cleaning.work())
        await cleaning.begun.wait()
        await client.aclose()
        assert await cleaning.kept_the_lock()
    del term


async def test_after_a_step_down_another_leads_when_the_work_has_ended(
    locks: LockClient, other: LockClient, office: Office
) -> None:
    terms: list[Term] = []

    async def work(term: Term) -> None:
        terms.append(term)
        await office.work("it")

    leading = asyncio.create_task(locks.leader(NAME, pause=3600).run(work))
    await office.saw("it begins")
    waiting = asyncio.create_task(_one_term(other.leader(NAME)))
    await until(lambda: other.statistics().parked == 1)
    [term] = terms
    term.step_down()
    for over in (term.check, partial(term.start, asyncio.sleep(0))):
        with pytest.raises(NotHeldError, match=r"^this lease of lock '\w+' is over, because step_down\(\) has ended"):
            over()
    assert await waiting > term.token
    assert office.events == ["it begins", "it ends"]
    assert not term.lost.is_set()
    assert not leading.done()
    term.step_down()
    await ended(leading)


async def test_work_steps_down_by_itself_and_its_leader_stands_again(locks: LockClient) -> None:
    tokens: list[int] = []

    async def work(term: Term) -> None:
        tokens.append(term.token)
        if len(tokens) == 3:
            raise ZeroDivisionError
        term.step_down()
        await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        await locks.leader(NAME, pause=0).run(work)
    assert tokens == sorted(set(tokens))


async def test_run_goes_on_when_redis_does_not_answer_at_the_end_of_a_term(proxy: Proxy) -> None:
    """The next acquire reports the failure, and goes on until Redis answers."""
    terms: list[int] = []

    async def work(term: Term) -> None:
        terms.append(term.token)
        if len(terms) == 1:
            proxy.install(Rule(script(RELEASE, RELEASE_CLEAN), withhold_reply()))
        else:
            raise BackendError("the failure of the work ends the run")

    async with client_behind(proxy, release_timeout=0.3) as client:
        with pytest.raises(BackendError, match="failure of the work"):
            await asyncio.wait_for(client.leader(NAME, pause=0).run(work), SOON)
    assert len(terms) == 2


async def test_run_goes_on_after_a_term_that_ends_before_its_work_begins(locks: LockClient) -> None:
    terms = 0

    async def nothing() -> None:
        if terms == 3:
            raise ZeroDivisionError

    def work(term: Term) -> Coroutine[Any, Any, None]:
        nonlocal terms
        terms += 1
        if terms == 2:
            term.step_down()
        return nothing()

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(locks.leader(NAME, pause=0).run(work), SOON)
    assert terms == 3


async def test_a_term_that_was_released_does_not_end_the_owners_other_hold_early(redis: Redis) -> None:
    async with LockClient(redis, config=LockConfig(lease=4)) as client:
        outer = await client.lock(NAME).acquire(lease=4)
        term = await client.leader(NAME).try_lead()
        assert term is not None
        await term.lease.release()
        assert await asyncio.wait_for(outer.lost, SOON) == "expired"
        assert monotonic() >= hold_of(outer).deadline
        assert not hold_of(outer).bodies


async def test_a_loop_that_steps_down_gives_back_though_its_body_goes_on(locks: LockClient, cleaning: Cleaning) -> None:
    async for term in locks.leader(NAME):
        _ = term.start(cleaning.work())
        await cleaning.begun.wait()
        term.step_down()
        assert await cleaning.kept_the_lock()
        break
    del term


async def test_a_block_that_steps_down_ends_its_work_and_gives_back_when_it_is_left(
    locks: LockClient, other: LockClient, cleaning: Cleaning
) -> None:
    async with locks.leader(NAME) as term:
        _ = term.start(cleaning.work())
        await cleaning.begun.wait()
        term.step_down()
        await cleaning.ended.wait()
        assert await other.lock(NAME).locked()
    assert not await other.lock(NAME).locked()


async def test_a_try_leads_or_gives_none(locks: LockClient, other: LockClient, office: Office) -> None:
    leader, theirs = locks.leader(NAME), other.leader(NAME)
    term = await leader.try_lead()
    assert term is not None
    assert await theirs.try_lead() is None
    assert await theirs.try_lead(wait=0.01) is None
    waiting = asyncio.create_task(_try(theirs, 60))
    await until(lambda: other.statistics().parked == 1)
    term.step_down()
    assert await waiting > term.token
    async with asyncio.timeout(SOON):
        term = await leader.try_lead(wait=None)
    assert term is not None
    await term.run(office_hours(office))
    assert office.events == ["worked"]
    assert not await locks.lock(NAME).locked()


async def _try(leader: AsyncLeader, wait: float) -> int:
    term = await leader.try_lead(wait)
    assert term is not None
    async with term:
        return term.token


async def office_hours(office: Office) -> None:
    office.events.append("worked")


async def test_a_try_that_is_the_whole_of_a_task_is_refused(locks: LockClient) -> None:
    with pytest.raises(RuntimeError, match="runs in another"):
        await asyncio.create_task(locks.leader(NAME).try_lead())


async def test_a_loop_whose_body_does_nothing_leads_again(locks: LockClient) -> None:
    tokens: list[int] = []
    async for term in locks.leader(NAME, pause=0):
        tokens.append(term.token)
        if len(tokens) == 3:
            break
    assert tokens == sorted(set(tokens))


async def test_work_that_a_loop_started_fails_at_its_next_turn(locks: LockClient, office: Office) -> None:
    office.fail.set()
    with pytest.raises(ZeroDivisionError):
        async for term in locks.leader(NAME):
            await asyncio.wait([term.start(office.work("it"))])
    assert office.events == ["it begins", "it ends"]


async def test_a_loop_that_catches_the_error_of_the_work_stands_again(locks: LockClient, office: Office) -> None:
    office.fail.set()
    failed = 0
    async for term in locks.leader(NAME, pause=0):
        try:
            await term.run(office.work("it"))
        except ZeroDivisionError:
            failed += 1
        if failed == 3:
            break
    assert office.events == ["it begins", "it ends"] * 3


async def test_run_leads_beside_a_block_and_ends_with_it(locks: LockClient, office: Office) -> None:
    tokens: list[int] = []

    async def work(term: Term) -> None:
        tokens.append(term.token)
        await office.work("it")

    async with background(locks.leader(NAME).run(work)):
        await office.saw("it begins")
        holder = await locks.leader(NAME).holder()
        assert holder is not None
    assert office.events == ["it begins", "it ends"]
    assert len(tokens) == 1
    assert await locks.leader(NAME).holder() is None


async def test_run_raises_the_error_of_the_work(locks: LockClient, office: Office) -> None:
    office.fail.set()
    with pytest.raises(ZeroDivisionError):
        await asyncio.create_task(locks.leader(NAME).run(lambda term: office.work(str(term.token))))
    assert not await locks.lock(NAME).locked()


async def test_run_ends_when_the_client_is_closed(redis: Redis, office: Office) -> None:
    client = LockClient(redis)
    task = asyncio.create_task(client.leader(NAME).run(lambda _: office.work("it")))
    await office.saw("it begins")
    await client.aclose()
    assert office.events == ["it begins", "it ends"]
    await asyncio.wait_for(task, SOON)
    assert not await redis.exists(NAME)


async def test_a_candidate_outlives_a_redis_that_is_away(
    own: Server, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiolock")
    config = LockConfig(lease=1, command_timeout=0.5, release_timeout=0.5)
    async with LockClient.from_url(own.url, config=config) as client:
        task = asyncio.create_task(client.leader(NAME, pause=0.01).run(lambda _: office.work("it")))
        await office.saw("it begins")
        own.stop()
        await office.saw("it begins", "it ends")
        await until(lambda: caplog.text.count("not elected, trying again") > 1, SOON)
        told = [record.levelname for record in caplog.records if "not elected" in record.getMessage()]
        assert (told[0], set(told[1:])) == ("WARNING", {"DEBUG"})
        own.start()
        await office.saw("it begins", "it ends", "it begins")
        await ended(task)


async def test_a_cancelled_leader_lets_its_work_end_and_leaves_no_orphan(
    locks: LockClient, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aiolock")
    task = asyncio.create_task(office.lead(locks.leader(NAME), "it"))
    await office.saw("it begins")
    await ended(task)
    assert task.cancelled()
    assert office.events == ["it begins", "it ends"]
    assert caplog.records == []
    assert locks.statistics().held == 0


async def test_a_cancelled_scope_of_anyio_stops_the_work_and_gives_the_lead_back(
    locks: LockClient, office: Office
) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(office.lead, locks.leader(NAME), "it")
        await office.saw("it begins")
        group.cancel_scope.cancel()
    assert office.events == ["it begins", "it ends"]
    assert locks.statistics().held == 0


async def test_work_that_fails_after_a_loss_is_raised_by_run(locks: LockClient) -> None:
    async def work() -> None:
        try:
            await lose(locks, NAME)
            await asyncio.sleep(SOON)
        finally:
            raise ZeroDivisionError("the rollback failed")

    term = await locks.leader(NAME).try_lead()
    assert term is not None
    with pytest.raises(ZeroDivisionError):
        await term.run(work())


@pytest.mark.parametrize("steps_down", [True, False])
async def test_work_that_asks_its_term_in_its_cleanup_has_not_failed(locks: LockClient, steps_down: bool) -> None:
    terms = 0

    async def work(term: Term) -> None:
        nonlocal terms
        terms += 1
        if terms > 1:
            return
        try:
            if steps_down:
                term.step_down()
            else:
                await lose(locks, NAME)
            await asyncio.sleep(SOON)
        finally:
            term.check()

    leading = asyncio.create_task(locks.leader(NAME, pause=0.01).run(work))
    await until(lambda: terms > 1)
    leading.cancel()
    await asyncio.wait([leading])
    assert leading.cancelled()


async def test_work_that_loses_another_lock_has_failed_though_the_leader_steps_down(locks: LockClient) -> None:
    async def work() -> None:
        async with locks.lock("other"):
            await lose(locks, "other")
            await asyncio.sleep(SOON)

    async def lead() -> None:
        async with locks.leader(NAME) as term:
            try:
                await term.start(work())
            finally:
                term.step_down()

    with pytest.raises(LeaseLostError, match="'other'"):
        await lead()


async def test_blocks_of_one_handle_are_each_left_by_their_own(locks: LockClient) -> None:
    leader = locks.leader(NAME)

    async def use() -> int:
        async with leader as term:
            await asyncio.sleep(0)
            term.check()
            return term.token

    tokens = await asyncio.gather(*(use() for _ in range(5)))
    assert len(set(tokens)) == 5


async def test_run_in_a_block_is_refused_with_the_alternatives(locks: LockClient, office: Office) -> None:
    async with locks.leader(NAME) as term:
        with pytest.raises(RuntimeError, match=r"`await term\.start\(work\)` there, or `async for"):
            await term.run(office.work("it"))
        term.check()
    assert office.events == []


@pytest.mark.parametrize("in_block", [True, False])
async def test_a_lease_under_which_work_runs_is_not_given_away(
    locks: LockClient, other: LockClient, office: Office, in_block: bool
) -> None:
    term = await locks.leader(NAME).try_lead()
    assert term is not None
    async with term if in_block else nullcontext():
        work = term.start(office.work("it"))
        await office.saw("it begins")
        handle = locks.lock(NAME)
        # In a block, the handle refuses to release any lease.
        for give in (term.lease.release, partial(term.lease.detach, 60), *(() if in_block else (handle.release,))):
            with pytest.raises(RuntimeError, match=r"work of its term runs.*`term\.step_down\(\)`"):
                await give()
        with pytest.raises(RuntimeError, match="`async with term:`"):
            await term.lease.__aenter__()
        nested = await handle.acquire()
        await nested.release()
        term.check()
        assert not work.done()
        assert await other.leader(NAME).try_lead() is None
        term.step_down()
    await ended(work)
    async with asyncio.timeout(SOON), other.lock(NAME):
        assert office.events == ["it begins", "it ends"]


async def test_a_release_under_work_says_that_the_lock_is_lost_if_its_lease_is_over(
    locks: LockClient, office: Office
) -> None:
    term = await locks.leader(NAME).try_lead()
    assert term is not None
    work = term.start(office.work("it"))
    await office.saw("it begins")
    # As after a pause of the process: no timer has noticed the end yet.
    hold_of(term.lease).deadline = monotonic()
    with pytest.raises(LeaseLostError):
        await term.lease.release()
    await ended(work)


async def test_a_term_that_was_left_cannot_be_used(locks: LockClient, office: Office) -> None:
    async with locks.leader(NAME) as term:
        pass
    with pytest.raises(NotHeldError):
        await term.run(office.work("it"))
    with pytest.raises(RuntimeError, match="not entered"):
        await term.__aexit__(None, None, None)
    assert office.events == []
    assert repr(locks.leader(NAME)) == "<AsyncLeader 'scheduler'>"
    assert repr(term).startswith("<Term of <Lease of 'scheduler'")


@pytest.mark.parametrize("use", ["start", "run"])
async def test_work_that_is_no_coroutine_is_refused(locks: LockClient, use: str) -> None:
    async with locks.leader(NAME) as term:
        with pytest.raises(TypeError, match="the work must be a coroutine"):
            answer: Awaitable[object] = getattr(term, use)(_one_term)
            await answer


async def test_a_function_that_returns_no_coroutine_is_named(locks: LockClient) -> None:
    def work(term: Term) -> None: ...

    with pytest.raises(TypeError, match=r"work at .* must be a coroutine function .* returned None"):
        await locks.leader(NAME).run(work)  # type: ignore[arg-type]


async def some(tasks: "list[asyncio.Task[object]]") -> None:
    """Work that takes some turns of the loop, to be cancelled or not."""
    task = asyncio.current_task()
    assert task is not None
    tasks.append(task)
    for _ in range(3):
        await asyncio.sleep(0)


async def in_a_block(leader: AsyncLeader, work: Coroutine[Any, Any, None]) -> None:
    async with leader as term:
        await term.start(work)


async def in_a_loop(leader: AsyncLeader, work: Coroutine[Any, Any, None]) -> None:
    async for term in leader:
        await term.run(work)
        break


async def in_a_loop_that_waits(leader: AsyncLeader, work: Coroutine[Any, Any, None]) -> None:
    async for term in leader:
        await term.start(work)
        break


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", [in_a_block, in_a_loop, in_a_loop_that_waits])
async def test_cancelled_anywhere_its_work_has_ended_and_the_lock_is_free(
    mode: Mode,
    form: Callable[[AsyncLeader, Coroutine[Any, Any, None]], Coroutine[Any, Any, None]],
    locks: LockClient,
    redis: Redis,
) -> None:
    async def setup() -> "list[asyncio.Task[object]]":
        return []

    async def run(tasks: "list[asyncio.Task[object]]") -> None:
        work = some(tasks)
        try:
            await form(locks.leader(NAME), work)
        finally:
            work.close()

    async def verify(tasks: "list[asyncio.Task[object]]", outcome: Outcome[None]) -> None:
        # A lock that a loop leaves is given back a moment later.
        if form is in_a_loop_that_waits:
            await until(lambda: locks.statistics().held == 0)
        assert all(task.done() for task in tasks)
        assert (locks.statistics().held, outcome.swallowed) == (0, 0)
        await answered(locks)
        assert not await redis.exists(NAME)

    assert await every_suspension(mode, setup, run, verify) > 1
