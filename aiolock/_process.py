"""A count of the process's forks, which is read without a system call; and objects that belong to one process."""

import os
from typing import NoReturn


class Lineage:
    """The number of forks between the process that imported this module and the present one."""

    forks: int = 0


def _count() -> None:
    Lineage.forks += 1


# Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


class Unique:
    """An object without copies: the server could not tell a copy's commands from those of the original."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client, its locks and its leases cannot be copied or pickled: they belong to one process")
