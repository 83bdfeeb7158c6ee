"""What is known of a lock and of those who hold it. Times are in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf
from typing import Self

from aiolock._core.hold import KEPT

LOCK, FAIR, READ_WRITE, PERMITS = "lock", "fair lock", "read-write lock", "permits"
SEMAPHORE, LATCH, COUNTER = "semaphore", "latch", "semaphore or latch"
ONCE = "once"
FREE, FOREIGN = "free", "not a lock"


@dataclass(frozen=True, slots=True)
class Card:
    """What a client says of itself, for as long as it holds anything; *since* is of the epoch."""

    host: str
    pid: int
    name: str | None
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """
    One owner's part of a lock.

    *holder* is its name in Redis. *by* is the library that took it. *since* is when it was granted, by the server's
    clock, in seconds of the epoch, and *age* how long that is ago; ``None`` where Redis does not know. What never
    ends has infinitely much *left*. *permits* are the members of a semaphore that it has.
    """

    holder: str
    by: str
    holds: int
    left: float
    mode: str | None = None
    token: int | None = None
    since: float | None = None
    age: float | None = None
    card: Card | None = None
    permits: Sequence[bytes] = ()

    @property
    def client(self) -> str:
        """The id of the client."""
        return self.holder.partition(":")[0]

    @property
    def owner(self) -> str:
        """Who of the client it is: the number of a task, the name of a named owner, or the number of a thread."""
        owner = self.holder.partition(":")[2]
        return owner.removeprefix("named:").removesuffix(":write" if self.mode == "write" else "")

    @property
    def named(self) -> bool:
        """Whether its owner has a name."""
        return self.holder.partition(":")[2].startswith("named:")

    @property
    def kept(self) -> bool:
        """Whether it was given back, and nobody else gets it for a while."""
        return self.holder.partition(":")[2] == KEPT

    def shown_by(self, card: Card | None) -> Self:
        """The same, with what its client says of itself."""
        return replace(self, card=card)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        card = self.card
        return {
            "client": self.client,
            "owner": self.owner,
            "named": self.named,
            "by": self.by,
            "host": card and card.host,
            "pid": card and card.pid,
            "client_name": card and card.name,
            "mode": self.mode,
            "kept": self.kept,
            "holds": self.holds,
            "token": self.token,
            "since": self.since,
            "age": self.age,
            "left": None if isinf(self.left) else self.left,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a body that runs once came to; *left* is for how long that is remembered. A *text* that is long is cut."""

    failed: bool
    left: float
    size: int
    text: str | None

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"failed": self.failed, "left": self.left, "size": self.size, "text": self.text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """
    A lock, or a counter, at one moment.

    *waiting* counts who stands in the *line* of a fair lock, and else the clients that listen for its release. *more*
    is how many hold it beside those in *holds*. *available* is of permits, or what a counter says. An *outcome* has
    what ran once, and has ended. *type* is what Redis calls a key that is not a lock.
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
        """For how long the one who has had it longest has it."""
        return max((hold.age for hold in self.holds if hold.age is not None), default=0.0)

    @property
    def left(self) -> float:
        """How long it will be held at most, unless it is renewed."""
        return max((hold.left for hold in self.holds), default=0.0)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "server": self.server,
            "holds": [hold.as_dict() for hold in self.holds],
            "more": self.more,
            "waiting": self.waiting,
            "line": list(self.line),
            "last_token": self.last_token,
            "available": self.available,
            "outcome": self.outcome and self.outcome.as_dict(),
            "type": self.type,
        }
