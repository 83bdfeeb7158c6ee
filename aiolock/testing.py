"""
Tools for tests of code that uses aiolock: a pytest plugin, and faults to cause.

``pytest_plugins = ["aiolock.testing"]`` in your topmost ``conftest.py`` gives the fixtures `lock_server`, `lock_url`,
`lock_config` and `locks`, for pytest-asyncio and for anyio's plugin alike. Needs the extra ``server``, unless you
override `lock_url`. The faults need no plugin.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from time import monotonic
from typing import TypeVar

import pytest
import redis

import aiolock._origin  # noqa: F401 - refuses a folder that another package shares
from aiolock import (
    AsyncLeader,
    AsyncMultiLock,
    AsyncOnce,
    AsyncReadLock,
    AsyncReadWriteLock,
    AsyncRLock,
    AsyncSemaphore,
    AsyncWriteLock,
    LockClient,
    LockConfig,
    NotHeldError,
)
from aiolock._backend import Backend, Call, Notifier
from aiolock._embedded_server import Server
from aiolock._keys import LockKeys
from aiolock._types import ClientStatistics, whole_number

try:
    import pytest_asyncio
except ImportError:
    pytest_asyncio = None  # type: ignore[assignment]

__all__ = ["Server", "delayed_renewals", "failing_commands", "lose"]

# Users import it from here.
Server.__module__ = __name__


@pytest.fixture(scope="session")
def lock_server() -> Iterator[Server]:
    """A server for the whole run; a test that stops or pauses it must start or resume it again."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def lock_url(lock_server: Server) -> str:
    """
    The server's URL. Override it to use another one: EVERY KEY of that database is deleted before each test.

    Each worker of pytest-xdist needs a database of its own.
    """
    return lock_server.url


@pytest.fixture
def lock_config() -> LockConfig:
    """The configuration of `locks`; override it for your own."""
    return LockConfig()


@pytest.fixture(autouse=True)
def _flushed(request: pytest.FixtureRequest) -> None:
    """Empty the database before each test that uses it, but after the fixtures of wider scopes."""
    if not {"lock_server", "lock_url"}.isdisjoint(request.fixturenames):
        with redis.Redis.from_url(request.getfixturevalue("lock_url")) as flusher:
            flusher.flushdb()


@pytest.fixture
def locks(request: pytest.FixtureRequest, lock_url: str, lock_config: LockConfig) -> LockClient:
    """A `LockClient` in the event loop of the test; closed after it."""
    client: LockClient = request.getfixturevalue(_client_fixture(request))
    return client


def _client_fixture(request: pytest.FixtureRequest) -> str:
    """The name of the fixture that makes the client in the event loop of the test."""
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
    """Whether pytest-asyncio is installed and runs every coroutine, also tests that are marked for anyio's plugin."""
    try:
        mode = config.getoption("asyncio_mode", None) or config.getini("asyncio_mode")
    except ValueError:
        return False
    return str(mode) == "auto"


def _client() -> Callable[[str, LockConfig], AsyncIterator[LockClient]]:
    """A new function for each fixture, because the plugins set attributes on it."""

    async def client(lock_url: str, lock_config: LockConfig) -> AsyncIterator[LockClient]:
        async with LockClient.from_url(lock_url, config=lock_config) as locks:
            yield locks

    return client


_locks_on_anyio = pytest.fixture(name="_locks_on_anyio")(_client())
if pytest_asyncio is not None:
    for _scope in ("function", "class", "module", "package", "session"):
        _name = f"_locks_on_asyncio_{_scope}"
        globals()[_name] = pytest_asyncio.fixture(name=_name, loop_scope=_scope)(_client())


Leased = AsyncRLock | AsyncReadLock | AsyncWriteLock | AsyncSemaphore
Losable = Leased | AsyncMultiLock | AsyncReadWriteLock | AsyncLeader | AsyncOnce


async def lose(locks: LockClient, lock: str | Losable) -> None:
    """
    Take *lock* from its holder in *locks*, as an eviction or a flush of the server would.

    *lock* is the name of a lock, or the handle of any primitive that has leases. All holders in this client lose it:
    all readers of a read lock, all holders of a semaphore's permits, the readers and the writer of a read-write lock.
    With a multi lock, this client loses all its locks; to lose only one of them, give its name or its handle. Returns
    when the holders know of the loss (their `Lease.lost` is set, and their blocks are being cancelled), or have
    released the lock in the meantime.

    Raises:
        NotHeldError: this client does not hold the lock.
        TypeError: *lock* has no lease that could be lost, such as a counting semaphore or a latch; or *locks* is no
            `LockClient`.
    """
    _check_client(locks)
    session = locks._sessions.open()
    every = _keys_of(locks, lock)
    entries = [entry for keys in every if (entry := session.entries.get(keys.entry)) is not None]
    holds = [hold for entry in entries for hold in entry.holds.values()]
    if not holds:
        why = "this client holds no lock of this kind and name: acquire it, or pass the handle of another kind"
        raise NotHeldError(every[0].name, session.client, None, why)
    gone = {key for hold in holds for key in hold.claim.keys if key != hold.keys.tokens}
    # In a cluster the keys may be on several servers.
    for key in gone:
        for server in locks._quorum or (locks._redis,):
            await server.delete(key)
    session.check_holds(lambda key: key in gone)
    for hold in holds:
        # A released hold meets its loss at its release.
        if not hold.ended:
            await hold.until_lost()


def _keys_of(locks: LockClient, lock: object) -> Sequence[LockKeys]:
    """The keys of the locks of *locks* that *lock* consists of, each with leases of its own."""
    if isinstance(lock, str | AsyncLeader):
        return [locks.lock(lock if isinstance(lock, str) else lock.name)._keys]
    if isinstance(lock, AsyncMultiLock):
        return [each._keys for each in lock._members]
    if isinstance(lock, AsyncReadWriteLock):
        return [lock.read._keys, lock.write._keys]
    if not isinstance(lock, Leased | AsyncOnce):
        raise TypeError(f"lose takes a name, or the handle of a primitive that has leases, not {lock!r}")
    return [lock._keys]


class Fault:
    """
    A backend that passes everything to another one; a fault overrides the methods that it changes.

    `around` puts it between a client and its scripts. Messages do not pass through it.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend: Backend = backend
        self.notifier: Notifier = backend.notifier
        self.apart: bool = backend.apart

    def submit(self, call: Call) -> None:
        self.backend.submit(call)

    def prepare(self, keys: tuple[str, ...]) -> None:
        self.backend.prepare(keys)

    def withdraw(self, call: Call) -> bool:
        return self.backend.withdraw(call)

    def statistics(self) -> ClientStatistics:
        return self.backend.statistics()

    async def drained(self) -> None:
        await self.backend.drained()

    async def aclose(self) -> None:
        await self.backend.aclose()


F = TypeVar("F", bound=Fault)


def _check_client(locks: object) -> None:
    if not isinstance(locks, LockClient):
        raise TypeError(f"faults are caused in an aiolock.LockClient, not in {locks!r}")


def around(locks: LockClient, fault: Callable[[Backend], F]) -> AbstractContextManager[F]:
    """During the block, wrap the backend of *locks* in *fault*."""
    _check_client(locks)
    return locks._sessions.through(fault)


@contextmanager
def delayed_renewals(locks: LockClient) -> Iterator[None]:
    """
    During the block, hold the renewals of *locks* back, as a slow network would, and send them afterwards.

    A hold whose lease ends meanwhile is lost, with the reason ``"unreachable"``. `Lease.renew` raises `BackendError`
    after its usual time limit.
    """
    with around(locks, _Delay) as delay:
        try:
            yield
        finally:
            delay.send()


class _Delay(Fault):
    """Holds renewals back; they still fail at their deadline."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._kept: list[tuple[Call, asyncio.TimerHandle]] = []

    def submit(self, call: Call) -> None:
        if not call.script.urgent:
            self.backend.submit(call)
            return
        patience = call.deadline - monotonic()
        self._kept.append((call, asyncio.get_running_loop().call_later(patience, _fail, call, "a test holds it back")))

    def send(self) -> None:
        """Send the renewals that have not failed yet."""
        for call, timer in self._kept:
            timer.cancel()
            if not call.ended:
                self.backend.submit(call)


@contextmanager
def failing_commands(locks: LockClient, most: int | None = 1) -> Iterator[None]:
    """
    Let the next *most* commands of *locks* (``None``: all in the block) fail with a `BackendError` at once.

    It is the same error as if Redis did not answer in time. Acquires, renewals and questions are not sent; a release is
    sent, but its answer is missing. Locks that are renewed together are renewed by one command.

    Raises:
        TypeError, ValueError: *most* is no whole number of 1 or more; or *locks* is no `LockClient`.
    """
    left = float("inf") if most is None else whole_number(most, "most", least=1)
    with around(locks, partial(_Failure, left)):
        yield


class _Failure(Fault):
    """Fails the next commands, as many as *left*."""

    def __init__(self, left: float, backend: Backend) -> None:
        super().__init__(backend)
        self._left = left

    def submit(self, call: Call) -> None:
        fails = self._left > 0
        self._left -= 1
        if not fails or (call.script.publishes and call.script.changes):
            self.backend.submit(call)
        if fails:
            _fail(call, "a test made it fail")


def _fail(call: Call, why: str) -> None:
    call.fail(ConnectionError("aiolock.testing"), why)
