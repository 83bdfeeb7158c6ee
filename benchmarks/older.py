"""An earlier aiolock: its package, from this repository's history or from a folder."""

import io
import tarfile
from pathlib import Path

from benchmarks.repository import GitError, git

USUAL = "86abb29"
"""The commit that figures compare with."""


def find(told: str, scratch: Path) -> Path | str:
    """The folder *told*, or *scratch* with the package of the commit *told*; or the reason why there is none."""
    if Path(told, "aiolock").is_dir():
        return Path(told)
    try:
        packed = git("archive", "--format=tar", told, "aiolock")
    except GitError as why:
        return str(why)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(scratch, filter="data")
    return scratch
