"""What a client tells about itself: typed events in order, and log records with their fields."""

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
    AsyncPermitExpirableSemaphore,
    HandedOff,
    LeaseLostError,
    LockClient,
    LockConfig,
    LockEvent,
    Lost,
    Orphaned,
    Released,
    RenewalLate,
    Renewed,
)
from aiolock._embedded_server import Server
from tests.support.observe import answered, until

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
    """Let a named owner wait a moment for the lock, and have it from the task that holds it."""
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
    assert waited[1] > 0.01  # The holder kept it for longer; timers may ring a little early.


async def test_handed_off_is_told_before_acquired(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks:
        await hand_on(locks)
    handed = [event for event in events if isinstance(event, HandedOff)]
    assert len(handed) == 1
    granted = [event for event in events if event.token == handed[0].token]
    assert kinds(granted) == ["HandedOff", "Acquired", "Released"]
    assert handed[0].owner.endswith("waiting")


async def test_renewed_tells_what_is_left(redis: Redis, events: Events) -> None:
    async with listening(redis, events, lease=2, renew_interval=0.05) as locks, locks.lock("orders"):
        await until(lambda: kinds(events).count("Renewed") >= 3)
    renewed = [event.remaining for event in events if isinstance(event, Renewed)]
    assert all(1 < remaining < 2 for remaining in renewed)


async def test_a_blocked_loop_is_told_as_a_late_renewal(
    redis: Redis, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(redis, events, lease=5, renew_interval=0.1) as locks, locks.lock("orders"):
        await until(lambda: "Renewed" in kinds(events))
        time.sleep(0.5)
        await until(lambda: "RenewalLate" in kinds(events))
    late = next(event for event in events if isinstance(event, RenewalLate))
    assert 0.3 < late.late < 4
    assert 0 < late.remaining < 5
    record = next(record for record in caplog.records if "late" in record.getMessage())
    assert record.levelno == logging.WARNING
    assert "the event loop was blocked" in record.getMessage()


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
        lease = await locks.lock("orders").acquire(lease=0.05)
        assert await lease.lost == "expired"
        with pytest.raises(LeaseLostError):
            async with locks.lock("orders").hold(lease=0.05):
                await asyncio.sleep(60)
    assert kinds(events) == ["Acquired", "Lost"] * 2
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
        await until(lambda: locks.statistics().commands >= sent + 2)  # The second time after the first has failed.
        await redis.execute_command("ACL", "SETUSER", "default", "+pexpire")  # type: ignore[no-untyped-call]
    assert not [event for event in events if isinstance(event, RenewalLate)]
    assert not [record for record in caplog.records if "late" in record.getMessage()]


async def test_orphaned_names_the_task(redis: Redis, events: Events, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(redis, events) as locks:
        lock = locks.lock("orders")

        async def forget() -> None:
            await lock.acquire()
            await lock.acquire()

        await asyncio.create_task(forget(), name="forgetful")
        async with asyncio.timeout(5):
            while await lock.locked():
                await asyncio.sleep(0)
    orphaned = [event for event in events if isinstance(event, Orphaned)]
    assert [(event.name, event.holds, event.task) for event in orphaned] == [("orders", 2, "forgetful")]
    assert [record.levelname for record in caplog.records if "'forgetful'" in record.getMessage()] == ["WARNING"]
    assert "a named owner" in caplog.text


async def test_the_log_has_words_for_permits(redis: Redis, events: Events, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(redis, events) as locks:
        permits = locks.permit_expirable_semaphore("places", 2)
        await asyncio.create_task(_forgets(permits))
        assert await permits.try_acquire(2, wait=10)
        await permits.force_release()
    assert re.search(r"permits of 'places' \(token \d+\): task '.*' ended while it had them. They are rel", caplog.text)
    assert re.search(r"permits of 'places' \(token \d+\): lost: forced", caplog.text)
    assert "lock" not in caplog.text.replace("a named owner", "").replace("aiolock", "")


async def _forgets(permits: AsyncPermitExpirableSemaphore) -> None:
    await permits.acquire()


async def test_what_is_refused_or_fails_is_no_event(redis: Redis, events: Events) -> None:
    async with listening(redis, events) as locks, locks.lock("orders", owner="somebody"):
        before = len(events)
        assert await locks.lock("orders").try_lock() is None
        assert len(events) == before


@pytest.mark.parametrize("failure", [ZeroDivisionError, asyncio.CancelledError])
async def test_a_failing_hook_is_logged_once_and_changes_nothing(
    redis: Redis, events: Events, caplog: pytest.LogCaptureFixture, failure: type[BaseException]
) -> None:
    """`result()` of a future that was cancelled raises CancelledError."""

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
async def test_what_the_hook_returns_is_ignored(redis: Redis, make: Callable[[LockEvent], object]) -> None:
    async with LockClient(redis, config=LockConfig(on_event=make)) as locks, locks.lock("orders"):
        pass
