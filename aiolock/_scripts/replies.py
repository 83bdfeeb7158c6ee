"""
The replies of the scripts as types: only this module knows the positions of their elements.

A reply is decoded once, by the decoder of its script, when it arrives; durations are in seconds from then on. A reply
that the header of its script does not list raises an error, so that its call fails.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiolock._errors import LossReason
from aiolock._identity import identity_of, owner_of
from aiolock._types import Holder

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    A = TypeVar("A", default=Any)
    A_co = TypeVar("A_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    A, A_co = TypeVar("A"), TypeVar("A_co", covariant=True)

# The first element of a reply. The same numbers are in answers.lua.
GRANTED = 1
APPLIED = 1
REFUSED = 0
LOST = -1
STALE = -2
NOT_A_LOCK = -3
# Only for a body that runs once; see once/outcome.lua.
DONE = 2
# Only from a server of a quorum; see remember.lua.
ABSTAINS, LONGER = -4, -5

# The reason why an acquisition does not hold the lock: the second element of a LOST reply. The same numbers are in
# answers.lua.
FREED, EXPIRED, TAKEN, FORCED = 1, 2, 3, 4
_REASONS: dict[int, LossReason] = {EXPIRED: "expired", TAKEN: "taken", FORCED: "forced"}


@dataclass(slots=True)
class Granted:
    """The acquisition has the lock for *left* seconds."""

    token: int
    left: float
    others_after: float = 0.0
    """Seconds after which another acquire may be granted."""
    free: int = sys.maxsize
    """The number of other acquires that may be granted at once."""
    leads: bool | None = None
    """Whether the next in line is of the same client, if the server keeps a line."""


@dataclass(slots=True)
class Refused:
    """Others have the lock, or their turn comes first, for *left* seconds."""

    left: float
    arrived: int = 0
    """The time of the acquisition's arrival by the server's clock, if the server keeps a line."""
    has_turn: bool = False
    """Others may not overtake this acquisition."""
    leads: bool | None = None
    """Whether the first in line is of the same client, if the server keeps a line."""
    count: int = 0
    """The count that a latch has left."""
    holder: bytes | None = None
    """The id of the acquisition that has the lock on a server of a quorum; Redisson's and free locks have none."""
    is_split: bool = False
    """No acquisition has a majority of a quorum."""
    has_some: bool = False
    """This acquisition may have a minority of a quorum, which it gives back."""


@dataclass(slots=True)
class Lost:
    """The acquisition does not hold the lock any more."""

    reason: LossReason
    everywhere: bool = True
    """Whether no server has it: a minority of a quorum may keep it for its lease."""


@dataclass(slots=True)
class Stale:
    """The acquisition was given up or released before, so the server grants it nothing any more."""


@dataclass(slots=True)
class NotALock:
    """The key exists and is not a lock."""


@dataclass(slots=True)
class Done:
    """The body of a `once` has run, with this *outcome*."""

    outcome: bytes


@dataclass(slots=True)
class Applied:
    """The server has made the change; *number* counts receivers, permits or freed holds, depending on the script."""

    number: int = 0


@dataclass(slots=True)
class Abstains:
    """A server of a quorum has lost its data, and has no vote for *left* seconds."""

    left: float


@dataclass(slots=True)
class Longer:
    """A server of a quorum knows a client whose `longest_lease` is longer: *lease*."""

    lease: float


@dataclass(slots=True)
class SeenHold:
    """A hold, as the server saw it; *left* is in seconds."""

    owner: str
    holds: int
    left: float

    @property
    def holder(self) -> Holder:
        """The holder; the client's id contains its host and process."""
        owner = owner_of(self.owner)
        identity = identity_of(owner.client)
        return Holder(
            client=owner.client,
            owner=owner.text,
            holds=self.holds,
            remaining=self.left,
            host=identity.host,
            pid=identity.pid,
            client_name=identity.client_name,
            detached=owner.detached,
        )


@dataclass(slots=True)
class Permits:
    """The permits, as the server saw them; *named* has permits and their seconds left, ordered by their ends."""

    available: int | None
    """``None`` if no number of permits is set."""
    acquired: int
    named: Sequence[tuple[bytes, float]]

    def available_of(self, initial: int | None) -> int:
        """The number of available permits; if the server has no number yet, there are *initial* permits in total."""
        return (initial or 0) - self.acquired if self.available is None else self.available


Ended = Lost | Stale | NotALock
Acquired = Granted | Refused | Done | Ended
Renewed = Granted | Lost
Changed = Applied | Refused | Ended
Vote = Acquired | Abstains | Longer

_ENDED: dict[int, Stale | NotALock] = {STALE: Stale(), NOT_A_LOCK: NotALock()}


def was_done(answer: object) -> bool:
    """Whether *answer*, or any of its parts, is a grant or a change that the server made."""
    return isinstance(answer, Granted | Applied) or (isinstance(answer, list) and any(map(was_done, answer)))


# The decoders.


def as_it_is(reply: list[Any]) -> Any:
    """The reply of a script, which nothing reads."""
    return reply


def acquired(reply: list[Any]) -> Acquired:
    """The reply to an acquire."""
    status, value, left, *more = reply
    if status == GRANTED:
        if not more:
            return Granted(value, left / 1000)
        after, *free = more
        return Granted(value, left / 1000, after / 1000, *free)
    if status == REFUSED:
        return Refused(left / 1000, value, has_turn=bool(more))
    return _ended(status, value)


def acquired_in_line(reply: list[Any]) -> Acquired:
    """The reply to an acquire of a fair lock."""
    status, value, left, *more = reply
    if not more:
        return acquired(reply)
    after, leads = more
    if status == GRANTED:
        return Granted(value, left / 1000, after / 1000, leads=leads == 1)
    return Refused(left / 1000, value, has_turn=True, leads=leads == 1)


def acquired_once(reply: list[Any]) -> Acquired:
    """The reply to an acquire of a `once`."""
    status, *_, outcome = reply
    return Done(outcome) if status == DONE else acquired(reply)


def waited(reply: list[Any]) -> Granted | Refused | NotALock:
    """The reply to the question whether a latch's count is zero."""
    status, count, left = reply
    if status == REFUSED:
        return Refused(left / 1000, count=count)
    return Granted(0, 0.0) if status == GRANTED else NotALock()


def voted(reply: list[Any]) -> Vote:
    """The reply to an acquire, from a server of a quorum."""
    status, _, left, *more = reply
    if status == ABSTAINS:
        return Abstains(left / 1000)
    if status == LONGER:
        return Longer(left / 1000)
    if status == REFUSED:
        return Refused(left / 1000, holder=next(iter(more), None))
    return acquired(reply)


def renewed(reply: list[Any]) -> list[Renewed]:
    """The reply to a renewal: one for each hold."""
    return [
        Granted(value, left / 1000) if status == GRANTED else Lost(_REASONS[value]) for status, value, left in reply
    ]


def changed(reply: list[Any]) -> Changed:
    """The reply to a release, or to another change."""
    status, value, _ = reply
    if status == APPLIED:
        return Applied(value)
    return Refused(0.0) if status == REFUSED else _ended(status, value)


def _ended(status: int, why: int) -> Ended:
    return Lost(_REASONS[why]) if status == LOST else _ENDED[status]


def seen(reply: list[Any]) -> list[SeenHold] | NotALock:
    """The reply to the question for the holders of a lock."""
    status, *found = reply
    if status == NOT_A_LOCK:
        return NotALock()
    rows = zip(found[::3], found[1::3], found[2::3], strict=True)
    return [SeenHold(owner.decode(errors="replace"), holds, left / 1000) for owner, holds, left in rows]


def permits(reply: list[Any]) -> Permits | NotALock:
    """The reply to the question for the permits of a semaphore."""
    status, available, number, *named = reply
    if status == NOT_A_LOCK:
        return NotALock()
    pairs = zip(named[::2], named[1::2], strict=True)
    known = available if status == GRANTED else None
    return Permits(known, number, [(permit, left / 1000) for permit, left in pairs])


def texts(reply: list[Any]) -> list[str | None]:
    """The reply to a question for texts; ``None`` stands for a text that does not exist."""
    return [None if text is None else text.decode(errors="replace") for text in reply]


def old_result(reply: list[Any]) -> list[bytes | None]:
    """The result of the last run; ``None`` if no result may be served."""
    return reply


def slot(reply: list[Any]) -> tuple[int, float]:
    """The number of a slot, and the seconds until it ends."""
    number, left = reply
    return number, left / 1000
