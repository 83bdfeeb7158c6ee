"""
Warnings about waits that may never end: a task of the same client holds the lock, or no number of permits is set.

An acquire looks for these reasons after a refusal, once it has waited for one lease; other acquires pay nothing.
"""

from functools import partial
from time import monotonic

from aiolock._backend import Call
from aiolock._core.place import Place
from aiolock._core.session import Session
from aiolock._scripts import COUNTING_SEMAPHORE, INSPECT_COUNTING_SEMAPHORE, INSPECT_PERMITS, PERMIT, Want
from aiolock._scripts.replies import Permits
from aiolock._words import EACH_AN_OWNER

_UNKNOWN = (
    "no number of permits is set, so that none is granted. Give it where you make the semaphore, as in "
    "locks.semaphore(name, 4)"
)


def tell_long_wait(session: Session, want: Want, place: Place) -> None:
    """Warn, once, if *place*, which was refused again, has waited for a lease and may wait for ever."""
    waited = monotonic() - place.since
    if place.told_long or waited < session.timing.lease:
        return
    place.told_long = True
    if (who := session.leases.held_here(want)) is not None:
        session.report.waits_long(want, waited, f"{who} of this client holds it; {EACH_AN_OWNER}")
    elif want.scripts in (COUNTING_SEMAPHORE, PERMIT) and not want.tells_number:
        counts = want.scripts is COUNTING_SEMAPHORE
        script, arguments = (INSPECT_COUNTING_SEMAPHORE, ()) if counts else (INSPECT_PERMITS, (0, ""))
        keys = want.keys.all[:1] if counts else want.keys.all[:2]
        asked = session.commands.send(script, keys, arguments)
        asked.when_ended(partial(_tell_unknown, session, want, waited))


def _tell_unknown(session: Session, want: Want, waited: float, asked: Call) -> None:
    if isinstance(asked.answer, Permits) and asked.answer.available is None:
        session.report.waits_long(want, waited, _UNKNOWN)
