"""Somebody sets the wall clock of one server of a quorum: the server forgets its grants, or keeps them for too long."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import Lease, LeaseLostError, LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.processes.store import Store
from tests.processes.worker import NAME
from tests.quorum.several import everywhere, remember
from tests.quorum.test_faults import LEASE, SOON, check, crew
from tests.support.clock import Clock, with_a_clock
from tests.support.observe import renewed, until

pytestmark = pytest.mark.slow
HOUR = 3600.0


@pytest.fixture
def set_apart(tmp_path: Path) -> Iterator[tuple[Server, Clock]]:
    with with_a_clock(tmp_path) as running:
        yield running


@pytest.fixture
def clock(set_apart: tuple[Server, Clock]) -> Clock:
    """The clock of the first server."""
    return set_apart[1]


@pytest.fixture
def three(set_apart: tuple[Server, Clock], server: Server) -> Iterator[list[Server]]:
    with Server(server._executable) as second, Server(server._executable) as third:
        yield [set_apart[0], second, third]


@pytest.fixture
async def locks(redises: list[Redis]) -> AsyncIterator[LockClient]:
    async with LockClient.redlock(redises, config=LockConfig(lease=LEASE), longest_lease=LEASE) as client:
        yield client


async def test_counted_by_many_processes(
    three: list[Server], redises: list[Redis], locks: LockClient, clock: Clock, tmp_path: Path
) -> None:
    """The clock is set while all servers have granted the lock to somebody, and other processes want it."""
    path = tmp_path / "counted"
    store = Store(path)

    def counted() -> int:
        return sum(entry.kind == "write" for entry in store.entries())

    with crew(three, path, processes=3, tasks=5) as workers:
        for ahead in (HOUR, 0, -HOUR, 0):
            before = counted()
            await until(lambda before=before: counted() >= before + 30, within=60)
            lease = await granted_by_all(locks, redises)
            seen = store.read(lease.token, monotonic())
            await set_clock(clock, redises, ahead)
            await check_that_it_is_kept(locks, redises)
            store.write(lease.token, seen + 1)
            left = monotonic()
            lease.check()
            store.left(lease.token, left)
            await lease.release()
        before = counted()
        await until(lambda: counted() >= before + 30, within=60)
        path.with_suffix(".over").touch()
        await until(lambda: all(worker.poll() is not None for worker in workers), within=60)
        assert [worker.returncode for worker in workers] == [0] * len(workers)
    check(store.entries())
    assert {entry.pid for entry in store.entries()} == {os.getpid(), *(worker.pid for worker in workers)}


async def set_clock(clock: Clock, redises: list[Redis], ahead: float) -> None:
    """Set the clock; return when the first server is that many seconds ahead of the second."""

    async def is_set() -> bool:
        first, second = [(await redis.time())[0] for redis in redises[:2]]
        return abs(first - second - ahead) < 10

    clock.set(ahead)
    await until(is_set)


async def check_that_it_is_kept(locks: LockClient, redises: list[Redis]) -> None:
    """The lock that *locks* has."""
    async with LockClient.redlock(redises, config=LockConfig(lease=LEASE), longest_lease=LEASE) as other:
        for _ in range(3):
            await renewed(locks, 1)
            assert await other.lock(NAME).try_lock() is None


async def granted_by_all(locks: LockClient, redises: list[Redis]) -> Lease:
    """Acquire until all servers grant the lock: one on which another client still has it does not grant it later."""
    while True:
        lease = await locks.lock(NAME).acquire()
        if len({await redis.hget(NAME, "aiolock:acquisition") for redis in redises}) == 1:
            return lease
        await lease.release()


async def test_a_holder_by_a_bare_majority_may_lose_it_to_a_clock_and_is_told(
    redises: list[Redis], clock: Clock
) -> None:
    """The next renewal tells the holder; until then two believe to have the lock, the second with a greater token."""
    async with LockClient.redlock(redises) as locks, LockClient.redlock(redises) as other:
        lease = await locks.lock(NAME).acquire()
        await everywhere(redises, NAME)
        # That server might have been away at the grant.
        await redises[2].delete(NAME)
        assert await other.lock(NAME).try_lock() is None
        await set_clock(clock, redises, HOUR)
        heir = await other.lock(NAME).acquire()
        assert heir.token > lease.token
        with pytest.raises(LeaseLostError):
            await lease.renew()
        assert await lease.lost == "taken"
        await heir.release()


async def test_a_clock_that_is_set_back_costs_a_vote_for_no_longer_than_a_restart(
    three: list[Server], redises: list[Redis], locks: LockClient, clock: Clock
) -> None:
    """Without a limit, a server whose memory begins an hour ahead of its clock would have no vote for an hour."""
    three[2].pause()
    seconds, _ = await redises[0].time()
    await remember(redises[0], int(seconds) * 1000)
    await set_clock(clock, redises, -HOUR)
    began = monotonic()
    async with locks.lock(NAME).hold(wait=SOON):
        assert monotonic() - began > LEASE * 0.9
    three[2].resume()
