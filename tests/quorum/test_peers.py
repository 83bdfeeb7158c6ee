"""A server crashes and comes back empty: with other libraries two clients hold the lock, with aiolock one."""

import asyncio
import os
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiolock._embedded_server import Server
from tests.quorum.redlocks import NAME

pytestmark = pytest.mark.slow

# They are installed without their dependencies, whose versions would differ from ours; `tests` has the rest.
OLD_ONES = ("redlock-ng==2.0.4", "aioredlock==0.7.3", "aioredis==1.3.1", "async-timeout==5.0.1", "attrs==25.3.0")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of their own for the other libraries."""
    target = tmp_path_factory.mktemp("redlocks")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--target", str(target), *OLD_ONES], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the other libraries cannot be installed: {done.stderr.strip()}")
    return target


@asynccontextmanager
async def who_wants_it(library: str, servers: list[Server], installed: Path) -> AsyncIterator[Process]:
    """A process that tries to acquire the lock, and keeps it."""
    urls = [server.url for server in servers]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.quorum.redlocks", library, *urls),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(installed))))},
        stdin=PIPE,
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        await process.communicate(b"\n")


async def answer(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


# The installation of the other libraries takes a while, too.
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("library", "second"),
    [("pottery", "acquired"), ("redlock-ng", "acquired"), ("aioredlock", "acquired"), ("aiolock", "refused")],
)
async def test_the_holders_when_a_server_comes_back_empty(
    mine: list[Server], of_mine: list[Redis], installed: Path, library: str, second: str
) -> None:
    mine[2].kill()
    async with who_wants_it(library, mine, installed) as one:
        assert await answer(one) == "acquired"
        mine[1].kill()
        mine[1].start()
        mine[2].start()
        async with who_wants_it(library, mine, installed) as other:
            assert await answer(other) == second
            assert await of_mine[0].keys(f"*{NAME}*"), "the first client still has the lock"
