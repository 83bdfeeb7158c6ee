"""A test may need the history of this repository, which a shallow clone lacks."""

import subprocess

import pytest

from tests.support.trees import PACKAGE


def needs_commit(commit: str) -> pytest.MarkDecorator:
    """The mark skips a test, also where nothing may be skipped, if the history does not have that *commit*."""
    command = ["git", "-c", "safe.directory=*", "cat-file", "-e", f"{commit}^{{tree}}"]
    asked = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, check=False)
    return pytest.mark.skipif(asked.returncode != 0, reason=f"the clone is shallow: it has no commit {commit}")
