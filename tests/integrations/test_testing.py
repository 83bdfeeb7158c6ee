"""The pytest plugin `aiolock.testing`, in runs of pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from aiolock._embedded_server import Server
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

CONFTEST = 'pytest_plugins = ["aiolock.testing"]\n'
HEAD = """
import asyncio
import pytest
import redis
import aiolock
from aiolock.testing import Server, lose
"""
USES = """
{mark}
async def test_every_fixture(lock_server: Server, lock_url: str, lock_config: aiolock.LockConfig, locks) -> None:
    assert lock_url == lock_server.url
    assert lock_config == aiolock.LockConfig()
    assert isinstance(locks, aiolock.LockClient)
    async with locks.lock("a") as lease:
        assert lease.token > 0
        with pytest.raises(aiolock.LeaseLostError):
            async with locks.lock("b"):
                await lose(locks, "b")
                await asyncio.sleep(60)
    lock_server.restart()  # It may be; and the client finds it again.
    async with locks.lock("a"):
        pass


{mark}
async def test_the_server_was_flushed(locks, lock_url: str) -> None:
    assert left_at(lock_url) == 0
    async with locks.lock("a"):
        pass
    assert left_at(lock_url) > 0  # The last token, for the next that comes.


def test_also_without_a_client(lock_url: str) -> None:
    assert left_at(lock_url) == 0
    with redis.Redis.from_url(lock_url) as client:
        client.set("left", "behind")


def test_also_by_the_server_alone(lock_server: Server) -> None:
    assert left_at(lock_server.url) == 0


def left_at(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return client.dbsize()
"""
ANYIO_BACKEND = """
@pytest.fixture
def anyio_backend():
    return {backend!r}
"""


def run_pytest(
    directory: Path, tests: str, *, plugins: tuple[str, ...] = ("asyncio",), conftest: str = CONFTEST, ini: str = ""
) -> str:
    """The output of pytest for *tests*, with no other plugins."""
    (directory / "conftest.py").write_text(conftest)
    (directory / "test_it.py").write_text(HEAD + tests)
    usual = "asyncio_default_fixture_loop_scope = function\n" if "asyncio" in plugins else ""
    (directory / "pytest.ini").write_text(f"[pytest]\n{usual}{ini}")
    ran = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "pytest",
            "-q",
            *(f"-p{name}" for name in ("no:cacheprovider", *plugins)),
        ],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ran.stdout + ran.stderr


def passed(report: str, count: int) -> bool:
    """Whether that many tests have passed, and nothing else happened."""
    assert f"\n{count} passed in" in report, report
    return True


def test_with_pytest_asyncio_in_strict_mode(tmp_path: Path) -> None:
    assert passed(run_pytest(tmp_path, USES.format(mark="@pytest.mark.asyncio")), 4)


def test_with_pytest_asyncio_in_auto_mode(tmp_path: Path) -> None:
    assert passed(run_pytest(tmp_path, USES.format(mark=""), ini="asyncio_mode = auto"), 4)


def test_in_a_loop_that_tests_share(tmp_path: Path) -> None:
    tests = """
@pytest.mark.asyncio(loop_scope="{scope}")
class Test{scope}:
    async def test_it(self, locks) -> None:
        async with locks.lock("a"):
            pass

    async def test_it_again(self, locks) -> None:
        async with locks.lock("a"):
            pass
"""
    scopes = ("class", "module", "package", "session")
    assert passed(run_pytest(tmp_path, "".join(tests.format(scope=scope) for scope in scopes)), 8)


def test_in_a_loop_that_all_tests_share_by_default(tmp_path: Path) -> None:
    tests = USES.format(mark="@pytest.mark.asyncio")
    assert passed(run_pytest(tmp_path, tests, ini="asyncio_default_test_loop_scope = session"), 4)


def test_with_the_plugin_of_anyio(tmp_path: Path) -> None:
    tests = ANYIO_BACKEND.format(backend="asyncio") + USES.format(mark="@pytest.mark.anyio")
    assert passed(run_pytest(tmp_path, tests, plugins=("asyncio", "anyio")), 4)


def test_with_the_plugin_of_anyio_alone(tmp_path: Path) -> None:
    """Where pytest-asyncio is not even installed."""
    tests = ANYIO_BACKEND.format(backend="asyncio") + USES.format(mark="@pytest.mark.anyio")
    conftest = "import sys\nsys.modules['pytest_asyncio'] = None\n" + CONFTEST
    assert passed(run_pytest(tmp_path, tests, plugins=("anyio",), conftest=conftest), 4)


def test_on_trio_the_plugin_says_what_to_do(tmp_path: Path) -> None:
    tests = ANYIO_BACKEND.format(backend="trio") + "@pytest.mark.anyio\nasync def test_it(locks) -> None: pass"
    report = run_pytest(tmp_path, tests, plugins=("anyio",))
    assert "aiolock runs on asyncio: let a fixture `anyio_backend` return 'asyncio'" in report


@pytest.mark.parametrize("ini", ["asyncio_mode = auto", "addopts = --asyncio-mode=auto"])
def test_where_pytest_asyncio_takes_the_tests_of_anyio_it_says_what_to_do(ini: str, tmp_path: Path) -> None:
    tests = ANYIO_BACKEND.format(backend="asyncio") + "@pytest.mark.anyio\nasync def test_it(locks) -> None: pass"
    report = run_pytest(tmp_path, tests, plugins=("asyncio", "anyio"), ini=ini)
    assert "takes this test from anyio's plugin: set asyncio_mode = strict" in report


def test_without_any_plugin_for_coroutines_it_says_what_to_do(tmp_path: Path) -> None:
    report = run_pytest(tmp_path, "def test_it(locks): pass", plugins=())
    assert "needs pytest-asyncio" in report


def test_the_server_and_the_configuration_can_be_others(server: Server, tmp_path: Path) -> None:
    tests = f"""
Server.start = None  # Nobody is to start a server of our own.


@pytest.fixture(scope="session")
def lock_url() -> str:
    return {server.url!r}


@pytest.fixture
def lock_config() -> aiolock.LockConfig:
    return aiolock.LockConfig(prefix="shop:")


@pytest.mark.asyncio
async def test_it(locks, lock_url: str) -> None:
    async with locks.lock("a"):
        with redis.Redis.from_url(lock_url) as client:
            assert client.exists("shop:a")
"""
    assert passed(run_pytest(tmp_path, tests), 1)


def test_only_the_database_of_the_url_is_emptied(server: Server, tmp_path: Path) -> None:
    tests = f"""
@pytest.fixture(scope="session")
def lock_url() -> str:
    return {f"{server.url}/15"!r}


def test_it(lock_url: str) -> None:
    with redis.Redis.from_url(lock_url) as client:
        assert client.keys() == []
"""
    with Redis.from_url(server.url) as ours, Redis.from_url(f"{server.url}/15") as theirs:
        ours.set("kept", 1)
        theirs.set("emptied", 1)
        assert passed(run_pytest(tmp_path, tests), 1)
        assert ours.exists("kept")


def test_frameworks_take_the_client_as_it_is(tmp_path: Path) -> None:
    tests = """
import httpx
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import Depends, FastAPI
from aiolock.aiohttp import LOCKS, setup, synchronized
from aiolock.fastapi import get_locks, lifespan, lock_for


@pytest.mark.asyncio
async def test_aiohttp(locks) -> None:
    @synchronized("a")
    async def handler(request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application()
    setup(app, "redis://127.0.0.1:1")
    app.router.add_post("/", handler)
    app[LOCKS] = locks
    async with TestClient(TestServer(app)) as client:
        assert (await client.post("/")).status == 200
        async with locks.lock("a"):
            assert (await client.post("/")).status == 409


@pytest.mark.asyncio
async def test_fastapi(locks) -> None:
    app = FastAPI(lifespan=lifespan("redis://127.0.0.1:1"))

    @app.post("/", dependencies=[lock_for("a")])
    async def endpoint() -> None: ...

    app.dependency_overrides[get_locks] = lambda: locks
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.post("/")).status_code == 200
        async with locks.lock("a", owner="somebody else"):  # The endpoint runs in the task of the test.
            assert (await client.post("/")).status_code == 409
"""
    assert passed(run_pytest(tmp_path, tests), 2)


def test_nothing_else_needs_pytest() -> None:
    script = """
import importlib, pkgutil, sys
sys.modules["pytest"] = None
import aiolock
for module in pkgutil.walk_packages(aiolock.__path__, "aiolock."):
    if module.name not in ("aiolock.testing", "aiolock.__main__"):
        importlib.import_module(module.name)
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120)
