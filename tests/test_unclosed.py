"""Clients that are treated badly: never closed, closed while tasks wait, or given a hook or a prefix that is wrong."""

import asyncio
import subprocess
import sys

import pytest
from redis.asyncio import Redis

from aiolock import ClientClosedError, LockClient, LockConfig, LockEvent
from aiolock._server import Server
from tests.support.observe import until

NAME = "unclosed"
MANY = 10

PROGRAM = f"""
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
    command = [sys.executable, "-c", PROGRAM, server.url, end]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == status, ended.stderr
    assert f"lock {NAME!r}" in ended.stderr
    assert "ended while it held the lock" in ended.stderr

    async def free() -> bool:
        return not await redis.exists(NAME)

    await until(free)  # An hour before its lease ends.


async def test_each_waiter_of_a_client_that_is_closed_gets_an_error_of_its_own(locks: LockClient, redis: Redis) -> None:
    await locks.lock(NAME).acquire()
    client = LockClient(redis)
    lock = client.lock(NAME)

    async def wait() -> ClientClosedError:
        with pytest.raises(ClientClosedError) as raised:
            await lock.acquire()
        return raised.value

    waiting = [asyncio.create_task(wait()) for _ in range(MANY)]
    await until(lambda: lock.statistics().parked == MANY)
    await client.aclose()
    errors = await asyncio.gather(*waiting)
    assert len(set(map(id, errors))) == MANY
    assert len({str(error) for error in errors}) == 1


async def test_a_hook_that_raises_cancelled_error_is_logged_once_and_harms_nothing(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[str] = []

    def hook(event: LockEvent) -> None:
        events.append(type(event).__name__)
        raise asyncio.CancelledError  # As `result()` of a future that was cancelled does.

    async with LockClient(redis, config=LockConfig(on_event=hook)) as locks:
        async with locks.lock(NAME):
            pass
        assert not await locks.lock(NAME).locked()
        await locks.lock(NAME, owner="job").acquire()
    assert events == ["Acquired", "Released", "Acquired", "Lost"]
    assert len([record for record in caplog.records if "on_event failed" in record.message]) == 1
    assert await redis.exists(NAME) == 0


def test_a_prefix_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(ValueError, match="prefix"):
        LockConfig(prefix="\ud800")
