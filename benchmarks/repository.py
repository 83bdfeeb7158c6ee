"""This repository, as git knows it."""

import subprocess
from pathlib import Path

_HOME = Path(__file__).parents[1]


class GitError(Exception):
    """Why git does not tell."""


def git(*arguments: str) -> bytes:
    """The output of a command of git."""
    command = ["git", "-c", "safe.directory=*", "-C", str(_HOME), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise GitError("there is no git") from None
    except subprocess.CalledProcessError as error:
        raise GitError(f"git: {error.stderr.decode(errors='replace').strip()}") from None


def commit() -> str:
    """The commit of the package that is measured, and whether it was changed since."""
    try:
        changes = " with changes" if git("status", "--porcelain", "--", "aiolock") else ""
        return f"{git('rev-parse', '--short', 'HEAD').decode().strip()}{changes}"
    except GitError:
        return "unknown"
