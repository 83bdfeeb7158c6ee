"""
Scripts of earlier versions, which may run beside ours on one name, without their comments.

    one   until releases remembered ids with every grant looking at all that it may meet
    two   with the free case first, and ids
"""

from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent
VERSIONS = ("one", "two")


class Older(NamedTuple):
    """The source of a script of an earlier version."""

    source: str


def older(version: str, name: str) -> Older:
    """The script of that *version* with that *name*, which says `fair_` for a fair lock."""
    return Older((_HERE / version / f"{name}.lua").read_text("utf-8"))
