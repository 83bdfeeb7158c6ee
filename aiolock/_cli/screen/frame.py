"""The picture of one look."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isinf

from aiolock._cli.locks.model import Hold, Lock

ORDERS: dict[str, Callable[[Lock], tuple[object, ...]]] = {
    "waiting": lambda lock: (-lock.waiting, -lock.age, lock.name),
    "held": lambda lock: (-lock.age, lock.name),
    "left": lambda lock: (not lock.holds, lock.left, lock.name),
    "name": lambda lock: (lock.name,),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """
    The *locks*, in order, *at* that time of day; the look *took* some seconds, not counting a silence of the server.

    A frame with an *error* is of a look that failed, and has the locks of the last one that did not.
    """

    at: str
    server: str
    locks: Sequence[Lock] = ()
    took: float = 0.0
    error: str | None = None

    @property
    def summary(self) -> str:
        """A line that sums up the locks, or the error."""
        if self.error is not None:
            return self.error
        if not self.server:
            return "looking at all keys for the first time"
        holds = [hold for lock in self.locks for hold in lock.holds]
        clients, held = len({hold.client for hold in holds}), sum(bool(lock.holds) for lock in self.locks)
        waiting = sum(lock.waiting for lock in self.locks)
        return f"{held} held by {clients} client{'' if clients == 1 else 's'}, {waiting} waiting"

    def as_dict(self) -> dict[str, object]:
        """The fields of the JSON object."""
        return {
            "at": self.at,
            "server": self.server,
            "error": self.error,
            "locks": [] if self.error is not None else self.locks,
        }


def now() -> str:
    """The time of day."""
    return f"{datetime.now().astimezone():%H:%M:%S}"


def ordered(locks: Sequence[Lock], order: str) -> list[Lock]:
    """*locks* in the *order* that the user chose."""
    return sorted(locks, key=ORDERS[order])


class Leases:
    """The length of each hold's lease, as far as it was seen: the most time that it ever had left."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, str, int | None], float] = {}

    def see(self, locks: Sequence[Lock]) -> None:
        """Update the leases of these locks, and forget all others."""
        seen = [(_key(lock, hold), hold.left) for lock in locks for hold in lock.holds]
        self._most = {key: max(left, self._most.get(key, 0.0)) for key, left in seen}

    def share(self, lock: Lock, hold: Hold) -> float:
        """The share of the lease that is left."""
        most = self._most.get(_key(lock, hold), 0.0)
        if isinf(hold.left):
            return 1.0
        return hold.left / most if most > 0 else 0.0


def _key(lock: Lock, hold: Hold) -> tuple[str, str, int | None]:
    return lock.name, hold.owner_id, hold.token
