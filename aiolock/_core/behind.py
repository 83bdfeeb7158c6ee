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
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from aiolock._backend import Call, Notifier
from aiolock._core.queue import MOST_HAND_OFFS, STEP_ASIDE, others_told
from aiolock._keys import LockKeys
from aiolock._scripts import Want
from aiolock._scripts.replies import Changed


class Before(NamedTuple):
    """The *releases* that were sent before an acquire of the same lock; it is hand-off number *in_a_row* of a row."""

    # Empty for an acquire that waits: after a refusal, the message of a release wakes it.
    releases: Sequence[Call[Changed]]
    in_a_row: int

    async def overtaken_by(self, tried: Call | None) -> bool:
        """Whether *tried* was answered before one of the releases; if so, waits until these releases have ended."""
        if tried is None:
            return False
        overtaken = [each for each in self.releases if not each.ended or each.number > tried.number]
        for release in overtaken:
            await _ended(release)
        return bool(overtaken)


class Behind:
    """The releases of one client that were left behind, until their answers arrive."""

    def __init__(self, notifier: Notifier) -> None:
        # Of each lock, by its key, which all kinds of lock of one name share: the releases that have no answer yet, in
        # their order, each with the hand-offs in a row before the hold that it ends, or before an earlier one of these.
        # Invariant: no dictionary in here is empty.
        self.releases: dict[str, dict[Call[Changed], int]] = {}
        self._notifier = notifier

    def add(self, keys: LockKeys, release: Call[Changed], in_a_row: int) -> None:
        """Add *release*, which has been sent after *in_a_row* hand-offs."""
        releases = self.releases.setdefault(keys.lock, {})
        releases[release] = max(in_a_row, next(reversed(releases.values()), 0))
        release.when_ended(partial(self._answered, keys.lock))

    async def follow(self, want: Want, *, waits: bool) -> Before:
        """
        The releases before an acquire that is about to be sent.

        After the last hand-off of a row, this waits for the answer to the last release, however short the wait of the
        acquire is: the acquire could have no answer before. If the acquire *waits*, others then have a moment to go
        first. Locks with a line are left out, because their server decides about turns.
        """
        releases = self.releases.get(want.keys.lock, {})
        in_a_row = 0
        if releases and not want.scripts.line:
            last, before = next(reversed(releases.items()))
            in_a_row = before + 1
            if in_a_row > MOST_HAND_OFFS:
                await _ended(last)
                if waits and others_told(last, self._notifier, want.keys.channel):
                    await asyncio.sleep(STEP_ASIDE)
                releases, in_a_row = self.releases.get(want.keys.lock, {}), 0
        return Before(() if waits else tuple(releases), in_a_row)

    def _answered(self, key: str, release: Call[Changed]) -> None:
        releases = self.releases[key]
        del releases[release]
        if not releases:
            del self.releases[key]


async def _ended(call: Call[Changed]) -> None:
    """Wait until *call* has ended; several tasks may wait for the same call."""
    ended = asyncio.Event()
    call.when_ended(lambda call: ended.set())
    await ended.wait()
