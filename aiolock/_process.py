"""Which process this is, without a system call each time: forks are counted."""

import os


class Lineage:
    """The forks that lie between the process that imported this and the one that asks."""

    forks: int = 0


def _count() -> None:
    Lineage.forks += 1


if hasattr(os, "register_at_fork"):  # Windows has no forks.
    os.register_at_fork(after_in_child=_count)
