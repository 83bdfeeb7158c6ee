"""A test starts programs in Python, and lines go to and fro."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.trees import PACKAGE

Program = subprocess.Popen[str]


@contextmanager
def python(*arguments: str, stderr: int | None = None) -> Iterator[Program]:
    """Python runs with these arguments until the end of the block, at most."""
    with subprocess.Popen(
        [sys.executable, "-u", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent)},
        text=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def said(running: Program) -> str:
    """The next line that the program prints; the calling thread waits for it."""
    assert running.stdout is not None
    return running.stdout.readline().strip()


def rest(running: Program) -> str:
    """All that it prints until its end."""
    assert running.stdout is not None
    return running.stdout.read()


def tell(running: Program, line: str = "") -> None:
    """The program can read the line."""
    assert running.stdin is not None
    running.stdin.write(f"{line}\n")
    running.stdin.flush()
