"""Which holds a client has, and which it lost lately."""

from collections import OrderedDict
from collections.abc import Iterator

from aiolock._lease import Hold

REMEMBERED_LOSSES = 1024  # So that a late release can be told what became of its lock.


class Holds:
    """The holds of one client, by owner and lock key."""

    def __init__(self) -> None:
        # Invariant: a hold is in `_live` from its grant until it is given back or lost, and nowhere else; no owner is
        # kept without holds.
        self._live: dict[str, dict[str, Hold]] = {}
        self._lost: OrderedDict[tuple[str, str], Hold] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Hold]:
        """Every live hold, as of now."""
        return iter([hold for owned in self._live.values() for hold in owned.values()])

    def get(self, owner: str, key: str) -> Hold | None:
        """The live hold of *owner* on *key*."""
        owned = self._live.get(owner)
        return None if owned is None else owned.get(key)

    def lost(self, owner: str, key: str) -> Hold | None:
        """A hold of *owner* on *key* that was lost and not yet given back."""
        return self._lost.get((owner, key))

    def owned_by(self, owner: str) -> list[Hold]:
        """Every live hold of *owner*."""
        return list(self._live.get(owner, {}).values())

    def on(self, key: str) -> Hold | None:
        """The live hold on *key*, whose ever it is."""
        return next((owned[key] for owned in self._live.values() if key in owned), None)

    def add(self, hold: Hold) -> None:
        """*hold* was granted; an earlier one that its owner lost is forgotten."""
        self._lost.pop((hold.owner, hold.keys.lock), None)
        self._live.setdefault(hold.owner, {})[hold.keys.lock] = hold
        self._count += 1

    def remove(self, hold: Hold) -> None:
        """*hold* was given back, or is lost."""
        owned = self._live[hold.owner]
        del owned[hold.keys.lock]
        if not owned:
            del self._live[hold.owner]
        self._count -= 1

    def remember_lost(self, hold: Hold) -> None:
        """*hold* is lost, and its owner may ask for it."""
        self._lost[hold.owner, hold.keys.lock] = hold
        if len(self._lost) > REMEMBERED_LOSSES:
            self._lost.popitem(last=False)

    def forget_lost(self, hold: Hold) -> None:
        """The owner of the lost *hold* knows, or is no more."""
        if self._lost.get((hold.owner, hold.keys.lock)) is hold:
            del self._lost[hold.owner, hold.keys.lock]
