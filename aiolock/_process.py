"""Which process this is, without a system call each time: forks are counted."""

import os


class _Lineage:
    forks = 0


def forks() -> int:
    """How many forks lie between the process that imported this and the one that asks."""
    return _Lineage.forks


def _count() -> None:
    _Lineage.forks += 1


if hasattr(os, "register_at_fork"):  # Windows has no forks.
    os.register_at_fork(after_in_child=_count)
