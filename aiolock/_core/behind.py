"""
Releases that were left behind, so that no caller waits for their answers; and the acquires that are sent after them.

Rules:
1. If an acquire is sent before the reply to a release of the same lock, no other process can get the lock in between:
   this is a hand-off, and one command if the two leave together. After a number of hand-offs in a row an acquire waits
   for the reply, and waiters of other processes go first.
2. An acquire can overtake a release that the server refuses for the moment, or whose slot moves. Then a refusal of the
   acquire means nothing: an acquire that does not wait tries again, after the replies to the earlier releases.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from aiolock._backend import Call, Notifier
from aiolock._core.queue import MOST_HAND_OFFS, STEP_ASIDE, others_told
from aiolock._keys import LockKeys
from aiolock._scripts import Want
from aiolock._scripts.replies import Changed


class ReleaseBehind:
    """A *release* that was left behind. The releases of one lock that have no answer yet are a chain."""

    __slots__ = ("_answered", "earlier", "in_a_row", "key", "later", "release")

    def __init__(
        self,
        release: Call[Changed],
        key: str,
        in_a_row: int,
        earlier: "ReleaseBehind | None",
        answered: "Callable[[ReleaseBehind], object]",
    ) -> None:
        self.release: Call[Changed] = release
        self.key: str = key
        # The hand-offs in a row before the hold that this release ends, or before an earlier hold of the chain.
        self.in_a_row: int = in_a_row if earlier is None else max(in_a_row, earlier.in_a_row)
        self.earlier: ReleaseBehind | None = earlier
        self.later: ReleaseBehind | None = None
        if earlier is not None:
            earlier.later = self
        self._answered = answered

    def __iter__(self) -> "Iterator[ReleaseBehind]":
        """This one and all the earlier ones."""
        each: ReleaseBehind | None = self
        while each is not None:
            yield each
            each = each.earlier

    def unlink(self) -> None:
        """Remove this release from the chain."""
        if self.earlier is not None:
            self.earlier.later = self.later
        if self.later is not None:
            self.later.earlier = self.earlier
        self.earlier = self.later = None

    def __call__(self, release: Call[Changed]) -> None:
        """Note that the release has an answer, or has failed."""
        self._answered(self)


class Before(NamedTuple):
    """The *releases* that were sent before an acquire of the same lock; it is hand-off number *in_a_row* of a row."""

    releases: Sequence[Call[Changed]]
    in_a_row: int

    async def overtaken_by(self, tried: Call | None) -> bool:
        """Whether *tried* was answered before one of the releases; if so, waits until these releases have ended."""
        number = 0 if tried is None else tried.number
        overtaken = [each for each in self.releases if number and (not each.ended or each.number > number)]
        for release in overtaken:
            await _ended(release)
        return bool(overtaken)


# An acquire that waits needs no releases, because after a refusal the message of a release wakes it.
_OF_NUMBER = tuple(Before((), number) for number in range(MOST_HAND_OFFS + 1))


class Behind:
    """The releases of one client that were left behind, until their answers arrive."""

    def __init__(self, notifier: Notifier) -> None:
        # Invariant: a lock's key has an entry, its last release, while any release of the lock has no answer. All kinds
        # of lock of one name have the same key.
        self.releases: dict[str, ReleaseBehind] = {}
        self._notifier = notifier

    def add(self, keys: LockKeys, release: Call[Changed], in_a_row: int) -> None:
        """Add *release*, which has been sent after *in_a_row* hand-offs."""
        key, releases = keys.lock, self.releases
        releases[key] = last = ReleaseBehind(release, key, in_a_row, releases.get(key), self._answered)
        release.when_ended(last)

    async def follow(self, want: Want, *, waits: bool) -> Before:
        """
        The releases before an acquire that is about to be sent.

        After the last hand-off of a row, this waits for the answer to the last release, however short the wait of the
        acquire is: the acquire could have no answer before. If the acquire *waits*, others then have a moment to go
        first. Locks with a line are left out, because their server decides about turns.
        """
        last = self.releases.get(want.keys.lock)
        in_a_row = 0 if last is None or want.scripts.line else last.in_a_row + 1
        if last is not None and in_a_row > MOST_HAND_OFFS:
            await _ended(last.release)
            if waits and others_told(last.release, self._notifier, want.keys.channel):
                await asyncio.sleep(STEP_ASIDE)
            last, in_a_row = self.releases.get(want.keys.lock), 0
        if last is None or waits:
            return _OF_NUMBER[in_a_row]
        return Before([each.release for each in last], in_a_row)

    def _answered(self, answered: ReleaseBehind) -> None:
        if answered.later is None and answered.earlier is not None:
            self.releases[answered.key] = answered.earlier
        elif answered.later is None:
            del self.releases[answered.key]
        answered.unlink()


async def _ended(call: Call[Changed]) -> None:
    """Wait until *call* has ended; several tasks may wait for the same call."""
    ended = asyncio.Event()
    call.when_ended(lambda call: ended.set())
    await ended.wait()
