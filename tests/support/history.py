"""A test may need the history of this repository, which a shallow clone lacks."""

import subprocess

import pytest

from tests.support.trees import PACKAGE


def needs_commit(commit: str) -> pytest.MarkDecorator:
    """A mark that skips a test if the history lacks that *commit*, also where no test may be skipped."""
    command = ["git", "-c", "safe.directory=*", "cat-file", "-e", f"{commit}^{{tree}}"]
    asked = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, check=False)
    return pytest.mark.skipif(asked.returncode != 0, reason=f"the clone is shallow: it has no commit {commit}")
