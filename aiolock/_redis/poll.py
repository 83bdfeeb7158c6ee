"""
A call that every server of a quorum has a copy of, and the answers so far.

It ends as soon as its outcome is certain, and waits for no slow server: what comes later changes nothing. Where servers
that are slow could make a difference to what is told, they have a moment from when a majority has answered.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial

from aiolock._backend import Call, Reply
from aiolock._errors import QuorumError
from aiolock._redis.quorum_member import Member

# Seconds from the answers of a majority on for others to say whether they refuse, too; and then to be what decides.
_MOMENTS = (0.05, 0.45)


class Poll(ABC):
    """*call*, asked of all *members*; *over* is called when there is no more to be done about it."""

    # Invariant: each member has answered (`votes`), has failed (`errors`), or is one of the `missing`.

    def __init__(self, call: Call, members: Sequence[Member], over: "Callable[[Poll], object]") -> None:
        self.call = call
        self.votes: dict[Member, Call] = {}
        self.errors: dict[Member, Call] = {}
        self.sent: float = 0.0  # When the first copy left of those in `votes`.
        self.moments: int = 0  # How many of the moments have passed, since a majority has answered.
        self.majority: int = len(members) // 2 + 1
        self._members = members
        self._copies: dict[Member, Call] = {}
        self._over = over
        self._counting = False  # What is noted meanwhile is counted at the end of it.
        self._timer: asyncio.TimerHandle | None = None  # Ends a moment.

    @abstractmethod
    def outcome(self) -> Reply | None:
        """The reply to the call; ``None`` while that is not certain."""

    @property
    def is_waiting(self) -> bool:
        """Whether any answer is to come that could change anything."""
        return self.missing > 0

    @property
    def missing(self) -> int:
        """How many have neither answered nor failed."""
        return len(self._members) - len(self.votes) - len(self.errors)

    @property
    def silent(self) -> int:
        """How many may have something to say that is not known, and perhaps never will be."""
        return len(self._members) - len(self.votes)

    def ask(self) -> None:
        """Send each member its copy, which is tried for as long as the call itself."""
        call = self.call
        for member in self._members:
            copy = self._copies[member] = Call(call.script, call.keys, call.args, call.deadline, call.until)
            self._send(member, copy, self._answered)

    def withdraw(self) -> bool:
        """As `Backend.withdraw`: what has left for any member is not withdrawn."""
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
        copy.fail(asyncio.CancelledError(), "nobody waits for it")
        return True

    def left(self, sent_and_left: Sequence[tuple[float, int]]) -> int:
        """Milliseconds from `sent` on until no majority has any more what each had left from its sending on."""
        ends = sorted([sent + left / 1000 for sent, left in sent_and_left], reverse=True)
        return max(0, int((ends[min(self.majority, len(ends)) - 1] - self.sent) * 1000))

    def _send(self, member: Member, copy: Call, tell: Callable[[Member, Call], object]) -> None:
        copy.when_ended(partial(tell, member))
        member.submit(copy)

    def _answered(self, member: Member, copy: Call) -> None:
        if copy.error is None:
            self.votes[member] = copy
            self.sent = min(self.sent or copy.sent, copy.sent)
        else:
            self.errors[member] = copy
        self.count()

    def count(self) -> None:
        """End the call if that is certain by now."""
        if self.call.ended or self._counting:
            return
        self._counting = True
        is_hopeless = len(self._members) - len(self.errors) < self.majority
        reply = None if is_hopeless else self.outcome()
        self._counting = False
        if reply is not None:
            self._end(reply)
        elif is_hopeless or not self.is_waiting:
            self._fail()
        elif len(self.votes) >= self.majority and self._timer is None:
            self._begin_moment()

    @property
    def is_late(self) -> bool:
        """Whether to wait for nobody any more, though it might change something."""
        return self.moments == len(_MOMENTS)

    def begin_moments_anew(self) -> None:
        """What others say may matter once more, from now on, unless the call ends now."""
        self._cancel_timer()
        self.moments = 0

    def _begin_moment(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_MOMENTS[self.moments], self._moment_over, context=Context())

    def _moment_over(self) -> None:
        self.moments += 1
        if not self.is_late:  # Where the loop was blocked, what arrived meanwhile is read before the next one ends.
            self._begin_moment()
        self.count()

    def _end(self, reply: Reply, error: QuorumError | None = None) -> None:
        self.call.sent = self.sent or min([copy.sent for copy in self._copies.values() if copy.sent], default=0.0)
        for copy in self._copies.values():
            self.call.repeated = self.call.repeated or copy.repeated
        self._close()
        self.call.end(reply, error)

    def _fail(self) -> None:
        """No majority says the same, or can any more."""
        error = QuorumError(self.call.script.name, {each.address: self._words(each) for each in self._members})
        error.__cause__ = next((copy.error.__cause__ for copy in self.errors.values() if copy.error), None)
        self._end([], error)

    def _words(self, member: Member) -> str:
        if member in self.votes:
            return f"answered {self.votes[member].reply!r}"
        failed = self.errors.get(member)
        return "no answer yet" if failed is None else str(failed.error).removeprefix(f"{failed.script.name} failed: ")

    def _close(self) -> None:
        self._cancel_timer()
        self._over(self)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


class Question(Poll):
    """A poll whose outcome *fold* tells from the answers so far."""

    def __init__(
        self,
        call: Call,
        members: Sequence[Member],
        over: Callable[[Poll], object],
        fold: "Callable[[Poll], Reply | None]",
    ) -> None:
        super().__init__(call, members, over)
        self._fold = fold

    def outcome(self) -> Reply | None:
        return self._fold(self)
