"""
The election of a lock's holder by a quorum, in two rounds: the second round confirms the grants of the first.

A majority has to grant the lock. Each server has its own token, and the next majority may include no server with the
greatest token. So this token is raised on all servers that granted the lock, and the acquire ends only when a majority
has it; its lease is the time for which the whole majority keeps the lock. A server that answers later, with a greater
token, confirms nothing: another client may have had that token.

If several clients ask at once, each may get a minority of the servers. A client gives its servers back as soon as it
knows that it will not get a majority, without waiting for a silent server.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from aiolock._backend import Argument, Call
from aiolock._keys import QUORUM_KEY
from aiolock._log import log
from aiolock._redis.quorum.fold import why_lost
from aiolock._redis.quorum.member import Member
from aiolock._redis.quorum.poll import Poll
from aiolock._scripts import ACQUISITION, QUORUM_ACQUIRE, RAISE, RETENTION, STEP
from aiolock._scripts.replies import (
    Abstains,
    Acquired,
    Applied,
    Ended,
    Granted,
    Longer,
    Lost,
    NotALock,
    Refused,
    Stale,
    Vote,
)
from aiolock._types import milliseconds

V = TypeVar("V", bound=Vote)

# Seconds by which a proposed token is ahead of the fastest clock.
_LEAD = 0.01


class Clock:
    """
    Proposes tokens, so that all servers grant with the same token, and none has to be raised.

    A proposal is a little ahead of the servers' clocks, as far as their differences are known.
    """

    def __init__(self) -> None:
        # The lead over the monotonic clock, in seconds.
        self._ahead: float | None = None

    def propose(self) -> int:
        """A token that probably no server has reached; 0 if nothing is known of the clocks."""
        return 0 if self._ahead is None else int((monotonic() + self._ahead) * 1e6)

    def learn(self, sent: float, tokens: Sequence[int]) -> None:
        """Note the *tokens* of servers that were asked at *sent*."""
        if min(tokens) < max(tokens):
            self._ahead = max(tokens) / 1e6 - sent + _LEAD


class Longest:
    """The longest lease of any client of the quorum, in seconds, as far as this client knows."""

    def __init__(self, own: float) -> None:
        self.lease: float = own

    def learn(self, of_another: float) -> None:
        """Note the longest lease *of_another* client, from a server's answer."""
        if of_another > self.lease:
            words = "another client of these servers has longest_lease=%g, this one %g: it uses the longer one now"
            log.warning(words, of_another, self.lease)
            self.lease = of_another


class VoteCall(Call[Vote]):
    """A copy of an acquire; its first argument tells the *member* whether the connection is new."""

    __slots__ = ("member",)

    member: Member

    def arguments(self, publish: str) -> tuple[Argument, ...]:
        if self.member.is_new:
            self.args = (1, *self.args[1:])
        return super().arguments(publish)


def _grants(copy: Call) -> bool:
    """Whether the answer has come, and is a grant or the confirmation of one."""
    return copy.ended and isinstance(copy.answer, Granted | Applied)


class Election(Poll):
    """The acquire *call*, sent to all *members*, with the *longest* lease of any client."""

    # Invariant: the token is the greatest that the first majority had; each server that confirmed it granted no greater
    # one, and has it.

    def __init__(
        self,
        call: Call,
        members: Sequence[Member],
        over: Callable[[Poll], object],
        clock: Clock,
        longest: Longest,
    ) -> None:
        super().__init__(call, members, over)
        self._clock = clock
        self._longest = longest
        self._token = 0
        # For each server that granted: the call that raises its token, or its vote if it has the greatest token.
        self._second: dict[Member, Call] = {}

    @property
    def is_waiting(self) -> bool:
        return self.missing > 0 or not all(copy.ended for copy in self._second.values())

    def ask(self) -> None:
        call = self.call
        keys, arguments = (
            (QUORUM_KEY, *call.keys),
            (0, milliseconds(self._longest.lease), self._clock.propose(), *call.args),
        )
        for member in self._members:
            vote = self._copies[member] = VoteCall(QUORUM_ACQUIRE, keys, arguments, call.deadline, call.resend_until)
            vote.member = member
            self._send(member, vote, self._answered)

    def outcome(self) -> Acquired | None:
        if self._said(Longer):
            return self._void()
        if len(self.votes) + len(self.errors) < self.majority:
            return None
        granted = self._said(Granted)
        if len(granted) >= self.majority or self._token:
            self._confirm(granted)
        confirmed = [member for member, copy in self._second.items() if _grants(copy)]
        if len(confirmed) >= self.majority:
            return self._granted(granted, confirmed)
        gone = sum(copy.ended for copy in self._second.values()) - len(confirmed)
        return None if self._may_win(len(granted) - gone) else self._refused(granted)

    def _said(self, kind: type[V]) -> dict[Member, V]:
        """The answers of this *kind*, by the servers that gave them."""
        votes = ((member, copy.answer) for member, copy in self.votes.items())
        return {member: vote for member, vote in votes if isinstance(vote, kind)}

    def _may_win(self, granted: int) -> bool:
        """Whether to wait for other servers, if the grants of *granted* servers still count."""
        if self.is_late:
            return False
        # Another client may wait for the servers that this one has: then do not wait for silent servers.
        more = self.awaited if self._said(Refused) else self.missing
        return granted + more >= self.majority or (more > 0 and not self.moments)

    # The second round.

    def _confirm(self, granted: Mapping[Member, Granted]) -> None:
        if not self._token:
            tokens = [grant.token for grant in granted.values()]
            self._token = max(tokens)
            self.restart_moments()
            self._clock.learn(self.sent, tokens)
        for member, grant in granted.items():
            if member not in self._second:
                self._have_confirmed(member, grant)

    def _have_confirmed(self, member: Member, grant: Granted) -> None:
        if grant.token == self._token:
            self._second[member] = self.votes[member]
            return
        call = self.call
        arguments = (self._token, call.args[ACQUISITION], call.args[RETENTION])
        copy = self._second[member] = Call(RAISE, call.keys, arguments, call.deadline, call.resend_until)
        if grant.token > self._token:
            copy.end(Lost("taken"))
        else:
            self._send(member, copy, lambda member, copy: self.count())

    def _answered(self, member: Member, copy: Call) -> None:
        if copy.answer is not None:
            member.note(copy.answer, was_new=copy.args[0] == 1)
            if isinstance(copy.answer, Longer):
                self._longest.learn(copy.answer.lease)
        super()._answered(member, copy)

    def _granted(self, granted: Mapping[Member, Granted], confirmed: Sequence[Member]) -> Granted:
        lasts = self.left((self.votes[member].sent, granted[member].left) for member in confirmed)
        return Granted(self._token, lasts)

    @property
    def _is_nested(self) -> bool:
        """Whether the owner has the lock, and acquires one more hold."""
        step = self.call.args[STEP]
        return isinstance(step, int) and step > 1

    def answer_in_words(self, answer: object) -> str:
        if isinstance(answer, Abstains):
            return f"has no vote for {answer.left:.3g} s: it is new, was started again, or has lost its data"
        return super().answer_in_words(answer)

    # Answers without a grant.

    def _ask_no_more(self) -> None:
        """Withdraw the copies that were not sent: no further server is to grant the acquire."""
        for member in self._members:
            self._withdraw(member)

    def _fail(self) -> None:
        super()._fail()
        self._ask_no_more()

    def _void(self) -> Stale:
        """End the acquire as stale, because servers know a longer `longest_lease`; the caller acquires again."""
        self._ask_no_more()
        return Stale()

    def _refused(self, granted: Mapping[Member, Granted]) -> Refused | Ended:
        self._ask_no_more()
        if self._is_nested:
            self.call.note(self.disagreement())
        has_some = bool(granted) or bool(self._said(Stale)) or not self.is_settled
        lost = self._said(Lost)
        ends: Sequence[Mapping[Member, Ended]] = (self._said(NotALock), lost, self._said(Stale))
        for said in ends:
            if len(said) >= self.majority:
                self.call.repeated = self.call.repeated or has_some
                return why_lost(lost.values()) if said is lost else next(iter(said.values()))
        abstaining = len(self._said(Abstains))
        # A silent server may keep the lock for a holder, if there is one.
        silent = 0 if self._said(Refused) else self.silent
        if abstaining and abstaining + silent > len(self._members) - self.majority:
            self.call.note(self.disagreement())
        # A majority had granted it: treat the call as unanswered.
        self.call.repeated = self.call.repeated or (has_some and self._token > 0)
        holders = Counter(refusal.holder for refusal in self._said(Refused).values())
        is_held = max(holders.values(), default=0) >= self.majority
        left = self._wait_for(is_held)
        return Refused(left, is_split=not is_held and (has_some or not left), has_some=has_some)

    def _wait_for(self, is_held: bool) -> float:
        """Seconds until a majority can grant the lock. Grants without a majority are given back at once."""
        waits = Abstains | Refused if is_held else Abstains
        votes = (vote.answer for vote in self.votes.values())
        lefts = sorted(vote.left if isinstance(vote, waits) else 0.0 for vote in votes)
        return lefts[min(self.majority, len(lefts)) - 1]
