"""
The programs of the documentation have no errors of types for those who copy them and run ``mypy --strict``.

mypy is in the environment of `make lint`, and not in that of the tests, where there is no such test to skip.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, examples

# Django has no types of its own.
PROGRAMS = [block for block in examples("program") if "django" not in block.code.text] if find_spec("mypy") else []


def check(programs: list[Block], directory: Path) -> list[str]:
    """The errors of mypy, each with the place of its program, whose lines are numbered as in the page."""
    files = {f"program_{number}.py": block for number, block in enumerate(programs)}
    for name, block in files.items():
        (directory / name).write_text("\n" * (block.code.line - 1) + block.code.text, "utf-8")
    options = ["--strict", "--no-pretty", "--hide-error-context", "--no-error-summary", "--cache-dir", "cache"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        cwd=directory,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    errors = [line.partition(":") for line in ran.stdout.splitlines()]
    return [f"{files[name].page.name}:{rest}" if name in files else name + rest for name, _, rest in errors]


if PROGRAMS:

    @pytest.mark.timeout(300)
    def test_programs_have_no_errors_of_types(tmp_path: Path) -> None:
        assert check(PROGRAMS, tmp_path) == []
