"""
Renewals in one event loop: renewals that are due in the same turn are sent together, and each task waits for its
answer.

The watchdog is a renewer, and the thread that stands in for a blocked event loop has another one.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextvars import Context
from functools import partial
from itertools import repeat
from time import monotonic
from typing import Generic, TypeVar

from aiolock._backend import Call
from aiolock._config import Timing
from aiolock._core.commands import Commands
from aiolock._core.held import Renewal
from aiolock._core.hold import Hold
from aiolock._scripts import Script
from aiolock._scripts.replies import Renewed

# The locks or permits that one script renews; the server runs nothing else meanwhile.
_MOST_TOGETHER = 32

RenewalCall = Call[list[Renewed]]
# The call of a renewal, and its answer about the hold in question, if there is one.
Answer = tuple[RenewalCall, Renewed | None]
H = TypeVar("H", bound=Hold)


class Renewer(ABC, Generic[H]):
    """Sends renewals, and hands out their answers."""

    def __init__(self, commands: Commands, timing: Timing) -> None:
        self._commands = commands
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        # Timers run in a context of their own, so that they keep nothing of a user's context alive.
        self._context = Context()
        # The holds that are renewed at the end of this turn of the loop.
        self._due: dict[H, asyncio.Future[Answer]] = {}

    @abstractmethod
    def _next(self, hold: H) -> Renewal:
        """A new renewal of *hold*, for sending."""

    @abstractmethod
    def _goes_alone(self, hold: H) -> bool:
        """Whether the last renewal of *hold* got no answer, so that it is sent alone."""

    def _patience(self, *, alone: bool) -> float:
        """The seconds for which a renewal of one hold *alone*, or of several holds, is tried."""
        return self._timing.renewal_time(alone=alone)

    def _sent(self, call: RenewalCall, holds: Sequence[H]) -> None:
        """Note that *call*, which renews *holds*, was sent."""

    def _over(self, call: RenewalCall) -> None:
        """Note that *call* has ended."""

    def _answer(self, hold: H) -> "asyncio.Future[Answer]":
        """The answer to a renewal of *hold*, which is sent together with all others of this turn of the loop."""
        answer = self._due[hold] = self._loop.create_future()
        if len(self._due) == 1:
            self._loop.call_soon(self._ask, context=self._context)
        return answer

    def _ask(self) -> None:
        """Send all renewals that are due."""
        due, self._due = self._due, {}
        for hold in [hold for hold in due if hold.ended]:
            due.pop(hold).cancel()
        for holds in self.together(due):
            rows = [self._next(hold) for hold in holds]
            call = self._commands.renew(rows, self._patience(alone=len(holds) == 1))
            self._sent(call, holds)
            call.when_ended(partial(self._answered, [due[hold] for hold in holds]))

    def together(self, holds: Iterable[H]) -> Iterator[list[H]]:
        """
        *holds* in groups that one script may renew.

        A group has holds of one primitive, if one server has all locks. A hold whose last renewal got no answer is
        alone, so that it cannot keep others from their answers.
        """
        groups: dict[Script, list[H]] = {}
        sizes = Counter[Script]()
        for hold in holds:
            if self._goes_alone(hold) or self._commands.backend.apart:
                yield [hold]
                continue
            want = hold.claim.want
            renew = want.scripts.renew
            groups.setdefault(renew, []).append(hold)
            sizes[renew] += sum(want.amount) or 1
            if sizes[renew] >= _MOST_TOGETHER:
                sizes[renew] = 0
                yield groups.pop(renew)
        yield from groups.values()

    def _answered(self, waiting: Sequence["asyncio.Future[Answer]"], call: RenewalCall) -> None:
        self._over(call)
        for future, answer in zip(waiting, call.answer or repeat(None, len(waiting)), strict=True):
            if not future.done():
                future.set_result((call, answer))


def next_number(last: int) -> int:
    """
    The number of the renewal that follows number *last*: the monotonic clock, in microseconds.

    So the numbers also grow from one thread of the process to another.
    """
    return max(last + 1, int(monotonic() * 1e6))
