"""What one look shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf

from aiolock._cli.locks.model import Hold, Lock

_ORDERS: dict[str, Callable[[Lock], tuple[object, ...]]] = {
    "waiting": lambda lock: (-lock.waiting, -lock.age, lock.name),
    "held": lambda lock: (-lock.age, lock.name),
    "left": lambda lock: (not lock.holds, lock.left, lock.name),
    "name": lambda lock: (lock.name,),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """The *locks*, in order, *at* that time of day; the look *took* some seconds, or failed with an *error*."""

    at: str
    server: str
    locks: Sequence[Lock] = ()
    took: float = 0.0
    error: str | None = None

    @property
    def summary(self) -> str:
        """What there is, in a line."""
        if self.error is not None:
            return self.error
        holds = [hold for lock in self.locks for hold in lock.holds]
        clients, held = len({hold.client for hold in holds}), sum(bool(lock.holds) for lock in self.locks)
        waiting = sum(lock.waiting for lock in self.locks)
        return f"{held} held by {clients} client{'' if clients == 1 else 's'}, {waiting} waiting"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "at": self.at,
            "server": self.server,
            "error": self.error,
            "locks": [lock.as_dict() for lock in self.locks],
        }


def ordered(locks: Sequence[Lock], order: str) -> list[Lock]:
    """*locks* by the *order* that was asked for."""
    return sorted(locks, key=_ORDERS[order])


class Leases:
    """How long the lease of each hold is, as far as we have seen: the most that it ever had left."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, str, int | None], float] = {}

    def see(self, locks: Sequence[Lock]) -> None:
        """Take note of those that there are, and forget all others."""
        seen = [(_key(lock, hold), hold.left) for lock in locks for hold in lock.holds]
        self._most = {key: max(left, self._most.get(key, 0.0)) for key, left in seen}

    def share(self, lock: Lock, hold: Hold) -> float:
        """How much of its lease is left."""
        most = self._most.get(_key(lock, hold), 0.0)
        if isinf(hold.left):
            return 1.0
        return hold.left / most if most > 0 else 0.0


def _key(lock: Lock, hold: Hold) -> tuple[str, str, int | None]:
    return lock.name, hold.holder, hold.token
