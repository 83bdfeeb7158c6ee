"""The events of a client, typed and in order, and log records with their fields."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from aiolock import (
    Acquired,
    AsyncSemaphore,
    HandedOff,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    LockKind,
    Lost,
    NotAcquired,
    NotALockError,
    Orphaned,
    Released,
    RenewalLate,
    Term,
    WaitStarted,
)
from aiolock._embedded_server import Server
from aiolock._scripts import RENEW
from tests.support.holding import client_behind
from tests.support.observe import answered, until
from tests.support.proxy import ALWAYS, Proxy, Rule, refuse, script

Events = list[LockEvent]


@asynccontextmanager
async def listening(redis: Redis, events: Events, **settings: Any) -> AsyncIterator[LockClient]:
    async with LockClient(redis, config=LockConfig(on_event=events.append, **settings)) as locks:
        yield locks


@pytest.fixture
def events() -> Events:
    return []


def kinds(events: Events) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_acquired_and_released_tell_the_hold_count(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks, locks.lock("orders") as lease:
        await locks.lock("orders").acquire()
        await locks.lock("orders").release()
    assert kinds(events) == ["Acquired", "Acquired", "Released", "Released"]
    assert [event.holds for event in events if isinstance(event, Acquired | Released)] == [1, 2, 1, 0]
    assert {(event.name, event.token) for event in events} == {("orders", lease.token)}
    assert len({event.owner for event in events}) == 1


async def hand_on(locks: LockClient) -> None:
    """Let a named owner wait a moment for the lock, and get it from the task that holds it."""
    lock = locks.lock("orders", owner="waiting")
    async with locks.lock("orders"):
        waiting = asyncio.create_task(lock.acquire())
        await until(lambda: lock.statistics().parked == 1)
        await answered(locks)
        await asyncio.sleep(0.05)
    await waiting
    await lock.release()


async def test_acquired_tells_how_long_it_waited(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        await hand_on(locks)
    waited = [event.waited for event in events if isinstance(event, Acquired)]
    assert len(waited) == 2
    assert waited[0] >= 0
    # The holder kept the lock for longer, but timers may ring a little early.
    assert waited[1] > 0.01


async def test_handed_off_is_told_before_acquired(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        await hand_on(locks)
    handed = [event for event in events if isinstance(event, HandedOff)]
    assert len(handed) == 1
    granted = [event for event in events if event.token == handed[0].token]
    assert kinds(granted) == ["HandedOff", "Acquired", "Released"]
    assert handed[0].owner.endswith("waiting")


async def test_lost_tells_why_and_comes_once(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        lock = locks.lock("orders")
        for _ in range(2):
            await lock.acquire()
        await lock.force_release()
        for _ in range(2):
            with pytest.raises(LeaseLostError):
                await lock.release()
    assert kinds(events) == ["Acquired", "Acquired", "Lost"]
    assert isinstance(events[-1], Lost)
    assert events[-1].reason == "forced"


async def test_a_lease_that_was_left_to_end_is_an_event_and_no_warning(
    redis: Redis, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiolock")
    async with listening(redis, events) as locks:
        lease = await locks.lock("orders").acquire(lease=0.5)
        assert await lease.lost == "expired"
        with pytest.raises(LeaseLostError):
            async with locks.lock("orders").hold(lease=0.5):
                await asyncio.sleep(60)
    # On the server the first lease ends later, so a second wait may start.
    told = [kind for kind in kinds(events) if kind != "WaitStarted"]
    assert told == ["Acquired", "Lost"] * 2
    levels = [record.levelno for record in caplog.records if record.getMessage().endswith("lost: expired")]
    assert levels == [logging.INFO, logging.WARNING]


async def test_a_renewal_that_was_brought_forward_and_fails_is_not_late(
    own: Server, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection breaks, so that the server is asked at once; renewals are due every ten seconds."""
    async with Redis.from_url(own.url) as redis, listening(redis, events) as locks, locks.lock("orders"):
        await answered(locks)
        await redis.execute_command("ACL", "SETUSER", "default", "-pexpire")  # type: ignore[no-untyped-call]
        sent = locks.statistics().commands
        await redis.client_kill_filter(_type="normal", skipme=True)
        await until(lambda: locks.statistics().commands >= sent + 2)
        await redis.execute_command("ACL", "SETUSER", "default", "+pexpire")  # type: ignore[no-untyped-call]
    assert not [event for event in events if isinstance(event, RenewalLate)]
    assert not [record for record in caplog.records if "late" in record.getMessage()]


async def test_the_log_has_words_for_permits(redis: Redis, events: Events, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(redis, events) as locks:
        permits = locks.semaphore("places", 2)
        await asyncio.create_task(_forgets(permits))
        assert await permits.try_acquire(permits=2, wait=10)
        await permits.force_release()
    assert re.search(r"permits of 'places' \(token \d+\): task '.*' ended while it had them. They are rel", caplog.text)
    assert re.search(r"permits of 'places' \(token \d+\): lost: forced", caplog.text)
    assert "lock" not in caplog.text.replace("a named owner", "").replace("aiolock", "")


async def _forgets(permits: AsyncSemaphore) -> None:
    await permits.acquire()


async def test_a_wait_reports_its_start_and_the_holder_that_it_waits_for(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        await hand_on(locks)
    acquired = [event for event in events if isinstance(event, Acquired)]
    started = next(event for event in events if isinstance(event, WaitStarted))
    assert (started.name, started.token, started.holder) == ("orders", 0, acquired[0].owner)
    assert started.owner == acquired[1].owner
    assert [(event.contended, event.holder) for event in acquired] == [(False, None), (True, started.holder)]


async def test_a_holder_elsewhere_is_not_known(redis: Redis, events: Events, other: LockClient) -> None:
    async with listening(redis, events) as locks, other.lock("orders"):
        assert await locks.lock("orders").try_lock(0.05) is None
    assert kinds(events) == ["WaitStarted", "NotAcquired"]
    assert [event.holder for event in events if isinstance(event, WaitStarted | NotAcquired)] == [None, None]


async def test_an_acquire_that_ends_without_the_lock_tells_why(redis: Redis, events: Events, other: LockClient) -> None:
    await redis.set("string", "no lock")
    async with listening(redis, events) as locks, other.lock("orders"):
        lock = locks.lock("orders")
        assert await lock.try_lock() is None
        assert await lock.try_lock(0.05) is None
        waiting = asyncio.create_task(locks.lock("orders", owner="b").acquire())
        await until(lambda: lock.statistics().parked == 1)
        waiting.cancel()
        await asyncio.wait([waiting])
        with pytest.raises(NotALockError):
            await locks.lock("string").try_lock(1)
    ended = [event for event in events if isinstance(event, NotAcquired)]
    assert [(event.reason, event.error, event.contended) for event in ended] == [
        ("busy", None, False),
        ("timeout", None, True),
        ("cancelled", None, True),
        ("error", "NotALockError", False),
    ]
    # Timers may ring a little early.
    assert ended[1].waited >= 0.04
    assert kinds(events).count("WaitStarted") == 2


async def test_a_wait_that_ends_inside_of_an_except_block_is_no_error(
    redis: Redis, events: Events, other: LockClient
) -> None:
    async with listening(redis, events) as locks, other.lock("orders"):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            assert await locks.lock("orders").try_lock() is None
    assert [event.reason for event in events if isinstance(event, NotAcquired)] == ["busy"]


async def test_a_wait_that_python_destroys_is_not_reported(redis: Redis, events: Events, other: LockClient) -> None:
    """Python may destroy the wait in any thread, when there is no loop any more."""
    async with listening(redis, events) as locks, other.lock("orders"):
        waiting = locks.lock("orders", owner="b").acquire()
        waiting.send(None)
        waiting.close()
        await answered(locks)
    assert kinds(events) == []


async def test_released_and_lost_tell_how_long_it_was_held(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        began = time.monotonic()
        async with locks.lock("orders"):
            await asyncio.sleep(0.05)
            within = time.monotonic() - began
        await locks.lock("orders").acquire()
        await asyncio.sleep(0.05)
        await locks.lock("orders").force_release()
        whole = time.monotonic() - began
    released, lost = (event.held for event in events if isinstance(event, Released | Lost))
    assert 0.04 < released <= within
    assert 0.04 < lost <= whole - released


async def test_a_release_without_an_answer_is_reported_and_not_confirmed(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        lease = await locks.lock("orders").acquire()
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0)
        releasing.cancel()
        await asyncio.wait([releasing])
        assert releasing.cancelled()
        await locks.lock("orders").acquire()
        await locks.lock("orders").release()
    assert [event.confirmed for event in events if isinstance(event, Released)] == [False, True]


async def test_after_a_loss_nothing_more_is_told_of_the_hold(redis: Redis, events: Events) -> None:
    """Closing the client tells the body, which goes on to give its locks back."""
    async with LockClient(redis, config=LockConfig(on_event=events.append)) as locks:
        entered = asyncio.Event()

        async def work() -> None:
            async with locks.lock("orders"):
                nested = await locks.lock("orders").acquire()
                entered.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    await nested.release()

        working = asyncio.create_task(work())
        await entered.wait()
        await locks.aclose()
        with pytest.raises(LeaseLostError):
            await working
    assert kinds(events) == ["Acquired", "Acquired", "Lost"]


async def test_events_name_the_kind_of_the_lock(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        both = locks.read_write_lock("prices")
        wanted: list[tuple[LockKind, Any]] = [
            ("lock", locks.lock("orders")),
            ("fair_lock", locks.fair_lock("printer")),
            ("read_lock", both.read),
            ("write_lock", both.write),
            ("semaphore", locks.semaphore("api", 1)),
            ("counting_semaphore", locks.counting_semaphore("seats", 1)),
        ]
        for _, lock in wanted:
            async with lock.hold(1):
                pass
    assert [event.kind for event in events] == [kind for kind, _ in wanted for _ in ("Acquired", "Released")]


async def test_a_once_that_was_run_before_is_no_error(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        for _ in range(2):
            async with locks.once("report", keep=60):
                pass
    assert kinds(events) == ["Acquired", "Released", "NotAcquired"]
    assert {event.kind for event in events} == {"once"}
    assert [(event.reason, event.error) for event in events if isinstance(event, NotAcquired)] == [("done", None)]


async def test_an_acquire_without_an_owner_is_no_event(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        seats = locks.counting_semaphore("seats", 1)
        await seats.acquire()
        assert not await seats.try_acquire(wait=0.01)
        await seats.release()
        assert await locks.count_down_latch("done").wait()
    assert events == []


@pytest.mark.parametrize("failure", [ZeroDivisionError, asyncio.CancelledError])
async def test_a_failing_hook_is_logged_once_and_changes_nothing(
    redis: Redis, events: Events, caplog: pytest.LogCaptureFixture, failure: type[BaseException]
) -> None:
    """A hook may ask a cancelled future for its `result()`, which raises CancelledError."""

    def fail(event: LockEvent) -> None:
        events.append(event)
        raise failure(event.name)

    async with LockClient(redis, config=LockConfig(on_event=fail)) as locks:
        for _ in range(3):
            async with locks.lock("orders"):
                assert await locks.lock("orders").held()
        await locks.lock("orders", owner="job").acquire()
    assert kinds(events) == ["Acquired", "Released"] * 3 + ["Acquired", "Lost"]
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failures) == 1
    assert failures[0].name == "aiolock"
    assert "on_event failed on Acquired(" in failures[0].getMessage()
    assert failures[0].exc_info is not None
    assert failures[0].exc_info[0] is failure
    assert not await redis.exists("orders")


async def test_the_hook_runs_in_the_loop_and_may_use_it(redis: Redis) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    def hook(_: LockEvent) -> None:
        loops.append(asyncio.get_running_loop())

    async with LockClient(redis, config=LockConfig(on_event=hook)) as locks, locks.lock("orders"):
        pass
    assert loops == [asyncio.get_running_loop()] * 2


class Successor:
    """A hook that lets a leader step down at the first event of one kind."""

    def __init__(self, when: type[LockEvent]) -> None:
        self.terms: list[Term] = []
        self.events: Events = []
        self._when = when

    def __call__(self, event: LockEvent) -> None:
        self.events.append(event)
        if isinstance(event, self._when) and self.terms:
            self.terms.pop().step_down()

    async def leads(self, locks: LockClient, name: str) -> Term:
        term = await locks.leader(name).try_lead()
        assert term is not None
        self.terms.append(term)
        return term

    def of(self, name: str) -> list[str]:
        return kinds([event for event in self.events if event.name == name])


async def test_a_hook_that_hears_of_the_close_may_give_another_lock_back(redis: Redis) -> None:
    """What was given back is not lost, although the close is telling each holder at that moment."""
    hook = Successor(Lost)
    async with LockClient(redis, config=LockConfig(on_event=hook)) as locks:
        _ = await locks.lock("first").acquire()
        term = await hook.leads(locks, "second")
    assert hook.of("first") == ["Acquired", "Lost"]
    assert hook.of("second") == ["Acquired", "Released"]
    assert not term.lost.is_set()
    assert not await redis.exists("first", "second")


@pytest.mark.parametrize("names", [("only",), ("first", "second")])
async def test_a_hook_that_hears_of_an_orphan_may_give_its_locks_back(redis: Redis, names: tuple[str, ...]) -> None:
    hook = Successor(Orphaned)

    async def lead() -> None:
        for name in names:
            _ = await hook.leads(locks, name)

    async with LockClient(redis, config=LockConfig(on_event=hook)) as locks:
        await asyncio.create_task(lead())
        await until(lambda: locks.statistics().held == 0)
        assert hook.of(names[-1])[-1] == "Released"
        assert locks.statistics().losses == len(names) - 1


async def test_a_hook_that_hears_of_a_late_renewal_may_give_the_lock_back(proxy: Proxy) -> None:
    hook = Successor(RenewalLate)
    async with client_behind(proxy, lease=3, renew_interval=0.5, on_event=hook) as locks:
        proxy.install(Rule(script(RENEW), refuse(b"ERR for the test"), times=ALWAYS))
        term = await hook.leads(locks, "orders")
        await until(lambda: "Released" in hook.of("orders"))
        await asyncio.sleep(3)
        assert hook.of("orders") == ["Acquired", "RenewalLate", "Released"]
        assert not term.lost.is_set()
        assert locks.statistics().losses == 0


async def test_a_renewal_that_stays_late_is_one_warning_until_it_recovers(
    own: Server, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Redis.from_url(own.url) as redis,
        listening(redis, events, lease=30, renew_interval=0.1) as locks,
        locks.lock("orders"),
    ):
        for incident in (1, 2):
            told = kinds(events).count("RenewalLate")
            await redis.execute_command("ACL", "SETUSER", "default", "-pexpire")  # type: ignore[no-untyped-call]
            await until(lambda told=told: kinds(events).count("RenewalLate") >= told + 3)
            await redis.execute_command("ACL", "SETUSER", "default", "+pexpire")  # type: ignore[no-untyped-call]
            renewals = locks.statistics().renewals
            await until(lambda renewals=renewals: locks.statistics().renewals > renewals)
            assert len([each for each in caplog.records if "late" in each.getMessage()]) == incident


FIELDS = {"lock_name", "owner", "token", "client"}


@pytest.mark.parametrize(
    ("act", "level", "text"),
    [
        ("release", logging.DEBUG, "acquired"),
        ("release", logging.DEBUG, "released"),
        ("force", logging.WARNING, "lost: forced"),
    ],
)
async def test_log_records_carry_their_fields(
    redis: Redis, caplog: pytest.LogCaptureFixture, act: str, level: int, text: str
) -> None:
    caplog.set_level(logging.DEBUG, "aiolock")
    async with LockClient(redis) as locks:
        lock = locks.lock("orders")
        lease = await lock.acquire()
        holder = await lock.holder()
        await (lock.release() if act == "release" else lock.force_release())
    assert holder is not None
    record = next(record for record in caplog.records if record.getMessage().endswith(text))
    assert (record.name, record.levelno) == ("aiolock", level)
    assert record.getMessage() == f"lock 'orders' (token {lease.token}): {text}"
    event = {"acquired": "Acquired", "released": "Released", "lost: forced": "Lost"}[text]
    own = {"Acquired": ("holds", "waited"), "Released": ("holds", "held"), "Lost": ("reason", "held")}[event]
    assert (record.__dict__["event"], record.__dict__["kind"]) == (event, "lock")
    assert record.__dict__.keys() >= set(own)
    fields = {name: getattr(record, name) for name in FIELDS}
    assert fields == {
        "lock_name": "orders",
        "owner": f"{holder.client}:{holder.owner}",
        "token": lease.token,
        "client": holder.client,
    }


async def test_nothing_below_a_warning_is_logged_unless_asked_for(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with LockClient(redis) as locks, locks.lock("orders"):
        pass
    assert caplog.records == []


@pytest.mark.parametrize("make", [lambda event: event.name.upper(), lambda event: None])
async def test_the_result_of_the_hook_is_ignored(redis: Redis, make: Callable[[LockEvent], object]) -> None:
    async with LockClient(redis, config=LockConfig(on_event=make)) as locks, locks.lock("orders"):
        pass
