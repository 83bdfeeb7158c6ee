"""Every block of Python in the documentation runs, and prints what the page says."""

import ast
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from inspect import CO_COROUTINE
from pathlib import Path
from types import ModuleType

import pytest
from redis.asyncio import Redis

import aiolock
from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.docs.pages import BLOCKS, ROOT, Block, Code, examples
from tests.support.logs import as_before

LANGUAGES = {"python", "sh", "java", "lua", "mermaid", "text"}


async def run_part(part: Code, place: str, server: Server, names: dict[str, object]) -> None:
    """Run one piece of code; its lines are numbered as in the page, and it may use `await` anywhere."""
    source = "\n" * (part.line - 1) + on(server, part.text)
    code = compile(source, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(code, names)
    if code.co_flags & CO_COROUTINE:
        await outcome


async def run_fragment(block: Block, server: Server, names: dict[str, object]) -> None:
    for part in (*block.given, block.code, *block.then):
        await run_part(part, str(block.page.path), server, names)


def on(server: Server, source: str) -> str:
    return source.replace("redis://localhost:6379", server.url).replace("redis://localhost", server.url)


def run_process(command: Iterable[str], directory: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    ran = subprocess.run(
        [sys.executable, "-W", "error", *command],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def source_of(block: Block, server: Server) -> str:
    return on(server, "\n".join(part.text for part in (*block.given, block.code, *block.then)))


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Pages, and the frameworks on them, configure logging for the whole process."""
    with as_before():
        yield


@pytest.fixture
def names(locks: LockClient, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The names that a fragment finds ready, in a module of its own."""
    # Frameworks look up the module of a function.
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = vars(module)
    found.update(aiolock=aiolock, asyncio=asyncio, locks=locks, redis=redis)
    return found


@pytest.mark.parametrize("block", examples("fragment"), ids=lambda block: block.place)
@pytest.mark.usefixtures("logging_as_before")
async def test_fragment_runs(
    block: Block, server: Server, names: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    await run_fragment(block, server, names)
    if block.output is not None:
        assert capsys.readouterr().out == block.output


@pytest.mark.parametrize("block", examples("program"), ids=lambda block: block.place)
def test_program_runs(block: Block, server: Server, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(source_of(block, server), "utf-8")
    printed = run_process([str(program)], tmp_path)
    if block.output is not None:
        assert printed == block.output


def test_tests_pass(server: Server, tmp_path: Path) -> None:
    """Each block is a file of one run, named by its page and line."""
    blocks = examples("tests")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["aiolock.testing"]\n', "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n", "utf-8")
    for block in blocks:
        path = tmp_path / f"test_{re.sub(r'[^0-9A-Za-z]+', '_', block.place)}.py"
        path.write_text(source_of(block, server), "utf-8")
    report = run_process(["-m", "pytest", "-rA", "-p", "no:cacheprovider", "."], tmp_path)
    assert len(set(re.findall(r"^PASSED (\w+\.py)::", report, re.MULTILINE))) == len(blocks), report


def test_there_are_examples_of_each_kind() -> None:
    assert {block.kind for block in BLOCKS if block.language == "python"} == {"program", "fragment", "tests"}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_language_is_one_that_is_checked(block: Block) -> None:
    assert block.language in LANGUAGES, "a block that no test looks at may be wrong"
