"""The Lua scripts; the header of each file has its keys, arguments and reply, and why sending it twice is safe."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import resources
from typing import Any, Generic, Literal

from aiolock._keys import LockKeys
from aiolock._scripts import replies
from aiolock._scripts.replies import A, A_co, Acquired, Changed, Renewed
from aiolock._types import LockKind

# The ways to combine the answers of a quorum's servers into one: "agreed" takes the most frequent answer, "renewed" the
# most frequent one for each hold, "holder" the holder of a majority, "first_known" the first answer that is not empty.
Fold = Literal["agreed", "renewed", "holder", "first_known"]


# The forms of the primitives: the scripts of each form have their own list of arguments. "half" is a half of a
# read-write lock, "count" a counting semaphore, "question" a latch.
Form = Literal["lock", "fair lock", "half", "permits", "count", "question"]


@dataclass(frozen=True, eq=False)
class Script(Generic[A_co]):
    """
    A script that a server runs; there is one object per script.

    Its Lua code is the text of its *files*, one after the other. *decode* turns the server's reply into an answer.

    *publishes*: the script's last argument is the command that publishes its messages. *lasts*: its effect must survive
    its server, so `LockConfig.replicas` applies to it. *urgent*: it is sent on the connection for renewals, ahead of
    others. *bundled*: all its calls have the same number of keys and arguments, and calls that leave together are sent
    as one command, its `bundle`. *fold* says how to combine the answers of several servers. *probe*: it asks whether
    the server refuses commands for the moment, so that a refusal is its answer; any other script is then sent again.
    """

    name: str
    files: tuple[str, ...]
    decode: Callable[[list[Any]], A_co] = replies.as_it_is
    publishes: bool = False
    lasts: bool = False
    urgent: bool = False
    bundled: bool = False
    fold: Fold = "agreed"
    probe: bool = False

    @property
    def changes(self) -> bool:
        """Whether the script releases or changes something, and grants nothing."""
        return self.decode is replies.changed

    @cached_property
    def bundle(self) -> "Script":
        """The script that runs several calls of this one."""
        return Script(self.name, ("bundle/try", "bundle/begin", *self.files, "bundle/end"))

    @cached_property
    def source(self) -> str:
        """The text of the script."""
        return "".join(map(_read, self.files))

    @cached_property
    def sha(self) -> str:
        """The digest by which the server knows the script."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


NONE = Script("", ())


@dataclass(frozen=True, slots=True)
class ScriptSet:
    """
    The scripts of one primitive, to acquire, release and renew it, and to free it by force; and its properties.

    *kind*: the name of the primitive for people and metrics.
    *form*: the list of arguments of its scripts. A "question" takes nothing: its answer is valid for all waiters.
    *release*: a primitive without this script has nothing to give back.
    *release_later*: releases the lock, but leaves something in its place for some time.
    *release_clean*: releases the lock if no copy of another command can be late.
    *detach*, *adopt*: with these scripts a hold can go from one process to another.
    *expires*: a hold ends by itself unless it is renewed; otherwise it lasts until its release.
    *exclusive*: while one owner of a client holds it, no other owner of this client asks for it.
    *reentrant*: an owner has one hold, however often it acquires; otherwise each acquire makes a hold of its own.
    *line*: the server keeps waiters in order, so each waiter asks at once, to join the line.
    *client_line*: the same, but only the first waiter of each client joins the line.
    *awaited*: a block always waits for the reply to its release, because only this reply tells its result.
    """

    kind: LockKind = field(kw_only=True)
    form: Form = field(kw_only=True)
    acquire: Script[Acquired]
    release: Script[Changed] = NONE
    renew: Script[list[Renewed]] = NONE
    force_release: Script[Changed] = NONE
    release_later: Script[Changed] = NONE
    release_clean: Script[Changed] = NONE
    detach: Script[Acquired] = NONE
    adopt: Script[Acquired] = NONE
    expires: bool = True
    exclusive: bool = False
    reentrant: bool = False
    line: bool = False
    client_line: bool = False
    awaited: bool = False


@dataclass(frozen=True, slots=True)
class Want:
    """
    What an acquire asks for: a primitive with its keys, and an amount of it.

    *amount* is an argument of each script of the primitive. *initial*, of a semaphore or a counting semaphore, is the
    number of permits that an acquire sets if Redis has no number; ``None`` if it is not known.
    """

    keys: LockKeys
    scripts: ScriptSet
    amount: tuple[int, ...] = ()
    initial: int | None = None
    at_least: float = 0.0
    """Seconds from the grant for which no other acquire is granted, even after the release."""

    @property
    def tells_number(self) -> bool:
        """Whether the acquire sets the number of permits if Redis has no number."""
        return self.initial is not None


@dataclass(slots=True)
class Claim:
    """
    The identity of one acquisition on the server.

    *number* counts the acquisitions of a client. The client finds the hold by the name and the *key*: the owner, if the
    primitive is reentrant, else the id with a ``#`` in front, so that it is not an owner's. A claim from a ticket has
    the number 0 and no key, because no client has its hold. The commands of the claim are sent with these *keys*.
    """

    want: Want
    owner: str
    id: str
    key: str
    keys: tuple[str, ...]
    number: int = 0


@cache
def _read(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.lua").read_text("utf-8")


_ALL: list[Script] = []


def read_all() -> None:
    """Read every script now: later the process may have no file handles left, or an upgrade may replace the files."""
    for script in _ALL:
        _ = script.bundle.sha if script.bundled else script.sha
    _ = HAND_OFF.sha


def _script(
    path: str,
    decode: Callable[[list[Any]], A],
    *shared: str,
    publishes: bool = False,
    lasts: bool = False,
    urgent: bool = False,
    bundled: bool = False,
    fold: Fold = "agreed",
) -> Script[A]:
    """The script at *path*, with the *shared* files in front of it; they are read at the first use."""
    script = Script(path.partition("/")[2], (*shared, path), decode, publishes, lasts, urgent, bundled, fold)
    _ALL.append(script)
    return script


_ENDS = ("answers", "ends")
_LATE_LOCK = ("late", "lives", "lock/lock")
_LOCK = (*_ENDS, *_LATE_LOCK)
_GRANT_AGAIN = ("ends", *_LATE_LOCK, "lock/grant_again")
_GRANT_IF_FREE = ("answers", "lock/grant", "lock/grant_if_free")
# Positions of arguments of ACQUIRE, which a quorum reads.
ACQUISITION, STEP, RETENTION = 1, 2, 5
ACQUIRE = _script("lock/acquire", replies.acquired, *_GRANT_IF_FREE, *_GRANT_AGAIN, lasts=True, bundled=True)
_LOWER_COUNT = (*_LATE_LOCK, "lock/lower_count")
RELEASE = _script(
    "lock/release", replies.changed, *_ENDS, "lock/release_last", *_LOWER_COUNT, publishes=True, bundled=True
)
RENEW = _script("lock/renew", replies.renewed, *_LOCK, lasts=True, urgent=True, fold="renewed")
FORCE_RELEASE = _script("lock/force_release", replies.changed, *_LOCK, publishes=True)
_REPLACE_LOCK = (*_LOCK, "lock/replace")
_LATER = ("lock/release_later", replies.changed, *_REPLACE_LOCK)
RELEASE_LATER = _script(*_LATER, publishes=True)
_CLEAN_PARTS = ("answers", "lock/free_and_mark", "lock/tell_waiters", "ends", "lock/add_mark", "lock/tell_waiters")
_CLEAN = ("lock/release_clean", replies.changed, *_CLEAN_PARTS, *_LATE_LOCK)
# Errors call it a release, like any other.
RELEASE_CLEAN = replace(_script(*_CLEAN, publishes=True, bundled=True), name=RELEASE.name)
# A clean release of a lock and the acquire behind it as one command; see `together` in `_redis/batch.py`.
_TAKE_PLACE = ("answers", "lock/grant", "lock/replace_holder")
_BOTH = ("bundle/try", "lock/begin_release", *RELEASE_CLEAN.files, "lock/begin_acquire", *ACQUIRE.files)
HAND_OFF = Script("hand-off", (*_TAKE_PLACE, *_BOTH, "lock/hand_off"))
LOCK = ScriptSet(
    *(ACQUIRE, RELEASE, RENEW, FORCE_RELEASE, RELEASE_LATER, RELEASE_CLEAN),
    detach=_script("lock/detach", replies.acquired, *_REPLACE_LOCK, publishes=True, lasts=True),
    adopt=_script("lock/adopt", replies.acquired, "answers", "lock/grant", *_GRANT_AGAIN, publishes=True, lasts=True),
    kind="lock",
    form="lock",
    exclusive=True,
    reentrant=True,
)
INSPECT = _script("lock/inspect", replies.seen, *_LOCK, fold="holder")

_LINE_OF_FAIR = ("fair/fair", "fair/wake")
_CLEAN_FAIR_PARTS = ("answers", "lock/free_and_mark", "fair/tell_waiters", "ends", "lock/add_mark", "fair/tell_waiters")
_CLEAN_FAIR = ("fair/release_clean", replies.changed, *_CLEAN_FAIR_PARTS, *_LATE_LOCK, *_LINE_OF_FAIR)
# It has the `release_later` of the plain lock, which wakes nobody in the line: the waiters ask again by themselves.
FAIR = replace(
    LOCK,
    kind="fair_lock",
    form="fair lock",
    acquire=_script(
        "fair/acquire",
        replies.acquired_in_line,
        "answers",
        "lock/grant",
        "fair/grant_if_free",
        *_GRANT_AGAIN,
        "fair/fair",
        lasts=True,
    ),
    release=_script(
        "fair/release", replies.changed, *_ENDS, "fair/release_last", *_LOWER_COUNT, *_LINE_OF_FAIR, publishes=True
    ),
    release_clean=replace(_script(*_CLEAN_FAIR, publishes=True), name=RELEASE.name),
    exclusive=False,
    line=True,
)

ONCE = replace(
    LOCK,
    kind="once",
    awaited=True,
    acquire=_script("lock/acquire", replies.acquired_once, *_GRANT_IF_FREE, "once/outcome", *_GRANT_AGAIN, lasts=True),
    # `lasts`: the result keeps all others from running the body again. (A lock that `at_least` keeps needs no
    # replicas.)
    release_later=_script(*_LATER, publishes=True, lasts=True),
    release_clean=NONE,
    detach=NONE,
    adopt=NONE,
)
OLD = _script("once/old", replies.old_result)
SLOT = _script("once/slot", replies.slot, "late")

_LATE_PERMIT = ("late", "permit/permit")
_LINE = (*_ENDS, "number", "permit/line")
_PERMIT = (*_LINE, *_LATE_PERMIT)
PERMIT = ScriptSet(
    kind="semaphore",
    form="permits",
    acquire=_script(
        "permit/acquire",
        replies.acquired,
        *_LINE,
        "token",
        "permit/grant_if_free",
        *_LATE_PERMIT,
        publishes=True,
        lasts=True,
    ),
    release=_script("permit/release", replies.changed, *_LINE, "permit/release_last", *_LATE_PERMIT, publishes=True),
    renew=_script("permit/renew", replies.renewed, *_PERMIT, lasts=True, urgent=True),
    force_release=_script("permit/force_release", replies.changed, *_PERMIT, publishes=True),
    detach=_script("permit/detach", replies.acquired, *_PERMIT, "permit/move", publishes=True, lasts=True),
    adopt=_script("permit/adopt", replies.acquired, *_PERMIT, "permit/move", "token", publishes=True, lasts=True),
    client_line=True,
)
INSPECT_PERMITS = _script("permit/inspect", replies.permits, *_PERMIT)
RESIZE = _script("permit/resize", replies.changed, *_PERMIT, publishes=True)

_LATE_READ_WRITE = ("late", "lives", "turns", "read_write/read_write")
_READ_WRITE = (*_ENDS, *_LATE_READ_WRITE)
_HOLD = (*_ENDS, "read_write/field")
_TAKE = (*_HOLD, "token", "read_write/grant_if_free", *_LATE_READ_WRITE)
_FORCE = (*_READ_WRITE, "read_write/force")
_REPLACE = (*_READ_WRITE, "read_write/replace")
READ = ScriptSet(
    kind="read_lock",
    form="half",
    acquire=_script("read_write/acquire", replies.acquired, *_TAKE, publishes=True, lasts=True),
    release=_script(
        "read_write/release", replies.changed, *_HOLD, "read_write/release_last", *_LATE_READ_WRITE, publishes=True
    ),
    renew=_script("read_write/renew", replies.renewed, *_READ_WRITE, publishes=True, lasts=True, urgent=True),
    force_release=_script("read_write/force_release_readers", replies.changed, *_FORCE, publishes=True),
    detach=_script("read_write/detach", replies.acquired, *_REPLACE, publishes=True, lasts=True),
    adopt=_script("read_write/adopt", replies.acquired, *_REPLACE, "token", publishes=True, lasts=True),
    reentrant=True,
)
WRITE = replace(
    READ,
    kind="write_lock",
    force_release=_script("read_write/force_release_writer", replies.changed, *_FORCE, publishes=True),
    exclusive=True,
)
INSPECT_READ_WRITE = _script("read_write/inspect", replies.seen, *_READ_WRITE)

_COUNTING_SEMAPHORE = (*_ENDS, "number", "counter", "counting_semaphore/counting_semaphore")
COUNTING_SEMAPHORE = ScriptSet(
    kind="counting_semaphore",
    form="count",
    acquire=_script("counting_semaphore/acquire", replies.acquired, *_COUNTING_SEMAPHORE, publishes=True, lasts=True),
    release=_script("counting_semaphore/release", replies.changed, *_COUNTING_SEMAPHORE, publishes=True),
    expires=False,
    awaited=True,
)
ADD_PERMITS = _script("counting_semaphore/add", replies.changed, *_COUNTING_SEMAPHORE, publishes=True)
SET_PERMITS = _script("counting_semaphore/set", replies.changed, *_COUNTING_SEMAPHORE, publishes=True)
DRAIN = _script("counting_semaphore/drain", replies.changed, *_COUNTING_SEMAPHORE)
INSPECT_COUNTING_SEMAPHORE = _script("counting_semaphore/inspect", replies.permits, *_COUNTING_SEMAPHORE)

_LATCH = (*_ENDS, "number", "counter", "latch/latch")
WAIT = _script("latch/wait", replies.waited, *_LATCH)
LATCH = ScriptSet(kind="count_down_latch", form="question", acquire=WAIT, expires=False)
COUNT_DOWN = _script("latch/count_down", replies.changed, *_LATCH, publishes=True)
SET_COUNT = _script("latch/set", replies.changed, *_LATCH, publishes=True)

PING = replace(_script("client/ping", replies.as_it_is, "answers"), probe=True)
MARK = _script("mark/mark", replies.as_it_is)
READ_MARK = _script("mark/read_mark", replies.texts, fold="first_known")


# An acquire for each server of a quorum: the server abstains if it has lost its data, and reports the lock's holder.
QUORUM_ACQUIRE = _script(
    "lock/acquire",
    replies.voted,
    "quorum/remember",
    *_ENDS,
    "lock/grant",
    "late",
    "quorum/ahead",
    *_GRANT_AGAIN[2:],
    "quorum/refused",
    lasts=True,
    bundled=True,
)
RAISE = _script("quorum/raise", replies.changed, *_LOCK, bundled=True)
