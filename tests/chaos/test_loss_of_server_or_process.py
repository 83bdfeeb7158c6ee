"""The server or the holder's own process stops: the holder never goes on as if nothing had happened."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from aiolock import AsyncRLock, LeaseLostError, LockClient, NotHeldError
from aiolock._embedded_server import Server
from tests.support.holding import ROLLBACK, Holder, lock_client
from tests.support.observe import answered

LEASE = 0.9
ROOT = Path(__file__).parents[2]


def blocked_until_taken(url: str, key: str) -> None:
    """Block the event loop for longer than the lease, and let another owner take the lock meanwhile."""
    with BlockingRedis.from_url(url) as blocking:
        while blocking.exists(key):
            time.sleep(0.01)
        blocking.hset(key, "another:1", "1")
        blocking.pexpire(key, 60_000)


@asynccontextmanager
async def lone_holder(url: str, key: str, lease: float) -> AsyncIterator[asyncio.subprocess.Process]:
    arguments = ("-m", "tests.chaos.lone_holder", url, key, str(lease))
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 10)).decode().strip()


async def test_a_server_that_is_stopped() -> None:
    with Server() as server:
        async with lock_client(server.url, lease=LEASE) as locks, Holder(locks.lock("job")) as holder:
            server.stop()
            error = await holder.lost()
            assert error.reason == "unreachable"
            assert (holder.cancelled, holder.rolled_back, holder.uncancelled) == (1, ROLLBACK, True)
            assert holder.leases[0].lost.is_set()
            holder.go_on.set()
            await holder.task
            assert holder.after == [NotHeldError]


async def test_a_release_after_the_server_stopped_and_the_lease_ended_waits_for_no_answer() -> None:
    with Server() as server:
        async with lock_client(server.url, lease=LEASE) as locks:
            lock = locks.lock("job")
            lease = await lock.acquire()
            server.stop()
            assert await asyncio.wait_for(lease.lost, 5) == "unreachable"
            with pytest.raises(LeaseLostError) as lost:
                async with asyncio.timeout(0.3):
                    await lock.release()
            assert lost.value.reason == "unreachable"


async def test_a_server_that_is_paused_longer_than_the_lease() -> None:
    with Server() as server:
        async with (
            lock_client(server.url, lease=LEASE) as locks,
            lock_client(server.url) as others,
            Holder(locks.lock("job")) as holder,
        ):
            server.pause()
            error = await holder.lost()
            assert error.reason == "unreachable"
            assert (holder.cancelled, holder.rolled_back, holder.uncancelled) == (1, ROLLBACK, True)
            server.resume()
            heir = await others.lock("job", owner="heir").acquire()
            holder.go_on.set()
            await holder.task
            assert holder.after == [NotHeldError]
            await answered(locks)
            assert await others.lock("job", owner="heir").held()
            assert heir.token > error.token


async def test_a_process_that_is_paused_longer_than_its_lease(server: Server, redis: Redis, locks: LockClient) -> None:
    async with lone_holder(server.url, "job", LEASE) as process:
        held, token = (await line(process)).split()
        assert held == "held"
        os.kill(process.pid, signal.SIGSTOP)
        heirs_lock = locks.lock("job")
        heir = await heirs_lock.acquire()
        os.kill(process.pid, signal.SIGCONT)
        told = [await line(process) for _ in range(4)]
        assert told[0] == "cancelled"
        assert told[1] == "rolled back"
        assert told[2] in ("lost expired 0 True", "lost unreachable 0 True")
        assert told[3] == "not held"
        assert await process.wait() == 0
        assert await heirs_lock.held()
        assert heir.token > int(token)
        await heir.release()


async def test_a_loop_that_was_blocked_longer_than_the_lease(server: Server, redis: Redis) -> None:
    async with lock_client(server.url, lease=LEASE) as locks, Holder(locks.lock("job")) as holder:
        blocked_until_taken(server.url, "job")
        assert holder.leases[0].lost.is_set(), "by the clock, before the loop has got round to anything"
        with pytest.raises(LeaseLostError, match="its lease ended"):
            holder.leases[0].check()
        error = await holder.lost()
        assert error.reason == "expired"
        assert (holder.cancelled, holder.rolled_back, holder.uncancelled) == (1, ROLLBACK, True)
        holder.go_on.set()
        await holder.task
        assert holder.after == [NotHeldError]
        await answered(locks)
        assert await redis.hgetall("job") == {b"another:1": b"1"}


async def test_a_scoped_body_that_blocks_the_loop_itself_and_ends_without_an_await(
    server: Server, redis: Redis
) -> None:
    async with lock_client(server.url, lease=LEASE) as locks:
        with pytest.raises(LeaseLostError) as lost:
            async with locks.lock("job"):
                blocked_until_taken(server.url, "job")
        assert lost.value.reason == "expired"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0.01)
        assert await redis.hgetall("job") == {b"another:1": b"1"}


@pytest.mark.parametrize("use", [AsyncRLock.release, AsyncRLock.acquire])
async def test_a_call_right_after_the_loop_was_blocked_is_refused_and_harms_no_other_holder(
    server: Server, redis: Redis, use: Callable[[AsyncRLock], Awaitable[object]]
) -> None:
    async with lock_client(server.url, lease=LEASE) as locks:
        lock = locks.lock("job")
        await lock.acquire()
        blocked_until_taken(server.url, "job")
        with pytest.raises(LeaseLostError):
            await use(lock)
        assert await redis.hgetall("job") == {b"another:1": b"1"}
