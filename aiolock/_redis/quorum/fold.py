"""Functions that combine the servers' answers into the answer of a quorum; `None` while it is not certain."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from aiolock._redis.quorum.poll import Poll
from aiolock._scripts import Fold
from aiolock._scripts.replies import Applied, Granted, Lost, NotALock, SeenHold

# In the form of `Poll.answers`.
_Answers = Sequence[tuple[float, Any]]


def agreed(poll: Poll) -> Any:
    """The answer of a majority to a release or a change."""
    answers = poll.answers
    # A server that the acquire never reached has nothing to lose, and nothing to give back. Once all others have
    # answered or failed, it counts as agreeing; but it never outvotes a loss.
    if poll.unreached and not poll.missing:
        lost = _of(Lost, answers)
        had = len(_of(Applied, answers))
        if lost and had < poll.majority:
            return why_lost(lost)
        if had + len(poll.unreached) >= poll.majority:
            return Applied()
    return _agreed(poll, answers)


def _agreed(poll: Poll, answers: _Answers) -> Any:
    kinds = [type(answer) for _, answer in answers]
    kind: type[Any] = max(kinds, key=kinds.count, default=Lost)
    if kinds.count(kind) < poll.majority:
        return None
    same = _of(kind, answers)
    if kind is Lost:
        return why_lost(same)
    if kind is Granted:
        left = poll.left((sent, grant.left) for sent, grant in answers if isinstance(grant, Granted))
        return Granted(max(grant.token for grant in same), left)
    return Applied(max(each.number for each in same)) if kind is Applied else same[0]


def _of(kind: type[Any], answers: _Answers) -> list[Any]:
    return [answer for _, answer in answers if isinstance(answer, kind)]


def why_lost(lost: Iterable[Lost]) -> Lost:
    """The reason that most servers give; "forced" if any server was freed by force."""
    reasons = Counter(each.reason for each in lost)
    return Lost("forced" if "forced" in reasons else reasons.most_common(1)[0][0], everywhere=False)


def renewed(poll: Poll) -> Any:
    """As `agreed`, for each of several renewals."""
    if len(poll.votes) < poll.majority:
        return None
    votes = [[(sent, answer) for answer in answers] for sent, answers in poll.answers]
    outcomes = [_agreed(poll, each) for each in zip(*votes, strict=True)]
    return None if None in outcomes else outcomes


def first_known(poll: Poll) -> Any:
    """The first answer that is not empty."""
    answers = [answer for _, answer in poll.answers]
    known = next((answer for answer in answers if any(answer)), None)
    return next(iter(answers)) if known is None and _is_over(poll) else known


def holder(poll: Poll) -> list[SeenHold] | NotALock | None:
    """The holder of a lock that most servers name, if it has, or may have, a majority of the servers."""
    if not _is_over(poll):
        return None
    named: dict[str, list[tuple[float, SeenHold]]] = {}
    for sent, seen in poll.answers:
        for hold in () if isinstance(seen, NotALock) else seen:
            named.setdefault(hold.owner, []).append((sent, hold))
    same = max(named.values(), key=len, default=[])
    foreign = len(_of(NotALock, poll.answers))
    if foreign and foreign >= len(same) and foreign + poll.silent >= poll.majority:
        return NotALock()
    if len(same) + poll.silent < poll.majority:
        return []
    most = max((hold for _, hold in same), key=lambda hold: hold.holds)
    return [replace(most, left=poll.left((sent, hold.left) for sent, hold in same))]


def _is_over(poll: Poll) -> bool:
    """Whether enough servers have answered a question that needs no agreement."""
    has_majority = len(poll.votes) >= poll.majority
    return bool(poll.votes) and (not poll.missing or (has_majority and (poll.moments > 0 or not poll.awaited)))


# The functions of this module, by the names that scripts have for them.
FOLDS: dict[Fold, Callable[[Poll], Any]] = {
    "agreed": agreed,
    "renewed": renewed,
    "holder": holder,
    "first_known": first_known,
}
