"""
For tests of code that uses aiolock: a pytest plugin, and faults to cause.

``pytest_plugins = ["aiolock.testing"]`` in your ``conftest.py`` gives the fixtures `lock_server`, `lock_url`,
`lock_config` and `locks`, for pytest-asyncio and for anyio's plugin alike. Needs the extra ``server``, unless you
override `lock_url`.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from aiolock._backend import Topology
from aiolock._call import Call
from aiolock._client import LockClient
from aiolock._config import LockConfig
from aiolock._errors import NotHeldError
from aiolock._lanes import Lanes
from aiolock._server import Server

try:
    from pytest_asyncio import fixture as asyncio_fixture
except ImportError:  # Then nobody's tests need it.
    asyncio_fixture = pytest.fixture

__all__ = ["delayed_renewals", "failing_commands", "lose"]


@pytest.fixture(scope="session")
def lock_server() -> Iterator[Server]:
    """A server of our own for the whole run."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def lock_url(lock_server: Server) -> str:
    """Where the server is. Override it to test on another one: it is flushed before each test that uses `locks`."""
    return lock_server.url


@pytest.fixture
def lock_config() -> LockConfig:
    """The configuration of `locks`; override it for your own."""
    return LockConfig()


@pytest.fixture
def locks(request: pytest.FixtureRequest, lock_url: str) -> LockClient:
    """A `LockClient` in the event loop of the test, on a server that was flushed."""
    with redis.Redis.from_url(lock_url) as flusher:
        flusher.flushall()
    plugin = "_locks_on_anyio" if "anyio_backend" in request.fixturenames else "_locks_on_asyncio"
    client: LockClient = request.getfixturevalue(plugin)
    return client


async def _locks(lock_url: str, lock_config: LockConfig) -> AsyncIterator[LockClient]:
    async with LockClient.from_url(lock_url, config=lock_config) as client:
        yield client


_locks_on_anyio = pytest.fixture(name="_locks_on_anyio")(_locks)
_locks_on_asyncio = asyncio_fixture(name="_locks_on_asyncio")(_locks)


async def lose(locks: LockClient, name: str) -> None:
    """
    Take lock *name* from whoever holds it by *locks*, as an eviction or a flush of the server would.

    Returns when the holder has been told: its `Lease.lost` is set, the cancellation of its block on the way.

    Raises:
        NotHeldError: nobody holds it by this client.
    """
    core = locks._runtime.open_core()
    keys = locks.lock(name)._keys
    hold = core.keeper.holds.on(keys.lock)
    if hold is None:
        raise NotHeldError(name, core.client, None)
    await locks._redis.delete(keys.lock)
    core.keeper.check(lambda key: key == keys.lock)
    await hold.until_lost()


@contextmanager
def delayed_renewals(locks: LockClient) -> Iterator[None]:
    """
    Keep the renewals of *locks* back for the time of the block, as a slow network would; then they are sent.

    A hold whose lease ends meanwhile is lost, its reason ``"unreachable"``.
    """
    kept: list[tuple[Lanes, Call]] = []

    def submit(lanes: Lanes, call: Call) -> None:
        if call.urgent:
            kept.append((lanes, call))
        else:
            lanes.submit(call)

    try:
        with _tampering(locks, submit):
            yield
    finally:
        for lanes, call in kept:
            lanes.submit(call)


@contextmanager
def failing_commands(locks: LockClient, most: int | None = 1) -> Iterator[None]:
    """
    Let the next *most* commands of *locks* (``None``: every one in the block) fail with a `BackendError` at once.

    It is what they fail with when Redis does not answer in time. A release is sent all the same, as it would be.
    """
    left = float("inf") if most is None else most

    def submit(lanes: Lanes, call: Call) -> None:
        nonlocal left
        fails = left > 0
        left -= 1
        if not (fails and call.script.lasts):
            lanes.submit(call)
        if fails:
            call.fail(ConnectionError("aiolock.testing"), "a test wants it so")

    with _tampering(locks, submit):
        yield


class _Tampered:
    """Lanes of which the way in is another."""

    def __init__(self, lanes: Lanes, submit: Callable[[Lanes, Call], None]) -> None:
        self._lanes = lanes
        self._submit = submit

    def submit(self, call: Call) -> None:
        self._submit(self._lanes, call)

    def withdraw(self, call: Call) -> bool:
        return self._lanes.withdraw(call)


@contextmanager
def _tampering(locks: LockClient, submit: Callable[[Lanes, Call], None]) -> Iterator[None]:
    topology: Topology = locks._runtime.open_core()._backend._topology
    lanes_of = topology.lanes_of
    topology.lanes_of = lambda keys: _Tampered(lanes_of(keys), submit)  # type: ignore[method-assign, assignment, return-value]
    try:
        yield
    finally:
        topology.lanes_of = lanes_of  # type: ignore[method-assign]
