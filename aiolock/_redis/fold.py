"""What a quorum says, of what its servers say: plain functions of their answers, `None` while that is not certain."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from aiolock._backend import Reply
from aiolock._redis.poll import Poll
from aiolock._scripts import GRANTED, LOST, NOT_A_LOCK, Fold, Look

_Rows = Sequence[tuple[float, Any]]  # When each was sent, and what was answered.


def agreed(poll: Poll) -> Reply | None:
    """What a majority says: of a release, or of a change."""
    return _agreed(poll, [(vote.sent, vote.reply) for vote in poll.votes.values()])


def _agreed(poll: Poll, rows: _Rows) -> Reply | None:
    statuses = [row[0] for _, row in rows]
    status = max(statuses, key=statuses.count, default=None)
    if statuses.count(status) < poll.majority:
        return None
    same = [(sent, row) for sent, row in rows if row[0] == status]
    if status == LOST:
        return [LOST, Counter(row[1] for _, row in same).most_common(1)[0][0], 0]
    if status != GRANTED or len(same[0][1]) == 1:
        return list(same[0][1])
    left = poll.left([(sent, row[2]) for sent, row in same])
    return [GRANTED, max(row[1] for _, row in same), left]


def renewed(poll: Poll) -> Reply | None:
    """The same for each of several renewals."""
    if len(poll.votes) < poll.majority:
        return None
    votes = list(poll.votes.values())
    rows = [_agreed(poll, [(vote.sent, vote.reply[row]) for vote in votes]) for row in range(len(votes[0].reply))]
    return None if None in rows else rows


def first_known(poll: Poll) -> Reply | None:
    """What the first says that knows anything."""
    for vote in poll.votes.values():
        if vote.reply[0] is not None:
            return vote.reply
    return next(iter(poll.votes.values())).reply if _is_over(poll) else None


def is_held(poll: Poll, look: Look, wanted: int | None) -> Reply | None:
    """Whether others have it by a majority: 1 or 0; of permits, so many that there is no room for who *wanted* some."""
    replies = [vote.reply for vote in poll.votes.values()]
    if not replies:
        return None
    named = _names(poll, look.first, look.step)
    room = 0 if wanted is None else max(reply[1] + reply[2] for reply in replies) - wanted
    if sum(number >= poll.majority for number in named.values()) > room:
        return [1]
    return [0] if _is_over(poll) else None


def holders(poll: Poll) -> Reply | None:
    """Who holds each half of a lock; at once when a majority names the same."""
    said = Counter((vote.reply[0], *sorted(vote.reply[1::4])) for vote in poll.votes.values())
    if not said or (max(said.values()) < poll.majority and not _is_over(poll)):
        return None
    named = _names(poll, 1, 4)
    foreign = said[(NOT_A_LOCK,)]
    if foreign and foreign >= max(named.values(), default=0) and foreign + poll.silent >= poll.majority:
        return [NOT_A_LOCK]
    return [GRANTED, *_named(poll, start=1, width=4, left=2)]


def holder(poll: Poll) -> Reply | None:
    """Who holds a lock that one has at a time: whom most name."""
    reply = holders(poll)
    return None if reply is None else reply[:5]


def permits(poll: Poll) -> Reply | None:
    """How many permits there are, and who has them."""
    if not _is_over(poll):
        return None
    replies = [vote.reply for vote in poll.votes.values()]
    if sum(reply[0] == NOT_A_LOCK for reply in replies) >= poll.majority:
        return [NOT_A_LOCK, 0, 0]
    known = [reply for reply in replies if reply[0] == GRANTED] or replies

    def of_most(place: int) -> int:
        """The number that most have at least."""
        return int(sorted((reply[place] for reply in known), reverse=True)[(len(known) - 1) // 2])

    return [known[0][0], of_most(1), of_most(2), *_named(poll, start=3, width=2, left=1)]


def _names(poll: Poll, first: int, step: int) -> Counter[bytes]:
    """How many servers name each, in their answers from place *first* on."""
    return Counter(name for vote in poll.votes.values() for name in vote.reply[first::step])


def _named(poll: Poll, *, start: int, width: int, left: int) -> Reply:
    """
    The rows of the answers that a majority has, or may have, with what each has *left*; a row begins with a name.

    Those that most servers have come first.
    """
    rows: dict[bytes, list[tuple[float, Reply]]] = {}
    for vote in poll.votes.values():
        for place in range(start, len(vote.reply), width):
            row = vote.reply[place : place + width]
            rows.setdefault(row[0], []).append((vote.sent, row))
    named: Reply = []
    for same in sorted(rows.values(), key=len, reverse=True):
        if len(same) + poll.silent >= poll.majority:
            row = [max(column) for column in zip(*(each for _, each in same), strict=True)]
            row[left] = poll.left([(sent, each[left]) for sent, each in same])
            named += row
    return named


def _is_over(poll: Poll) -> bool:
    """Whether there are answers to a question that each answers for itself, and no more to be waited for."""
    return bool(poll.votes) and (not poll.missing or (poll.moments > 0 and len(poll.votes) >= poll.majority))


# What becomes of the answers to a script that acquires nothing, by what the script says of it.
FOLDS: dict[Fold, Callable[[Poll], Reply | None]] = {
    "agreed": agreed,
    "renewed": renewed,
    "holder": holder,
    "holders": holders,
    "permits": permits,
    "first_known": first_known,
}
