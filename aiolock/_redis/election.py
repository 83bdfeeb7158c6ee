"""
A quorum is asked to grant something: two rounds, the second of which confirms what the first one granted.

A majority has to grant it. Each has a token of its own, and the next majority may have none of those that had the
greatest: so that is raised everywhere, and whoever acquired is told only when a majority has it, and for as long as all
of that majority keep the lock.

Permits are granted by each server to as many as there are; a majority each could have more: three servers with two
permits have six, for three who have two each. So all that have any are counted, on a majority, when the own ones are
there: of several who do so at the same time, the last one sees all.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from time import monotonic

from aiolock._backend import Argument, Call, Reply
from aiolock._keys import QUORUM_KEY
from aiolock._redis.fold import is_held
from aiolock._redis.poll import Poll, Question
from aiolock._redis.quorum_member import Member
from aiolock._scripts import (
    ABSTAINS,
    BALLOTS,
    GRANTED,
    HAS_TURN,
    HELD,
    LOST,
    NOT_A_LOCK,
    REFUSED,
    SPLIT,
    STALE,
)

_LEAD = 0.01  # Seconds that a proposed token lies ahead of the clock that was ahead of all others.


class Clock:
    """
    What to propose as a token, so that all servers grant with the same, which none need raise.

    It lies a little after what their clocks say, so far as these were seen to differ.
    """

    def __init__(self) -> None:
        self._ahead: float | None = None  # Of the monotonic clock, in seconds.

    def propose(self) -> int:
        """A token that no server has reached, probably; 0 if nothing is known of them."""
        return 0 if self._ahead is None else int((monotonic() + self._ahead) * 1e6)

    def learn(self, sent: float, tokens: Sequence[int]) -> None:
        """Servers that were asked at *sent* granted with *tokens*."""
        if min(tokens) < max(tokens):
            self._ahead = max(tokens) / 1e6 - sent + _LEAD


class _Vote(Call):
    """A copy of an acquire; its first argument tells the *member* whether the connection it is written to is new."""

    __slots__ = ("member",)

    member: Member

    def arguments(self, publish: str) -> tuple[Argument, ...]:
        if self.member.is_new:
            self.args = (1, *self.args[1:])
        return super().arguments(publish)


def _grants(copy: Call) -> bool:
    """Whether the answer has come, and is a grant."""
    return copy.ended and copy.reply[:1] == [GRANTED]


class Election(Poll):
    """The acquire *call*, put to all *members*; no lease of any client is longer than *longest* milliseconds."""

    # Invariant: the token is the greatest that a majority had when there was one; who has confirmed has none below.

    def __init__(
        self,
        call: Call,
        members: Sequence[Member],
        over: Callable[[Poll], object],
        clock: Clock,
        longest: int,
    ) -> None:
        super().__init__(call, members, over)
        self._clock = clock
        self._longest = longest
        self._ballot = BALLOTS[call.script]
        self._token = 0
        self._second: dict[Member, Call] = {}  # What is to confirm a grant: the vote itself if no more is needed.
        self._look: Call | None = None  # Whether another holds it, where some grant it.

    @property
    def is_waiting(self) -> bool:
        looks = self._look is not None and not self._look.ended
        return looks or self.missing > 0 or not all(copy.ended for copy in self._second.values())

    def ask(self) -> None:
        call = self.call
        keys, arguments = (QUORUM_KEY, *call.keys), (0, self._longest, self._clock.propose(), *call.args)
        for member in self._members:
            vote = self._copies[member] = _Vote(self._ballot.ask, keys, arguments, call.deadline, call.until)
            vote.member = member
            self._send(member, vote, self._answered)

    def outcome(self) -> Reply | None:
        if len(self.votes) + len(self.errors) < self.majority:
            return None
        granted = [member for member, vote in self.votes.items() if vote.reply[0] == GRANTED]
        if len(granted) >= self.majority or self._token:
            self._confirm(granted)
        confirmed = {member: copy.reply for member, copy in self._second.items() if _grants(copy)}
        if len(confirmed) < self.majority:
            gone = sum(copy.ended for copy in self._second.values()) - len(confirmed)
            may_grant = len(granted) - gone + self.missing >= self.majority
            if (may_grant or (self.missing and not self.moments)) and not self.is_late:
                return None
        elif not self._is_overdrawn(confirmed.values()):
            return self._granted([self.votes[member] for member in confirmed])
        return None if self._is_looking(granted) else self._refused(granted)

    # The second round.

    def _confirm(self, granted: Sequence[Member]) -> None:
        if not self._token:
            tokens = [self.votes[member].reply[1] for member in granted]
            self._token = max(tokens)
            self.begin_moments_anew()
            self._clock.learn(self.sent, tokens)
        for member in granted:
            if member not in self._second:
                self._have_confirmed(member, self.votes[member])

    def _have_confirmed(self, member: Member, vote: Call) -> None:
        if vote.reply[1] >= self._token and self._ballot.counted is None:
            self._second[member] = vote
            return
        call = self.call
        arguments = (self._token, *(call.args[place] for place in self._ballot.passed))
        copy = self._second[member] = Call(self._ballot.confirm, call.keys, arguments, call.deadline, call.until)
        self._send(member, copy, lambda member, copy: self.count())

    def _answered(self, member: Member, copy: Call) -> None:
        if copy.error is None:
            member.note(copy)
        super()._answered(member, copy)

    def _is_overdrawn(self, confirmed: Collection[Reply]) -> bool:
        """Whether it is permits, of which more are acquired, here or there, than there are."""
        if self._ballot.counted is None:
            return False
        acquired = {permit for reply in confirmed for permit in reply[3:]}
        least: int = min(reply[1] for reply in confirmed)
        return len(acquired) > least

    def _granted(self, votes: Sequence[Call]) -> Reply:
        left = self.left([(vote.sent, vote.reply[2]) for vote in votes])
        return [GRANTED, self._token, left, *max([vote.reply[3:] for vote in votes])]

    # What is no grant.

    def _is_looking(self, granted: Sequence[Member]) -> bool:
        """Look, which tells a split vote from what is held by others, and not on every server."""
        if self._look is None and granted:
            how, counted = self._ballot.look, self._ballot.counted
            self._look = look = Call(how.script, self.call.keys[: how.keys], how.arguments, self.call.deadline)
            wanted = None if counted is None else int(self.call.args[counted])
            fold = partial(is_held, look=how, wanted=wanted)
            Question(look, self._members, lambda poll: None, fold).ask()
            look.when_ended(lambda look: self.count())
        return self._look is not None and not self._look.ended

    def _refused(self, granted: Sequence[Member]) -> Reply:
        for member in self._members:
            self._withdraw(member)  # Else it may be granted there yet.
        statuses = [vote.reply[0] for vote in self.votes.values()]
        for status in (NOT_A_LOCK, LOST, STALE):
            if statuses.count(status) >= self.majority:
                self.call.repeated = self.call.repeated or bool(granted or self.missing)
                return next(list(vote.reply) for vote in self.votes.values() if vote.reply[0] == status)
        turns = sum(vote.reply[0] == REFUSED and vote.reply[3:] == [HAS_TURN] for vote in self.votes.values())
        if self._look is not None and self._look.reply == [1]:
            return [REFUSED, 0, self._wait_for(), HELD]
        clean = not granted and not self.missing and STALE not in statuses
        if clean and turns >= self.majority:
            return [REFUSED, 0, self._wait_for(), HAS_TURN]
        return [REFUSED, 0, self._wait_for(), *(() if clean and not turns else (SPLIT,))]

    def _wait_for(self) -> int:
        """Milliseconds until a majority can grant it, if those that granted it get it back."""
        lefts = sorted(vote.reply[2] if vote.reply[0] in (REFUSED, ABSTAINS) else 0 for vote in self.votes.values())
        return int(lefts[min(self.majority, len(lefts)) - 1])
