"""The model of a lock and of its holders. Times are in seconds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import isinf

from aiolock._identity import KEPT, Identity, identity_of, owner_of
from aiolock._keys import WRITER

LOCK, FAIR, READ_WRITE, SEMAPHORE = "lock", "fair lock", "read-write lock", "semaphore"
COUNTING_SEMAPHORE, LATCH, COUNTER = "counting semaphore", "latch", "counting semaphore or latch"
ONCE = "once"
FREE, FOREIGN = "free", "not a lock"

_MICROSECONDS = 1_000_000


def age_of(token: int | None, now: float) -> float | None:
    """The seconds from the grant of *token* until *now*; a token is the time of its grant, in microseconds."""
    return None if token is None else max(0.0, now - token / _MICROSECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """
    One owner's part of a lock.

    *owner_id* is the owner's id as Redis has it. *library* took the lock. *age* is the time since the grant; ``None``,
    like the *token*, where Redis does not know. A hold that never ends has infinitely much *left*. *permits* are its
    members of a semaphore.
    """

    owner_id: str
    library: str
    holds: int
    left: float
    mode: str | None = None
    token: int | None = None
    age: float | None = None
    permits: Sequence[bytes] = ()

    @property
    def since(self) -> float | None:
        """The time of the grant by the server's clock, in seconds of the epoch."""
        return None if self.token is None else self.token / _MICROSECONDS

    @property
    def client(self) -> str:
        """The id of the client."""
        return owner_of(self.owner_id).client

    @property
    def identity(self) -> Identity:
        """The host, process and name that the client's id says."""
        return identity_of(self.client)

    @property
    def owner(self) -> str:
        """The owner within its client: the number of a task, the name of a named owner, or the number of a thread."""
        return owner_of(self.owner_id).text.removesuffix(WRITER if self.mode == "write" else "")

    @property
    def named(self) -> bool:
        """Whether its owner has a name."""
        return owner_of(self.owner_id).named

    @property
    def detached(self) -> bool:
        """Whether its owner has detached it, so that nobody holds it until its ticket is adopted."""
        return owner_of(self.owner_id).detached

    @property
    def kept(self) -> bool:
        """Whether the lock was released and is kept from other clients for a while."""
        return self.owner_id.partition(":")[2] == KEPT

    def as_dict(self) -> dict[str, object]:
        """The fields of the JSON object."""
        return {
            "client": self.client,
            "owner": self.owner,
            "named": self.named,
            "by": self.library,
            **self.identity.as_dict(),
            "mode": self.mode,
            "kept": self.kept,
            "detached": self.detached,
            "holds": self.holds,
            "token": self.token,
            "since": self.since,
            "age": self.age,
            "left": None if isinf(self.left) else self.left,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a body that runs once; it is remembered for *left* seconds. A long *text* is cut."""

    failed: bool
    left: float
    size: int
    text: str | None

    def as_dict(self) -> dict[str, object]:
        """The fields of the JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """
    A lock, or a counter, at one moment.

    *waiting* is the length of the *line* of a fair lock, or else the number of clients that listen for the release.
    *more* counts the holders that are not in *holds*. *available* are permits, or the number of a counter. A body that
    ran once and has ended has an *outcome*. *type* is the Redis type of a key that is not a lock.
    """

    name: str
    kind: str
    server: str
    holds: Sequence[Hold] = ()
    more: int = 0
    waiting: int = 0
    line: Sequence[str] = ()
    last_token: int | None = None
    available: int | None = None
    outcome: Outcome | None = None
    type: str | None = None

    @property
    def age(self) -> float:
        """The age of the oldest hold."""
        return max((hold.age for hold in self.holds if hold.age is not None), default=0.0)

    @property
    def left(self) -> float:
        """The longest time for which it will be held without a renewal."""
        return max((hold.left for hold in self.holds), default=0.0)

    def as_dict(self) -> dict[str, object]:
        """The fields of the JSON object."""
        return {each.name: getattr(self, each.name) for each in fields(self)}
