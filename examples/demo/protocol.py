"""The messages between the demo and its workers: a line of JSON each, orders down one pipe and events up the other."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

LOCK = "account"
TASKS = "ab"

# The worker stops when there are no more orders.
Order = Literal[
    "go",
    # The next deposit takes very long.
    "toil",
    # The next deposit stops the process right before its write.
    "freeze",
    # The worker cancels the deposit that holds the lock.
    "cancel",
]

What = Literal[
    "ready",
    "waits",
    "holds",
    "toils",
    "renewed",
    "freezes",
    "wakes",
    "wrote",
    "lost",
    # The ends of a hold:
    "released",
    "cancelled",
    "refused",
    "failed",
]
ENDS = ("released", "cancelled", "refused", "failed")


@dataclass(frozen=True, slots=True)
class Settings:
    """The first message to a worker."""

    url: str
    prefix: str
    folder: str
    lease: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a worker; *at* is on the monotonic clock, which all processes of a machine share."""

    at: float
    # "3a" is task a of worker 3.
    who: str
    what: What
    token: int = 0
    balance: int = 0
    note: str = ""

    @property
    def worker(self) -> str:
        return self.who[0]


def encode(message: Settings | Event) -> str:
    """*message* as a line."""
    return json.dumps(asdict(message)) + "\n"


def settings_of(line: str | bytes) -> Settings:
    return Settings(**json.loads(line))


def event_of(line: str | bytes) -> Event:
    return Event(**json.loads(line))
