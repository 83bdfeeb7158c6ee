"""
For tests of code that uses aiolock: a pytest plugin, and faults to cause.

``pytest_plugins = ["aiolock.testing"]`` in your topmost ``conftest.py`` gives the fixtures `lock_server`, `lock_url`,
`lock_config` and `locks`, for pytest-asyncio and for anyio's plugin alike. Needs the extra ``server``, unless you
override `lock_url`. The faults need no plugin.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from time import monotonic

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
    import pytest_asyncio
except ImportError:  # Then nobody's tests need it.
    pytest_asyncio = None  # type: ignore[assignment]

__all__ = ["Server", "delayed_renewals", "failing_commands", "lose"]


@pytest.fixture(scope="session")
def lock_server() -> Iterator[Server]:
    """A server of our own for the whole run; a test that stops or pauses it starts or resumes it again."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def lock_url(lock_server: Server) -> str:
    """Where the server is. Override it for another one: EVERY KEY of that database is deleted before each test."""
    return lock_server.url


@pytest.fixture
def lock_config() -> LockConfig:
    """The configuration of `locks`; override it for your own."""
    return LockConfig()


@pytest.fixture(autouse=True)
def _flushed(request: pytest.FixtureRequest) -> None:
    """Empty the database before each test that uses it; fixtures of other scopes than a test's were there before."""
    if "lock_url" in request.fixturenames:
        with redis.Redis.from_url(request.getfixturevalue("lock_url")) as flusher:
            flusher.flushdb()


@pytest.fixture
def locks(request: pytest.FixtureRequest, lock_url: str, lock_config: LockConfig) -> LockClient:
    """A `LockClient` in the event loop of the test; closed after it."""
    client: LockClient = request.getfixturevalue(_client_fixture(request))
    return client


def _client_fixture(request: pytest.FixtureRequest) -> str:
    """The fixture that makes the client in the loop in which the test runs."""
    if "anyio_backend" in request.fixturenames:
        if request.getfixturevalue("anyio_backend_name") != "asyncio":
            pytest.fail("aiolock runs on asyncio: let a fixture `anyio_backend` return 'asyncio'")
        if _is_auto(request.config):
            pytest.fail("pytest-asyncio in auto mode takes this test from anyio's plugin: set asyncio_mode = strict")
        return "_locks_on_anyio"
    try:
        scope = request.config.getini("asyncio_default_test_loop_scope")
    except ValueError:
        pytest.fail("the fixture `locks` needs pytest-asyncio, or a test that anyio's plugin runs")
    marker = request.node.get_closest_marker("asyncio")
    given = marker and (marker.kwargs.get("loop_scope") or marker.kwargs.get("scope"))
    return f"_locks_on_asyncio_{given or scope}"


def _is_auto(config: pytest.Config) -> bool:
    """Whether pytest-asyncio is there and runs every coroutine, also those that are marked for anyio's plugin."""
    try:
        mode = config.getoption("asyncio_mode", None) or config.getini("asyncio_mode")
    except ValueError:
        return False
    return str(mode) == "auto"


def _client() -> Callable[[str, LockConfig], AsyncIterator[LockClient]]:
    """A new function for each fixture: the plugins leave their marks on it."""

    async def client(lock_url: str, lock_config: LockConfig) -> AsyncIterator[LockClient]:
        async with LockClient.from_url(lock_url, config=lock_config) as locks:
            yield locks

    return client


_locks_on_anyio = pytest.fixture(name="_locks_on_anyio")(_client())
if pytest_asyncio is not None:
    for _scope in ("function", "class", "module", "package", "session"):
        _name = f"_locks_on_asyncio_{_scope}"
        globals()[_name] = pytest_asyncio.fixture(name=_name, loop_scope=_scope)(_client())


async def lose(locks: LockClient, name: str) -> None:
    """
    Take lock *name* from whoever holds it by *locks*, as an eviction or a flush of the server would.

    Returns when the holder has been told: its `Lease.lost` is set, the cancellation of its block on the way. Or when
    the holder gave it back meanwhile.

    Raises:
        NotHeldError: nobody holds it by this client.
    """
    core = locks._runtime.open_core()
    keys = locks.lock(name)._keys
    hold = core.keeper.holds.on(keys.lock)
    if hold is None:
        raise NotHeldError(name, core.client, None)
    await locks._redis.delete(keys.lock)
    if hold.ended:  # Given back meanwhile: its release finds it lost, or came before.
        return
    core.keeper.check(lambda key: key == keys.lock)
    await hold.until_lost()


@contextmanager
def delayed_renewals(locks: LockClient) -> Iterator[None]:
    """
    Keep the renewals of *locks* back for the time of the block, as a slow network would; then they are sent.

    A hold whose lease ends meanwhile is lost, its reason ``"unreachable"``. A `Lease.renew` fails with a
    `BackendError` when its time is over.
    """
    kept: list[_Kept] = []

    def submit(lanes: Lanes, call: Call) -> None:
        if call.urgent:
            kept.append(_Kept(lanes, call))
        else:
            lanes.submit(call)

    try:
        with _tampering(locks, submit):
            yield
    finally:
        for each in kept:
            each.send()


class _Kept:
    """A call that is kept back; it fails in time all the same."""

    def __init__(self, lanes: Lanes, call: Call) -> None:
        self._lanes = lanes
        self._call = call
        self._timer = asyncio.get_running_loop().call_later(call.deadline - monotonic(), self._fail)

    def send(self) -> None:
        self._timer.cancel()
        if not self._call.ended:
            self._lanes.submit(self._call)

    def _fail(self) -> None:
        self._call.fail(TimeoutError("aiolock.testing"), "a test keeps it back")


@contextmanager
def failing_commands(locks: LockClient, most: int | None = 1) -> Iterator[None]:
    """
    Let the next *most* commands of *locks* (``None``: every one in the block) fail with a `BackendError` at once.

    It is what they fail with when Redis does not answer in time. Acquires, renewals and questions are not sent; a
    release is, as it would be: only its answer is missing. Locks that are renewed together are renewed by one command.

    Raises:
        ValueError: *most* is less than 1.
    """
    if most is not None and most < 1:
        raise ValueError(f"most must be 1 or more, or None for every command, not {most!r}")
    left = float("inf") if most is None else most

    def submit(lanes: Lanes, call: Call) -> None:
        nonlocal left
        fails = left > 0
        left -= 1
        if not fails or call.script.publishes:
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
