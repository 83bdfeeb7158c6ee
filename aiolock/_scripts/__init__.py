"""The Lua scripts, loaded once at import; each file's header states keys, arguments, reply and why twice is safe."""

import hashlib
from dataclasses import dataclass
from importlib import resources
from typing import Any

# The first element of a reply. The same numbers stand at the top of lock.lua.
GRANTED = 1
REFUSED = 0
LOST = -1
STALE = -2
NOT_A_LOCK = -3


# Why an acquisition does not hold the lock: the value of a LOST reply. The same order stands in lock.lua.
FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4


def grants(reply: list[Any]) -> bool:
    """Whether *reply*, or any of those that it consists of, is GRANTED."""
    return reply[0] == GRANTED or (isinstance(reply[0], list) and any(row[0] == GRANTED for row in reply))


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """
    A script as the server knows it; there is one object of each.

    One that *publishes* takes the command to do so with as its last argument. What one that *lasts* grants must survive
    the server that granted it, so that replicas may have to have it, too.
    """

    name: str
    source: str
    sha: str
    publishes: bool = False
    lasts: bool = False


@dataclass(frozen=True, slots=True)
class LockScripts:
    """What makes a primitive: how it is taken, given back and kept."""

    acquire: Script
    release: Script
    renew: Script


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")


def _load(name: str, *shared: str, publishes: bool = False, lasts: bool = False) -> Script:
    """The script *name*, with the *shared* files in front of it."""
    source = "".join(map(_read, (*shared, name)))
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), publishes, lasts)


ACQUIRE = _load("acquire", "lock", lasts=True)
RELEASE = _load("release", "lock", publishes=True)
RENEW = _load("renew", "lock", lasts=True)
LOCK = LockScripts(ACQUIRE, RELEASE, RENEW)
FORCE_RELEASE = _load("force_release", "lock", publishes=True)
INSPECT = _load("inspect", "lock")
CARD = _load("card")
READ_CARD = _load("read_card")
