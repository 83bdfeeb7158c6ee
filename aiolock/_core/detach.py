"""Detaching a hold: it ends in this process, and the server keeps its lock for the bearer of a ticket."""

from time import monotonic

from aiolock._backend import Call
from aiolock._core.detached import Detached
from aiolock._core.held import GIVEN_BACK, Renewal
from aiolock._core.hold import BaseLease, Hold
from aiolock._core.session import Session
from aiolock._core.ticket import Part
from aiolock._errors import LeaseLostError, ReplicationError
from aiolock._scripts import NONE, Want
from aiolock._scripts.replies import Acquired, Granted, Lost, Refused
from aiolock._types import quoted

UNDER_WORK = "work of its term runs, and has to end first: `term.step_down()` ends it, and gives the lock back"
_BOTH = "its owner reads and writes, and a ticket is for one of the two; release the other before"


def refuse_to_detach(lease: BaseLease, session: Session, keep: float) -> None:
    """Raise if *lease* cannot be detached for *keep* seconds; the server is not asked."""
    hold = lease._hold
    if session.timing.is_of_quorum:
        raise TypeError("a lock of several independent servers cannot be detached: use a LockClient of one server")
    session.timing.check_lease(keep)
    session.check_place()
    session.check_open()
    hold.refuse_if_over()
    lease._refuse_if_given_back()
    if (why := _why_not(lease, session)) is not None:
        raise _refusal(hold, why)


def _why_not(lease: BaseLease, session: Session) -> str | None:
    """The reason why the hold of *lease* cannot be detached; ``None`` if it can."""
    hold = lease._hold
    if hold.has_work_under(lease):
        return UNDER_WORK
    if hold.claim.want.scripts.detach is NONE:
        return "only locks, fair locks, readers, writers and permits of a semaphore can be"
    if len(hold.leases) > 1:
        return f"its owner has {len(hold.leases)} holds, and a ticket is for one; release the others before"
    other = session.entries.get(hold.keys.other)
    if other is not None and hold.owner in other.holds:
        return _BOTH
    if hold.remains is not None:
        return "it was acquired with `at_least`, of which an adopter would not know"
    return None


def _refusal(hold: Hold, why: str) -> RuntimeError:
    return RuntimeError(f"{hold.kind} {quoted(hold.keys.name)} cannot be detached: {why}")


async def detach(lease: BaseLease, session: Session, keep: float) -> Part:
    """
    Give the lock of *lease* to a detached hold, for *keep* seconds; returns its part of a ticket.

    The lease counts as given back from now on. If this fails or is cancelled, the lock is freed, because nobody could
    adopt it without the ticket.
    """
    hold, commands, ended = lease._hold, session.commands, monotonic()
    part = Part.of(hold.claim, hold.token, keep)
    claim = part.claim(hold.claim.want)
    detached = Detached(commands, claim, keep)
    _end(hold, lease, detached)
    try:
        call = commands.detach(hold.claim, claim, keep)
        _judge(hold, call, await call)
    except BaseException:
        hold.free()
        _ = detached.take_back()
        session.report.released(hold, 0, ended, confirmed=False)
        raise
    session.report.released(hold, 0, ended)
    if (entry := session.entries.get(hold.keys.entry)) is not None:
        entry.look_later(keep, handed=False)
    return part


async def prolong(part: Part, want: Want, session: Session, keep: float) -> float:
    """Keep the detached hold *part* of *want* for at least *keep* seconds from now; returns the seconds."""
    call = session.commands.renew([Renewal(part.claim(want), None, keep)], session.timing.command_timeout)
    [answer] = await call
    if isinstance(answer, Lost):
        raise LeaseLostError.of_ticket(part.name, part.token, answer.reason, part.kind)
    if call.short is not None:
        raise ReplicationError(part.name, *call.short, kind=part.kind, what="renewal")
    return answer.left


def _end(hold: Hold, lease: BaseLease, detached: Detached) -> None:
    """End *hold* with its only *lease*; on the server, *detached* replaces it, which is a change of the hold count."""
    lease.given_back, lease._detached = True, detached
    hold.leases.remove(lease)
    hold.open_changes += 1
    hold._end(GIVEN_BACK)
    hold._keeper.ended(hold)


def _judge(hold: Hold, call: Call[Acquired], answer: Acquired) -> None:
    """Raise unless the *answer* says that the lock is kept for the bearer of the ticket."""
    if isinstance(answer, Refused):
        raise _refusal(hold, _BOTH)
    if not isinstance(answer, Granted):
        hold.lose(answer.reason if isinstance(answer, Lost) else "expired", gone=True)
        raise hold.error()
    if call.short is not None:
        raise ReplicationError(hold.keys.name, *call.short, kind=hold.kind)
    hold.close_change(call)
