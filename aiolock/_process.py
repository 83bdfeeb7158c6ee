"""Which process this is, without a system call each time: forks are counted; and what belongs to one."""

import os
from typing import NoReturn


class Lineage:
    """The forks that lie between the process that imported this and the one that asks."""

    forks: int = 0


def _count() -> None:
    Lineage.forks += 1


if hasattr(os, "register_at_fork"):  # Windows has no forks.
    os.register_at_fork(after_in_child=_count)


class Unique:
    """What is there once, in its process: the server would take what a copy does for what the first one does."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client, its locks and its leases cannot be copied or pickled: they belong to one process")
