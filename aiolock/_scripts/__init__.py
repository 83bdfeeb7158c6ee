"""The Lua scripts, loaded once at import; each file's header states keys, arguments, reply and why twice is safe."""

import hashlib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal, NamedTuple

from aiolock._keys import LockKeys

# The first element of a reply. The same numbers stand at the top of ends.lua.
GRANTED = 1
REFUSED = 0
LOST = -1
STALE = -2
NOT_A_LOCK = -3
DONE = 2  # Only of a body that runs once; stands in once/outcome.lua.

# Why an acquisition does not hold the lock: the value of a LOST reply. The same order stands in ends.lua.
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


NONE = Script("", "", "")


@dataclass(frozen=True, slots=True)
class ScriptSet:
    """
    What makes a primitive: how it is taken, given back, kept and freed by force.

    What *expires* has an end of its own, unless it is renewed; else it lasts until it is given back. What has no
    *release* leaves nothing on the server: it was only asked for. What has a *release_later* can leave something in its
    place. Of an *exclusive* one, who has it keeps everybody else of the client from asking for it. Of a *reentrant* one
    an owner has one hold, however often it acquires; of another each acquire makes a hold of its own. An unlock message
    wakes *one* waiter of the client, or *all*. Where there are *turns*, an acquire is sent with the time for which
    others may not overtake it.
    """

    acquire: Script
    release: Script = NONE
    renew: Script = NONE
    force_release: Script = NONE
    release_later: Script = NONE
    expires: bool = True
    exclusive: bool = False
    reentrant: bool = False
    wake: Literal["one", "all"] = "one"
    turns: bool = False


class Want(NamedTuple):
    """
    What is asked for: a primitive by its keys, and how much of it.

    The *amount* is what each of its scripts is sent with, the *terms* what an acquire is sent with beside.
    """

    keys: LockKeys
    scripts: ScriptSet
    amount: tuple[int, ...] = ()
    terms: tuple[int | str, ...] = ()
    at_least: float = 0.0
    """Seconds from the grant for which nobody else gets it, though it was given back."""


class Claim(NamedTuple):
    """
    What an acquisition is known by to the server: *id* is unique, *owner* is who will hold the lock.

    The client finds its hold by the *key*, beside the name: the owner of a reentrant one, else the id. Its commands are
    sent with these *keys*.
    """

    want: Want
    owner: str
    id: str
    key: str
    keys: tuple[str, ...]


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")


def _load(path: str, *shared: str, publishes: bool = False, lasts: bool = False) -> Script:
    """The script at *path*, with the *shared* files in front of it."""
    source = "".join(map(_read, (*shared, path)))
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(path.partition("/")[2], source, sha, publishes, lasts)


_LOCK = ("ends", "lives", "lock/lock")
ACQUIRE = _load("lock/acquire", *_LOCK, lasts=True)
RELEASE = _load("lock/release", *_LOCK, publishes=True)
RENEW = _load("lock/renew", *_LOCK, lasts=True)
FORCE_RELEASE = _load("lock/force_release", *_LOCK, publishes=True)
RELEASE_LATER = _load("lock/release_later", *_LOCK, publishes=True)
LOCK = ScriptSet(ACQUIRE, RELEASE, RENEW, FORCE_RELEASE, RELEASE_LATER, exclusive=True, reentrant=True)
INSPECT = _load("lock/inspect", *_LOCK)

ONCE = replace(LOCK, acquire=_load("lock/acquire", *_LOCK, "once/outcome", lasts=True), wake="all")
SLOT = _load("once/slot", "ends")

_PERMIT = ("ends", "turns", "permit/permit")
PERMIT = ScriptSet(
    acquire=_load("permit/acquire", *_PERMIT, publishes=True, lasts=True),
    release=_load("permit/release", *_PERMIT, publishes=True),
    renew=_load("permit/renew", *_PERMIT, lasts=True),
    force_release=_load("permit/force_release", *_PERMIT, publishes=True),
    turns=True,
)
INSPECT_PERMITS = _load("permit/inspect", *_PERMIT)
RESIZE = _load("permit/resize", *_PERMIT, publishes=True)

_READ_WRITE = ("ends", "lives", "turns", "read_write/read_write")
_FORCE = (*_READ_WRITE, "read_write/force")
READ = ScriptSet(
    acquire=_load("read_write/acquire", *_READ_WRITE, publishes=True, lasts=True),
    release=_load("read_write/release", *_READ_WRITE, publishes=True),
    renew=_load("read_write/renew", *_READ_WRITE, lasts=True),
    force_release=_load("read_write/force_release_readers", *_FORCE, publishes=True),
    reentrant=True,
    wake="all",
    turns=True,
)
WRITE = replace(
    READ,
    force_release=_load("read_write/force_release_writer", *_FORCE, publishes=True),
    exclusive=True,
    wake="one",
)
INSPECT_READ_WRITE = _load("read_write/inspect", *_READ_WRITE)

_SEMAPHORE = ("ends", "counter", "semaphore/semaphore")
SEMAPHORE = ScriptSet(
    acquire=_load("semaphore/acquire", *_SEMAPHORE, publishes=True, lasts=True),
    release=_load("semaphore/release", *_SEMAPHORE, publishes=True),
    expires=False,
)
ADD_PERMITS = _load("semaphore/add", *_SEMAPHORE, publishes=True)
SET_PERMITS = _load("semaphore/set", *_SEMAPHORE, publishes=True)
DRAIN = _load("semaphore/drain", *_SEMAPHORE)
INSPECT_SEMAPHORE = _load("semaphore/inspect", *_SEMAPHORE)

_LATCH = ("ends", "counter", "latch/latch")
LATCH = ScriptSet(acquire=_load("latch/wait", *_LATCH), expires=False, wake="all")
COUNT_DOWN = _load("latch/count_down", *_LATCH, publishes=True)
SET_COUNT = _load("latch/set", *_LATCH, publishes=True)

PING = replace(INSPECT, name="ping")  # The same question, under the name that its failure is told by.
CARD = _load("client/card")
READ_CARD = _load("client/read_card")
