"""Which holds a client has, and which it lost lately."""

from collections import OrderedDict
from collections.abc import Iterator

from aiolock._lease import Hold

REMEMBERED_LOSSES = 1024  # So that a late release can be told what became of its lock.


class Holds:
    """The holds of one client, by owner and lock key."""

    def __init__(self) -> None:
        # Invariant: a live hold is in both, from its grant until it is given back or lost; no owner is kept without
        # holds. A name has one live hold at most: a second grant says that the first is lost.
        self._by_owner: dict[str, dict[str, Hold]] = {}
        self._by_key: dict[str, Hold] = {}
        # Invariant: a lost hold is in both, until it is given back, its owner is no more, or others came after it.
        self._lost: OrderedDict[tuple[str, str], Hold] = OrderedDict()
        self._lost_by_owner: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Hold]:
        """Every live hold, as of now."""
        return iter(list(self._by_key.values()))

    def get(self, owner: str, key: str) -> Hold | None:
        """The live hold of *owner* on *key*."""
        hold = self._by_key.get(key)
        return hold if hold is not None and hold.owner == owner else None

    def on(self, key: str) -> Hold | None:
        """The live hold on *key*, whose ever it is."""
        return self._by_key.get(key)

    def lost(self, owner: str, key: str) -> Hold | None:
        """A hold of *owner* on *key* that was lost and not yet given back."""
        return self._lost.get((owner, key))

    def owned_by(self, owner: str) -> list[Hold]:
        """Every live hold of *owner*."""
        return list(self._by_owner.get(owner, {}).values())

    def add(self, hold: Hold) -> None:
        """*hold* was granted; an earlier one that its owner lost is forgotten."""
        key = hold.keys.lock
        self._forget_lost(hold.owner, key)
        self._by_key[key] = self._by_owner.setdefault(hold.owner, {})[key] = hold

    def remove(self, hold: Hold) -> None:
        """*hold* was given back, or is lost."""
        del self._by_key[hold.keys.lock]
        owned = self._by_owner[hold.owner]
        del owned[hold.keys.lock]
        if not owned:
            del self._by_owner[hold.owner]

    def remember_lost(self, hold: Hold) -> None:
        """*hold* is lost, and its owner may ask for it."""
        self._lost[hold.owner, hold.keys.lock] = hold
        self._lost_by_owner.setdefault(hold.owner, set()).add(hold.keys.lock)
        if len(self._lost) > REMEMBERED_LOSSES:
            self._forget_lost(*next(iter(self._lost)))

    def forget_lost(self, hold: Hold) -> None:
        """The owner of the lost *hold* has given it back."""
        if self._lost.get((hold.owner, hold.keys.lock)) is hold:
            self._forget_lost(hold.owner, hold.keys.lock)

    def forget_lost_by(self, owner: str) -> None:
        """*owner* is no more."""
        for key in list(self._lost_by_owner.get(owner, ())):
            self._forget_lost(owner, key)

    def _forget_lost(self, owner: str, key: str) -> None:
        if self._lost and self._lost.pop((owner, key), None) is not None:
            keys = self._lost_by_owner[owner]
            keys.remove(key)
            if not keys:
                del self._lost_by_owner[owner]
