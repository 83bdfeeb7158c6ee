"""Tests start programs in Python, and exchange lines with them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.trees import PACKAGE

Program = subprocess.Popen[str]


@contextmanager
def python(*arguments: str, stderr: int | None = None) -> Iterator[Program]:
    """Run Python with these arguments, until the end of the block at most."""
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
    """All further output of the program, until its end."""
    assert running.stdout is not None
    return running.stdout.read()


def tell(running: Program, line: str = "") -> None:
    """Send the line to the program."""
    assert running.stdin is not None
    running.stdin.write(f"{line}\n")
    running.stdin.flush()
