"""The present holds and waits of one client."""

import math
from time import monotonic

from aiolock._core.hold import Hold
from aiolock._core.leases import Entries, Entry
from aiolock._core.owners import Owners, is_named
from aiolock._core.place import Place
from aiolock._types import Holding, LockActivity, LockKind, Waiting


def activity_of(entries: Entries, owners: Owners) -> list[LockActivity]:
    """The result of `LockClient.activity`, ordered by name."""
    now, tasks = monotonic(), owners.tasks()
    found = [
        LockActivity(entry.keys.name, kind, _holding(entry, tasks, now), _waiting(entry, tasks, now))
        for entry in entries.all()
        if (kind := _kind_of(entry)) is not None
    ]
    return sorted(found, key=lambda each: (each.name, each.kind))


def _kind_of(entry: Entry) -> LockKind | None:
    """The kind of the lock that a task holds or waits for; ``None`` if no task does."""
    hold: Hold | None = entry.hold
    if hold is not None:
        return hold.claim.want.scripts.kind
    return None if entry.queue is None else entry.queue.scripts.kind


def _holding(entry: Entry, tasks: dict[str, str], now: float) -> tuple[Holding, ...]:
    return tuple(
        Holding(
            owner=hold.owner,
            task=tasks.get(hold.owner),
            token=hold.token,
            holds=len(hold.leases),
            held=now - hold.since,
            remaining=None if math.isinf(hold.deadline) else max(0.0, hold.deadline - now),
        )
        for hold in entry.holds.values()
    )


def _waiting(entry: Entry, tasks: dict[str, str], now: float) -> tuple[Waiting, ...]:
    places = () if entry.queue is None else entry.queue
    return tuple(Waiting(owner := _owner_of(place), tasks.get(owner), now - place.since) for place in places)


def _owner_of(place: Place) -> str:
    """The owner that waits; for a primitive without owners, the task."""
    return place.owner if is_named(place.owner) else place.record.owner
