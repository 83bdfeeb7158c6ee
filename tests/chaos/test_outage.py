"""A server that is gone: all who wait for a lock learn it together, and whoever comes later in time."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, BackendError, LockClient, LockConfig
from tests.support.observe import until
from tests.support.proxy import Proxy
from tests.support.waiters import Waiters

NAME = "outage"
LEASE = 1.5  # Of the holder, which another client is: when it is over, the head of the queue asks the server.
TIMEOUT = 0.6
MANY = 20
OUTAGES = ["refused", "silent"]


class Outage:
    """The server is gone for one client, in one of two ways."""

    def __init__(self, proxy: Proxy, kind: str) -> None:
        self._proxy = proxy
        self._refused = kind == "refused"

    async def begin(self) -> None:
        if self._refused:
            await self._proxy.refuse()
            self._proxy.reset_all()
        else:
            self._proxy.black_hole()

    async def end(self) -> None:
        if self._refused:
            await self._proxy.accept()
        else:
            self._proxy.restore()


@pytest.fixture(params=OUTAGES)
def outage(request: pytest.FixtureRequest, proxy: Proxy) -> Outage:
    return Outage(proxy, request.param)


@pytest.fixture
async def client(through: Redis) -> AsyncIterator[LockClient]:
    async with LockClient(through, config=LockConfig(command_timeout=TIMEOUT, release_timeout=TIMEOUT)) as running:
        yield running


async def failure(lock: AsyncRLock) -> tuple[BackendError, float]:
    """How an acquire fails, and when."""
    with pytest.raises(BackendError) as raised:
        await lock.acquire()
    return raised.value, monotonic()


async def test_all_who_wait_learn_that_the_server_is_gone_together_and_each_by_an_error_of_its_own(
    locks: LockClient, client: LockClient, outage: Outage
) -> None:
    lock = client.lock(NAME)
    await locks.lock(NAME).acquire(lease=LEASE)
    failing = [asyncio.create_task(failure(lock)) for _ in range(MANY)]
    await until(lambda: client.statistics().parked == MANY and client.statistics().pending == 0)
    gone = monotonic()
    await outage.begin()
    await asyncio.wait(failing, timeout=LEASE + TIMEOUT + 5)
    errors, ends = zip(*(task.result() for task in failing), strict=True)
    assert max(ends) - min(ends) < TIMEOUT / 2
    assert max(ends) - gone < LEASE + TIMEOUT + 1
    assert len(set(map(id, errors))) == MANY
    assert len({id(error.__cause__) for error in errors}) == 1
    assert errors[0].__cause__ is not None
    assert len({str(error) for error in errors}) == 1
    assert client.statistics().parked == 0
    await outage.end()


async def test_whoever_comes_during_an_outage_does_not_wait_behind_those_who_came_before(
    locks: LockClient, client: LockClient, outage: Outage
) -> None:
    lock = client.lock(NAME)
    await locks.lock(NAME).acquire(lease=LEASE)
    async with Waiters(client, NAME) as waiters:
        await waiters.park(MANY)
        await outage.begin()
        await until(lambda: client.statistics().pending > 0)  # The head asks, or the link was found to be broken.
        for comers in (1, 5):  # The first meets those who wait; the others have nobody before them.
            started = monotonic()
            ends = await asyncio.gather(*(asyncio.create_task(failure(lock)) for _ in range(comers)))
            assert max(end for _, end in ends) - started < TIMEOUT + 0.5
        assert {type(task.exception()) for task in waiters.tasks} == {BackendError}
    await outage.end()


async def test_locks_are_granted_again_when_the_server_is_back(
    locks: LockClient, client: LockClient, outage: Outage
) -> None:
    lock = client.lock(NAME)
    await locks.lock(NAME).acquire(lease=LEASE)
    async with Waiters(client, NAME) as waiters:
        await waiters.park(MANY)
        await outage.begin()
        await asyncio.wait(waiters.tasks, timeout=LEASE + TIMEOUT + 5)
        assert {type(task.exception()) for task in waiters.tasks} == {BackendError}
    await failure(lock)
    await outage.end()
    tasks = [asyncio.create_task(hold_once(lock)) for _ in range(MANY)]
    await asyncio.wait_for(asyncio.gather(*tasks), 5)
    assert client.statistics().held == client.statistics().parked == 0
    assert not await lock.locked()


async def hold_once(lock: AsyncRLock) -> None:
    async with lock:
        pass
