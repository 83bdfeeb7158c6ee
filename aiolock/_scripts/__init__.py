"""The Lua scripts, read when needed; each file's header states keys, arguments, reply and why twice is safe."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any, Literal, NamedTuple

from aiolock._keys import LockKeys
from aiolock._types import LockKind

# The first element of a reply. The same numbers stand at the top of ends.lua.
GRANTED = 1
REFUSED = 0
LOST = -1
STALE = -2
NOT_A_LOCK = -3
DONE = 2  # Only of a body that runs once; stands in once/outcome.lua.
ABSTAINS = -4  # Of a server of a quorum; in remember.lua.

# The fourth element of a REFUSED reply: others may not overtake the acquisition; or no majority of a quorum granted it,
# though some server did, or may have: what that has is to be given back, by a try of a new acquisition.
# The same, but another holds it by a majority: then what is given back frees nothing for anybody.
HAS_TURN, SPLIT, HELD = 1, 2, 3

# Why an acquisition does not hold the lock: the value of a LOST reply. The same order stands in ends.lua.
FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4


def grants(reply: list[Any]) -> bool:
    """Whether *reply*, or any of those that it consists of, is GRANTED."""
    return reply[0] == GRANTED or (isinstance(reply[0], list) and any(row[0] == GRANTED for row in reply))


# How the answers of the servers of a quorum become one: what most say; the same for each of several rows; who holds it,
# or each half of it; who has permits; what the first says that knows anything.
Fold = Literal["agreed", "renewed", "holder", "holders", "permits", "first_known"]


@dataclass(frozen=True, eq=False)
class Script:
    """
    A script as the server knows it; there is one object of each. Its Lua is what its *files* say, one after the other.

    One that *publishes* takes the command to do so with as its last argument. What one that *lasts* grants must survive
    the server that granted it, so that replicas may have to have it, too. Nothing queues before an *urgent* one. Calls
    of a *bundled* one, which all have as many keys and arguments, leave as one command where they leave together, which
    runs its `bundle`. *fold* makes one answer of those of several servers.
    """

    name: str
    files: tuple[str, ...]
    publishes: bool = False
    lasts: bool = False
    urgent: bool = False
    bundled: bool = False
    fold: Fold = "agreed"

    @cached_property
    def bundle(self) -> "Script":
        """The script that makes several calls of this one."""
        return Script(self.name, ("bundle/begin", *self.files, "bundle/end"))

    @cached_property
    def source(self) -> str:
        """The Lua."""
        return "".join(map(_read, self.files))

    @cached_property
    def sha(self) -> str:
        """The digest by which the server knows it."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


NONE = Script("", ())


@dataclass(frozen=True, slots=True)
class ScriptSet:
    """
    What makes a primitive: how it is taken, given back, kept and freed by force. Its *kind* is for people and metrics.

    What *expires* has an end of its own, unless it is renewed; else it lasts until it is given back. What has no
    *release* leaves nothing on the server: it was only asked for. What has a *release_later* can leave something in its
    place. Of an *exclusive* one, who has it keeps everybody else of the client from asking for it. Of a *reentrant* one
    an owner has one hold, however often it acquires; of another each acquire makes a hold of its own. An unlock message
    wakes *one* waiter of the client, or *all*. Where there are *turns*, an acquire is sent with the time for which
    others may not overtake it. Where there is a *line*, the server keeps in order who waits: everybody asks at once, to
    stand in it.
    """

    kind: LockKind = field(kw_only=True)
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
    line: bool = False


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

    The client finds its hold by the *key*, beside the name: the owner of a reentrant one, else the id with a ``#`` in
    front, so that it is no owner's. Its commands are sent with these *keys*.
    """

    want: Want
    owner: str
    id: str
    key: str
    keys: tuple[str, ...]


@cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")


_ALL: list[Script] = []


def read_all() -> None:
    """Read every script now: when one is first sent, it may be too late to open files, or others lie there."""
    for script in _ALL:
        _ = script.bundle.sha if script.bundled else script.sha


def _script(
    path: str,
    *shared: str,
    publishes: bool = False,
    lasts: bool = False,
    urgent: bool = False,
    bundled: bool = False,
    fold: Fold = "agreed",
) -> Script:
    """The script at *path*, with the *shared* files in front of it; they are read when they are needed."""
    script = Script(path.partition("/")[2], (*shared, path), publishes, lasts, urgent, bundled, fold)
    _ALL.append(script)
    return script


_LOCK = ("ends", "lives", "lock/lock")
_GRANT = (*_LOCK, "lock/grant")
ACQUIRE = _script("lock/acquire", *_GRANT, lasts=True, bundled=True)
_GIVE_BACK = (*_LOCK, "lock/give_back")
RELEASE = _script("lock/release", *_GIVE_BACK, publishes=True, bundled=True)
RENEW = _script("lock/renew", *_LOCK, lasts=True, urgent=True, fold="renewed")
FORCE_RELEASE = _script("lock/force_release", *_LOCK, publishes=True)
RELEASE_LATER = _script("lock/release_later", *_LOCK, publishes=True)
LOCK = ScriptSet(ACQUIRE, RELEASE, RENEW, FORCE_RELEASE, RELEASE_LATER, kind="lock", exclusive=True, reentrant=True)
INSPECT = _script("lock/inspect", *_LOCK, fold="holder")

FAIR = replace(  # It, too, is released later: who stands in line asks again in time by itself.
    LOCK,
    kind="fair_lock",
    acquire=_script("fair/acquire", *_GRANT, "fair/fair", lasts=True),
    release=_script("fair/release", *_GIVE_BACK, "fair/fair", publishes=True),
    exclusive=False,
    line=True,
)

ONCE = replace(LOCK, kind="once", acquire=_script("lock/acquire", *_GRANT, "once/outcome", lasts=True), wake="all")
SLOT = _script("once/slot", "ends")

_PERMIT = ("ends", "turns", "permit/permit")
PERMIT = ScriptSet(
    kind="permit_expirable_semaphore",
    acquire=_script("permit/acquire", *_PERMIT, publishes=True, lasts=True),
    release=_script("permit/release", *_PERMIT, publishes=True),
    renew=_script("permit/renew", *_PERMIT, lasts=True, urgent=True, fold="renewed"),
    force_release=_script("permit/force_release", *_PERMIT, publishes=True),
    turns=True,
)
INSPECT_PERMITS = _script("permit/inspect", *_PERMIT, fold="permits")
RESIZE = _script("permit/resize", *_PERMIT, publishes=True)

_READ_WRITE = ("ends", "lives", "turns", "read_write/read_write")
_FORCE = (*_READ_WRITE, "read_write/force")
READ = ScriptSet(
    kind="read_lock",
    acquire=_script("read_write/acquire", *_READ_WRITE, publishes=True, lasts=True),
    release=_script("read_write/release", *_READ_WRITE, publishes=True),
    renew=_script("read_write/renew", *_READ_WRITE, publishes=True, lasts=True, urgent=True, fold="renewed"),
    force_release=_script("read_write/force_release_readers", *_FORCE, publishes=True),
    reentrant=True,
    wake="all",
    turns=True,
)
WRITE = replace(
    READ,
    kind="write_lock",
    force_release=_script("read_write/force_release_writer", *_FORCE, publishes=True),
    exclusive=True,
    wake="one",
)
INSPECT_READ_WRITE = _script("read_write/inspect", *_READ_WRITE, fold="holders")

_SEMAPHORE = ("ends", "counter", "semaphore/semaphore")
SEMAPHORE = ScriptSet(
    kind="semaphore",
    acquire=_script("semaphore/acquire", *_SEMAPHORE, publishes=True, lasts=True),
    release=_script("semaphore/release", *_SEMAPHORE, publishes=True),
    expires=False,
)
ADD_PERMITS = _script("semaphore/add", *_SEMAPHORE, publishes=True)
SET_PERMITS = _script("semaphore/set", *_SEMAPHORE, publishes=True)
DRAIN = _script("semaphore/drain", *_SEMAPHORE)
INSPECT_SEMAPHORE = _script("semaphore/inspect", *_SEMAPHORE)

_LATCH = ("ends", "counter", "latch/latch")
LATCH = ScriptSet(kind="count_down_latch", acquire=_script("latch/wait", *_LATCH), expires=False, wake="all")
COUNT_DOWN = _script("latch/count_down", *_LATCH, publishes=True)
SET_COUNT = _script("latch/set", *_LATCH, publishes=True)

PING = replace(INSPECT, name="ping")  # The same question, under the name that its failure is told by.
CARD = _script("client/card")
READ_CARD = _script("client/read_card", fold="first_known")
MARK = _script("mark/mark")
READ_MARK = _script("mark/read_mark", fold="first_known")


@dataclass(frozen=True, slots=True)
class Look:
    """
    A *script* that tells who has something, sent with so many of its *keys* and these *arguments*.

    The names of those who have it are in its answer from place *first* on, *step* places from one to the next.
    """

    script: Script
    keys: int
    first: int
    step: int
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ballot:
    """
    How a quorum is asked to grant what an `acquire` does: with *ask*, which has it abstain if it has lost its memory.

    What a majority granted is confirmed by *confirm*, which raises the token everywhere to the greatest, and is sent
    those arguments whose places are *passed*: the acquisition's id and the token retention. Permits are granted to as
    many as there are: those that have any, on any server, are counted then, and how many are asked for is told by the
    argument at the place *counted*. Where some grant it and most do not, *look* tells who has it.
    """

    ask: Script
    confirm: Script
    passed: tuple[int, int]
    look: Look
    counted: int | None = None


_REMEMBER = "quorum/remember"
_QUORUM = "quorum/quorum"
_MOST_NAMED = 1000

# By the script that acquires it, what a quorum can grant.
BALLOTS: dict[Script, Ballot] = {
    LOCK.acquire: Ballot(
        _script("lock/acquire", _REMEMBER, "ends", "quorum/ahead", *_GRANT[1:], lasts=True, bundled=True),
        _script("quorum/raise", *_LOCK, _QUORUM, bundled=True),
        (1, 5),
        Look(INSPECT, 1, first=1, step=4),
    ),
    READ.acquire: Ballot(
        _script("read_write/acquire", _REMEMBER, *_READ_WRITE, publishes=True, lasts=True),
        _script("quorum/raise_read_write", *_READ_WRITE, _QUORUM),
        (1, 5),
        Look(INSPECT_READ_WRITE, 1, first=1, step=4, arguments=(_MOST_NAMED,)),
    ),
    PERMIT.acquire: Ballot(
        _script("permit/acquire", _REMEMBER, *_PERMIT, publishes=True, lasts=True),
        _script("quorum/raise_permits", *_PERMIT, _QUORUM),
        (0, 2),
        Look(INSPECT_PERMITS, 2, first=3, step=2, arguments=(_MOST_NAMED,)),
        counted=3,
    ),
}
