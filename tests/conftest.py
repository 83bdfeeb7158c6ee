"""The fixtures of all tests: servers, clients, a lock, a proxy; and the checks that no test leaves anything behind.

AIOLOCK_TEST_SERVERS  valkey, redis or all (the default: Valkey, and Redis where `ON_EVERY_SERVER` says so): which
                      servers to test on; or paths, with `:` between
AIOLOCK_LOOP          asyncio (the default) or uvloop
AIOLOCK_REQUIRE       set: a test without its program fails, and is not skipped
"""

import asyncio
import functools
import gc
import importlib.metadata
import inspect
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiolock import AsyncRLock, LockClient
from aiolock._embedded_server import Server
from tests.support.certificates import Certificates
from tests.support.proxy import Proxy

# redis-py looks for its own version whenever it makes a connection, and that takes longer than to connect.
importlib.metadata.version = functools.cache(importlib.metadata.version)

LOOPS = ("asyncio", "uvloop")
SERVERS = ("valkey", "redis")


def choice(variable: str, default: str, allowed: tuple[str, ...]) -> str:
    value = os.environ.get(variable, default)
    if value not in allowed:
        raise pytest.UsageError(f"{variable}={value}: choose one of {', '.join(allowed)}")
    return value


# `make test` leaves these tests out: they need other programs, many processes, or minutes, or `make lint` runs them.
FOR_TEST_ALL = frozenset(
    {
        *("deployments", "docs", "interop", "processes", "stall", "stateful", "support_tests", "topologies"),
        *("blocking/test_programs.py", "integrations/recipes", "test_architecture.py"),
        *("test_benchmarks.py", "test_cli_run.py", "test_demo.py", "test_doctor.py", "test_main.py"),
    }
)

# These tests can come out differently on another kind of server. They look at what the scripts do there, also when they
# are sent again or late, at its errors, messages and settings, at what Redisson reads and writes, and at how slots move
# and replicas follow. All other tests ask no server for more than these do, and run on one kind.
ON_EVERY_SERVER = frozenset(
    {
        *("deployments", "lua", "test_doctor.py", "test_rlock_api.py"),
        "simulation/test_model.py",
        *("interop/test_bytes.py", "interop/test_exclusion.py"),
        *("support_tests/test_server.py", "topologies/test_sentinel.py"),
        *(f"chaos/test_{name}.py" for name in ("late_requests", "limited_servers", "lost_replies", "passing_refusals")),
        *(f"chaos/test_{name}.py" for name in ("script_flush", "waking")),
        *(f"topologies/test_{name}.py" for name in ("cluster", "cluster_changes", "min_replicas", "replication")),
    }
)


@functools.cache
def is_named(path: Path, places: frozenset[str]) -> bool:
    """Whether the file, or a directory that it is in, is one of the *places*."""
    inside = path.relative_to(Path(__file__).parent)
    return any(each.as_posix() in places for each in (inside, *inside.parents))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the tests that `make test` leaves out: an import takes longer than many tests."""
    return (config.option.markexpr == "not slow" and is_named(collection_path, FOR_TEST_ALL)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests as slow that are for `make test-all` by place or server; leave out those that need no second one."""
    every_server = os.environ.get("AIOLOCK_TEST_SERVERS", "all") == "all"
    for item in items:
        if is_named(item.path, FOR_TEST_ALL) or (every_server and is_on_redis(item)):
            item.add_marker("slow")
    if every_server:
        spare = {item for item in items if is_on_redis(item) and not is_named(item.path, ON_EVERY_SERVER)}
        config.hook.pytest_deselected(items=list(spare))
        items[:] = [item for item in items if item not in spare]


def is_on_redis(item: pytest.Item) -> bool:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return parameters.get("server") == "redis"


def chosen_servers() -> tuple[str, ...]:
    value = os.environ.get("AIOLOCK_TEST_SERVERS", "all")
    if os.path.isabs(value):
        return tuple(value.split(os.pathsep))
    value = choice("AIOLOCK_TEST_SERVERS", "all", (*SERVERS, "all"))
    return SERVERS if value == "all" else (value,)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loop = choice("AIOLOCK_LOOP", "asyncio", LOOPS)
    if loop == "asyncio":
        return {loop: asyncio.new_event_loop}
    import uvloop

    return {loop: uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C end the programs that tests start, also when pytest runs in the background of a shell."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Names that are the same in every process: processes that share the tests out compare them."""
    return f"{argname}:{getattr(val, '__name__', type(val).__name__)}" if " at 0x" in repr(val) else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With AIOLOCK_REQUIRE set, a skip fails, unless a `skipif` mark made it: those are for platforms and versions."""
    report = yield
    declared = hasattr(report, "wasxfail") or any(item.iter_markers("skipif"))
    if report.skipped and os.environ.get("AIOLOCK_REQUIRE") and not declared:
        report.outcome = "failed"
        report.longrepr = f"AIOLOCK_REQUIRE is set, and this was skipped: {report.longrepr}"
    return report


@pytest.fixture(scope="session", params=chosen_servers())
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server for the whole session, shared: a test that stops, pauses or configures a server starts its own."""
    with Server(executable_of(request.param)) as running:
        yield running


def executable_of(chosen: str) -> str | None:
    """The program of a chosen server; `None` stands for the embedded Valkey."""
    if chosen == "valkey":
        return None
    executable = shutil.which("redis-server" if chosen == "redis" else chosen)
    if executable is None:
        pytest.skip("no redis-server on the path" if chosen == "redis" else f"no program {chosen}")
    return executable


@pytest.fixture
async def redis(server: Server) -> AsyncIterator[Redis]:
    """A client of the server, which is empty."""
    client = Redis.from_url(server.url)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
def own(server: Server) -> Iterator[Server]:
    """A server of the same kind for this test alone, which may configure, pause or stop it."""
    with Server(server._executable) as running:
        yield running


@pytest.fixture
async def locks(redis: Redis) -> AsyncIterator[LockClient]:
    async with LockClient(redis) as client:
        yield client


@pytest.fixture
def lock(locks: LockClient) -> AsyncRLock:
    return locks.lock("orders")


@pytest.fixture
async def other(redis: Redis) -> AsyncIterator[LockClient]:
    """Another client, which stands for another process."""
    async with LockClient(redis) as client:
        yield client


@pytest.fixture
async def proxy(server: Server, redis: Redis) -> AsyncIterator[Proxy]:
    """A proxy before the shared server, which `redis` has emptied."""
    async with Proxy(server.host, server.port) as running:
        yield running


@pytest.fixture
async def through(proxy: Proxy) -> AsyncIterator[Redis]:
    """A user's client behind the proxy."""
    client = Redis.from_url(proxy.url)
    yield client
    await client.aclose()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.written_to(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Fails a test that leaves a task behind after every other fixture has cleaned up."""
    # How fast the machine is does not matter.
    asyncio.get_running_loop().slow_callback_duration = 60
    own = asyncio.all_tasks()
    yield
    own.update(filter(None, [asyncio.current_task()]))
    # A task that was cancelled last needs some turns of the loop to end.
    for _ in range(10):
        if asyncio.all_tasks() <= own:
            return
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - own
    for task in left:
        task.cancel()
    await asyncio.wait(left, timeout=1)
    pytest.fail("tasks left behind:\n" + "\n".join(f"  {task!r}" for task in left))


@pytest.fixture(autouse=True)
def leave_nothing(request: pytest.FixtureRequest) -> None:
    """Puts `nothing_left` outermost around every coroutine test: it looks for tasks after the other fixtures."""
    if inspect.iscoroutinefunction(getattr(request.node, "function", None)):
        request.getfixturevalue("nothing_left")


def pytest_collection_finish() -> None:
    """Freeze the objects that exist now, which stay to the end: the collector need not look at them again."""
    gc.collect()
    gc.freeze()
