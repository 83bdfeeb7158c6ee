"""
A call with a copy for each server of a quorum, and the answers so far.

A poll ends as soon as its outcome is certain, without waiting for slow servers, whose answers would change nothing. If
slow servers could change the outcome, they have a moment to answer after a majority has.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from functools import partial
from time import monotonic
from typing import Any

from aiolock._backend import Call
from aiolock._errors import BackendError, QuorumError
from aiolock._redis.quorum.member import Member
from aiolock._scripts.replies import Applied, Granted, Lost, NotALock, Refused, Stale

# Seconds of two moments after the answers of a majority: in the first, the others may refuse as well; in the second,
# their answers may decide.
_MOMENTS = (0.05, 0.35)
# The answers of a server, for people.
_ANSWERS: dict[type[object], str] = {
    Granted: "answered yes",
    Applied: "answered yes",
    Refused: "another holder has the lock there",
    Lost: "the lock is lost there",
    Stale: "the acquire was given up there",
    NotALock: "the key holds something else there",
}


class Poll(ABC):
    """A poll: *call*, sent to all *members*; *over* is called at the end of the poll."""

    # Invariant: each member has answered (`votes`), has failed (`errors`), or is one of the `missing`. Answers are
    # noted after the end of the call, too: a copy that was sent and not answered may arrive later than calls that
    # follow it.

    def __init__(self, call: Call, members: Sequence[Member], over: "Callable[[Poll], object]") -> None:
        self.call = call
        self.votes: dict[Member, Call] = {}
        self.errors: dict[Member, Call] = {}
        # Members that the undone acquire never reached: they have nothing to give back.
        self.unreached: set[Member] = set()
        # The earliest sending time of the copies in `votes`.
        self.sent: float = 0.0
        # The number of moments that have passed since a majority answered.
        self.moments: int = 0
        # Later answers count as late.
        self._late_from = math.inf
        self.majority: int = len(members) // 2 + 1
        self._members = members
        self._copies: dict[Member, Call] = {}
        self._over = over
        # Answers that come during a count are counted at its end.
        self._counting = False
        # The timer that ends a moment.
        self._timer: asyncio.TimerHandle | None = None
        self._tell_settled: Callable[[], object] | None = None
        call.delivery = self

    @abstractmethod
    def outcome(self) -> Any:
        """The answer to the call; ``None`` while the answer is not certain."""

    @property
    def is_waiting(self) -> bool:
        """Whether an answer may still come that changes the outcome."""
        return self.missing > 0

    @property
    def answers(self) -> list[tuple[float, Any]]:
        """The time of sending and the answer of each copy that was answered."""
        return [(copy.sent, copy.answer) for copy in self.votes.values()]

    @property
    def missing(self) -> int:
        """The number of members that have neither answered nor failed."""
        return len(self._members) - len(self.votes) - len(self.errors) - len(self.unreached)

    @property
    def awaited(self) -> int:
        """The number of missing members from which an answer is expected soon."""
        known = self.votes.keys() | self.errors.keys() | self.unreached
        return sum(member not in known and not member.is_silent for member in self._members)

    @property
    def silent(self) -> int:
        """The number of members without a vote: still pending, or failed."""
        return len(self._members) - len(self.votes)

    def ask(self) -> None:
        """Send each member its copy, which has the same time limits as the call."""
        call, undone = self.call, self.call.undoes
        for member in self._members:
            copy = self._copies[member] = Call(call.script, call.keys, call.args, call.deadline, call.resend_until)
            if undone is not None and undone.withdraw_from(member):
                # The server has nothing to give back: see `agreed`.
                copy.end(Applied())
                self.unreached.add(member)
        for member, copy in self._copies.items():
            if not copy.ended:
                self._send(member, copy, self._answered)
        if self.unreached:
            self.count()

    def withdraw(self) -> bool:
        """The same as `Backend.withdraw`; a copy that has been sent to a member stays sent."""
        self._counting = True
        withdrawn = [self._withdraw(member) for member in self._members]
        self._counting = False
        if all(withdrawn):
            self._close()
        else:
            self.count()
        return all(withdrawn)

    def _withdraw(self, member: Member) -> bool:
        copy = self._copies[member]
        if copy.ended or not member.withdraw(copy):
            return False
        self._drop(copy)
        return True

    def _drop(self, copy: Call) -> None:
        copy.fail(ConnectionAbortedError("withdrawn"), "it was withdrawn before it was sent")

    # The methods of a `Delivery`.

    @property
    def is_settled(self) -> bool:
        return not any(map(_may_arrive, self._copies.values()))

    def when_settled(self, tell: Callable[[], object]) -> None:
        if self.is_settled:
            tell()
        else:
            self._tell_settled = tell

    def withdraw_from(self, server: object) -> bool:
        assert isinstance(server, Member)
        self._withdraw(server)
        return not self._copies[server].sent

    def left(self, sent_and_left: Iterable[tuple[float, float]]) -> float:
        """Seconds from `sent` until no majority of the servers has the lock any more."""
        ends = sorted([sent + left for sent, left in sent_and_left], reverse=True)
        # In whole milliseconds, as in a server's answer.
        return max(0, int((ends[min(self.majority, len(ends)) - 1] - self.sent) * 1000)) / 1000

    def _send(self, member: Member, copy: Call, tell: Callable[[Member, Call], object]) -> None:
        copy.when_ended(partial(tell, member))
        member.submit(copy)

    def _answered(self, member: Member, copy: Call) -> None:
        if copy.error is None:
            self.votes[member] = copy
            if len(self.votes) == self.majority:
                self._late_from = monotonic() + _MOMENTS[0]
            member.answered(late=monotonic() >= self._late_from)
            self.sent = min(self.sent or copy.sent, copy.sent)
        else:
            self.errors[member] = copy
        self.count()
        if self._tell_settled is not None and self.is_settled:
            tell, self._tell_settled = self._tell_settled, None
            tell()

    def count(self) -> None:
        """End the call if its outcome is certain by now."""
        if self.call.ended or self._counting:
            return
        self._counting = True
        is_hopeless = len(self._members) - len(self.errors) < self.majority
        answer = None if is_hopeless else self.outcome()
        self._counting = False
        if answer is not None:
            self._end(answer)
        elif is_hopeless or not self.is_waiting:
            self._fail()
        elif len(self.votes) >= self.majority and self._timer is None:
            self._begin_moment()

    @property
    def is_late(self) -> bool:
        """Whether the time for slow servers is over, even if their answers could change the outcome."""
        return self.moments == len(_MOMENTS)

    def restart_moments(self) -> None:
        """Give slow servers all their moments again, from now on."""
        self._cancel_timer()
        self.moments = 0

    def _begin_moment(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_MOMENTS[self.moments], self._moment_over, context=Context())

    def _moment_over(self) -> None:
        self.moments += 1
        # If the loop was blocked, it reads the answers that have arrived before the next moment ends.
        if not self.is_late:
            self._begin_moment()
        for member in self._members:
            if member not in self.votes:
                member.let_wait(is_late=self.is_late)
        self.count()

    def _end(self, answer: Any, error: QuorumError | None = None) -> None:
        self.call.sent = self.sent or min([copy.sent for copy in self._copies.values() if copy.sent], default=0.0)
        self._close()
        self.call.end(answer, error)

    def _fail(self) -> None:
        """End the call with an error, because no majority can give the same answer any more."""
        error = self.disagreement()
        error.__cause__ = next((copy.error.__cause__ for copy in self.errors.values() if copy.error), None)
        self.call.note(BackendError(str(error).removeprefix(f"{error.what} failed: ")))
        self._end(None, error)

    def disagreement(self) -> QuorumError:
        """The error with the answer or failure of each member."""
        return QuorumError(self.call.what, {each.address: self._words(each) for each in self._members})

    def _words(self, member: Member) -> str:
        if member in self.votes:
            return self.answer_in_words(self.votes[member].answer)
        failed = self.errors.get(member)
        return "no answer yet" if failed is None else str(failed.error).removeprefix(f"{failed.what} failed: ")

    def answer_in_words(self, answer: object) -> str:
        """The *answer* of a member, as a text for people."""
        return _ANSWERS.get(type(answer), "answered")

    def _close(self) -> None:
        self._cancel_timer()
        self._over(self)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


def _may_arrive(copy: Call) -> bool:
    """Whether the copy may still be sent, or was sent and may not have been answered each time."""
    return not copy.ended or (copy.sent > 0 and (copy.repeated or copy.error is not None))


class Question(Poll):
    """A poll whose outcome is computed by *fold* from the answers so far."""

    def __init__(
        self,
        call: Call,
        members: Sequence[Member],
        over: Callable[[Poll], object],
        fold: Callable[[Poll], Any],
    ) -> None:
        super().__init__(call, members, over)
        self._fold = fold

    def outcome(self) -> Any:
        return self._fold(self)
