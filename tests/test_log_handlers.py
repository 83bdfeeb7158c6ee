"""A log handler of the application that raises ends nothing of ours."""

import asyncio
import gc
import logging
import sys
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis

from aiolock import LeaseLostError, LockClient, LockConfig
from aiolock._log import log
from aiolock.testing import delayed_renewals
from tests.support.observe import freed, until


class Broken(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record.getMessage())
        raise AttributeError("reason")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    handler, logger = Broken(), logging.getLogger("aiolock")
    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr(logger, "propagate", False)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_the_holds_of_an_ended_task_are_released(locks: LockClient, redis: Redis, broken: Broken) -> None:
    async def forgetful() -> None:
        await locks.lock("orders").acquire()

    await asyncio.create_task(asyncio.wait_for(forgetful(), 20))
    await freed(redis, "orders")
    assert "ended while it held the lock" in broken.records[0]


async def test_no_watchdog_ends_by_a_renewal_that_is_late(redis: Redis, broken: Broken) -> None:
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context))
    async with LockClient(redis, config=LockConfig(lease=3)) as locks, locks.lock("orders") as lease:
        with delayed_renewals(locks):
            await until(lambda: any("late" in record for record in broken.records))
        renewals = locks.statistics().renewals
        await until(lambda: locks.statistics().renewals > renewals)
        lease.check()
    gc.collect()
    assert failed == []


async def test_losses_are_told_and_the_client_is_closed(redis: Redis, broken: Broken) -> None:
    async with LockClient(redis) as locks:
        lease = await locks.lock("orders", owner="job").acquire()
        assert await locks.lock("orders").force_release()
        with pytest.raises(LeaseLostError, match="by force"):
            lease.check()
        await locks.lock("invoices", owner="job").acquire()
    await freed(redis, "invoices")
    assert len(broken.records) == 2


def test_an_exception_of_a_handler_is_reported_as_in_the_standard_library(
    broken: Broken, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log.warning("unseen")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(logging, "raiseExceptions", True)
    log.warning("seen")
    assert "AttributeError: reason" in capsys.readouterr().err
    assert broken.records == ["unseen", "seen"]


@pytest.mark.parametrize("error", [BrokenPipeError, ValueError])
def test_nothing_ends_when_standard_error_cannot_be_written_either(
    error: type[Exception], broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard error is closed, or its reader has died."""

    class Gone:
        def write(self, text: str) -> None:
            raise error

    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(sys, "stderr", Gone())
    log.warning("unread")
    assert broken.records == ["unread"]


def test_without_a_standard_error_the_exception_is_reported_nowhere(
    broken: Broken, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    monkeypatch.setattr(sys, "stderr", None)
    log.warning("unread")
    assert (broken.records, capsys.readouterr().out) == (["unread"], "")
