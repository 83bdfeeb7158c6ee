"""Events, log records and counters: what a client tells about itself."""

import logging
from asyncio import CancelledError
from collections.abc import Callable

from aiolock._core.hold import Hold
from aiolock._errors import LossReason
from aiolock._events import Acquired, HandedOff, LockEvent, Lost, Orphaned, Released, RenewalLate, Renewed

logger = logging.getLogger("aiolock")


class Reporter:
    """Counts what happens to the holds of one client, logs it, and passes it to the user's hook."""

    def __init__(self, client: str, on_event: Callable[[LockEvent], object] | None) -> None:
        self._client = client
        self.on_event = on_event
        self._hook_failed = False
        self.renewals: int = 0
        self.losses: int = 0
        self.hand_offs: int = 0

    def acquired(self, hold: Hold, waited: float) -> None:
        self._tell(logging.DEBUG, hold, Acquired(*_who(hold), len(hold.leases), waited), "acquired")

    def released(self, hold: Hold, holds: int) -> None:
        self._tell(logging.DEBUG, hold, Released(*_who(hold), holds), "released")

    def renewed(self, hold: Hold, remaining: float) -> None:
        self.renewals += 1
        if self.is_heard():
            self._tell(logging.DEBUG, hold, Renewed(*_who(hold), remaining), "renewed")

    def handed_off(self, hold: Hold) -> None:
        self.hand_offs += 1
        if self.is_heard():
            self._tell(logging.DEBUG, hold, HandedOff(*_who(hold)), "handed off")

    def renewal_late(self, hold: Hold, late: float, remaining: float) -> None:
        why = "none got through" if hold.unanswered else "the event loop was blocked"
        text = f"renewal {late:.3g} s late, {remaining:.3g} s of the lease left: {why}"
        self._tell(logging.WARNING, hold, RenewalLate(*_who(hold), late, remaining), text)

    def lost(self, hold: Hold, reason: LossReason) -> None:
        self.losses += 1
        level = logging.INFO if reason == "expired" and hold.ran_out else logging.WARNING
        self._tell(level, hold, Lost(*_who(hold), reason), f"lost: {reason}")

    def orphaned(self, hold: Hold, task: str) -> None:
        held = "held the lock. It is" if _is_lock(hold) else "had them. They are"
        text = (
            f"task {task!r} ended while it {held} released, unless the event loop ends first. "
            "Use `async with`, or a named owner"
        )
        self._tell(logging.WARNING, hold, Orphaned(*_who(hold), len(hold.leases), task), text)

    def left_elsewhere(self, hold: Hold) -> None:
        """An ``async with`` block was left by a task that did not enter it."""
        text = (
            "lock %r: its `async with` was left by another task than entered it; it could not have been told of a loss"
        )
        logger.warning(text, hold.keys.name, extra={"lock_name": hold.keys.name, "client": self._client})

    def closed_in_doubt(self, pending: int) -> None:
        """The client was closed with so many commands unanswered."""
        text = "closed while %d commands had no answer: what these should free ends with its lease"
        logger.warning(text, pending, extra={"client": self._client})

    def is_heard(self) -> bool:
        """Whether anybody wants to know of what happens all the time."""
        return self.on_event is not None or logger.isEnabledFor(logging.DEBUG)

    def _tell(self, level: int, hold: Hold, event: LockEvent, text: str) -> None:
        if logger.isEnabledFor(level):
            extra = {"lock_name": event.name, "owner": event.owner, "token": event.token, "client": self._client}
            what = "lock" if _is_lock(hold) else "permits of"
            logger.log(level, "%s %r (token %d): %s", what, event.name, event.token, text, extra=extra)
        if self.on_event is not None:
            self._call_hook(self.on_event, event)

    def _call_hook(self, hook: Callable[[LockEvent], object], event: LockEvent) -> None:
        try:
            hook(event)
        except (Exception, CancelledError):
            if not self._hook_failed:
                logger.exception("on_event failed on %r; further failures are not logged", event)
            self._hook_failed = True


def _who(hold: Hold) -> tuple[str, str, int]:
    return hold.keys.name, hold.owner, hold.token


def _is_lock(hold: Hold) -> bool:
    """Else it is permits, of which each acquire has some of its own."""
    return hold.claim.want.scripts.reentrant
