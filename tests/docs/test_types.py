"""
The examples of the documentation have no errors of types when users copy them and run ``mypy --strict``.

mypy is in the environment of `make lint`, and not in that of the tests, where there is no such test to skip.
"""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, examples

OPTIONS = ("--strict", "--no-pretty", "--hide-error-context", "--no-error-summary", "--cache-dir", "cache")


def check(blocks: list[Block], source_of: Callable[[Block], str], directory: Path) -> list[str]:
    """The errors of mypy, each with the page and the first line of its block."""
    files = {f"block_{number}.py": block for number, block in enumerate(blocks)}
    for name, block in files.items():
        (directory / name).write_text(source_of(block), "utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *OPTIONS, *files],
        cwd=directory,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    errors = [line.partition(":") for line in ran.stdout.splitlines()]
    return [f"{files[name].place}: {error}" for name, _, error in errors if name in files]


def as_coroutine(block: Block) -> str:
    """A fragment with what it finds ready."""
    ready = "import asyncio\nimport aiolock\nfrom redis.asyncio import Redis\n"
    head = "async def block(locks: aiolock.LockClient, redis: Redis) -> None:\n"
    return ready + head + textwrap.indent(block.code.text, "    ")


if find_spec("mypy") is not None:

    @pytest.mark.timeout(300)
    def test_programs_have_no_errors_of_types(tmp_path: Path) -> None:
        # Django has no types.
        programs = [block for block in examples("program") if "django" not in block.code.text]
        assert check(programs, lambda block: block.code.text, tmp_path) == []

    @pytest.mark.timeout(300)
    def test_no_example_takes_a_lease_for_granted_that_may_be_none(tmp_path: Path) -> None:
        errors = check(examples("fragment"), as_coroutine, tmp_path)
        # The error shows that mypy has looked at the block.
        assert errors, "fragments use names of hidden comments"
        assert [error for error in errors if '"Lease | None"' in error] == []
