"""Events, log records and counters: what a client tells about itself."""

import logging
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import fields
from time import monotonic

from aiolock._core.hold import Hold
from aiolock._core.marks import Marks, Wait
from aiolock._core.queue import Entries
from aiolock._errors import LossReason
from aiolock._events import (
    Acquired,
    HandedOff,
    LockEvent,
    Lost,
    NotAcquired,
    NotAcquiredReason,
    Orphaned,
    Released,
    RenewalLate,
    Renewed,
    WaitStarted,
)
from aiolock._log import log, logger
from aiolock._scripts import Want
from aiolock._types import LockKind

Who = tuple[str, LockKind, str, int]  # What each event begins with.
Failure = type[BaseException] | None  # The class of what ended an acquire.


class Reporter:
    """Counts what happens to the holds of one client, logs it, and passes it to the user's hook."""

    def __init__(
        self, client: str, entries: Entries, on_event: Callable[[LockEvent], object] | None, marks: Marks | None
    ) -> None:
        self._client = client
        self._entries = entries
        self.on_event: Callable[[LockEvent], object] | None = on_event if marks is None else on_event or _ignore
        self._marks = marks
        # Whom to ask whether a release is to be told: a telemetry speaks for no hook but its own.
        self._picky = marks if marks is not None and getattr(on_event, "__self__", None) is marks.telemetry else None
        self._hook_failed = False
        self.renewals: int = 0
        self.losses: int = 0
        self.hand_offs: int = 0

    # Acquires.

    def wait_started(self, want: Want, owner: str) -> Wait:
        """An acquire waits; what will be known of whom it waits for."""
        wait = Wait(self._entries, want.keys)
        event = WaitStarted(want.keys.name, want.scripts.kind, owner, 0, wait.holder)
        self._tell(logging.DEBUG, event, "waits")
        if self._marks is not None:
            self._marks.look_for(wait)
        return wait

    def acquired(self, hold: Hold, wait: Wait | None, waited: float) -> None:
        name, kind, holds = hold.keys.name, hold.claim.want.scripts.kind, len(hold.leases)
        if wait is None:
            event = Acquired(name, kind, hold.owner, hold.token, holds, waited, False, None, None)
        else:
            event = Acquired(name, kind, hold.owner, hold.token, holds, waited, True, wait.holder, wait.mark)
        self._tell(logging.DEBUG, event, "acquired")
        if self._marks is not None and holds == 1:
            try:
                if mark := self._marks.telemetry.mark(event):
                    self._marks.keep(hold, mark)
            except (Exception, CancelledError):
                self._note_failure(event)

    def not_acquired(
        self, who: Who, wait: Wait | None, waited: float, reason: NotAcquiredReason, failed: Failure
    ) -> None:
        known = (False, None, None) if wait is None else (True, wait.holder, wait.mark)
        error = failed.__name__ if failed is not None and reason == "error" else None
        event = NotAcquired(*who, reason, error, waited, *known)
        self._tell(logging.DEBUG, event, f"not acquired in {waited:.3g} s: {error or reason}")

    def handed_off(self, hold: Hold) -> None:
        self.hand_offs += 1
        if self.is_heard():
            self._tell(logging.DEBUG, HandedOff(*_who(hold)), "handed off")

    # Holds.

    def released(self, hold: Hold, holds: int, ended: float, *, confirmed: bool = True) -> None:
        if hold.loss is not None:  # Which was told.
            return
        if self._picky is None or self._picky.hears_release() or logger.isEnabledFor(logging.DEBUG):
            event = Released(*_who(hold), holds, ended - hold.since, confirmed)
            self._tell(logging.DEBUG, event, "released" if confirmed else "released, without an answer")
        if not holds:
            self._ended(hold)

    def renewed(self, hold: Hold) -> None:
        self.renewals += 1
        hold.late = False
        if self.is_heard():
            self._tell(logging.DEBUG, Renewed(*_who(hold), hold.deadline - monotonic()), "renewed")

    def renewal_late(self, hold: Hold, late: float) -> None:
        remaining = hold.deadline - monotonic()
        why = "none got through" if hold.unanswered else "the event loop was blocked"
        event = RenewalLate(*_who(hold), late, remaining)
        level = logging.DEBUG if hold.late else logging.WARNING  # One warning, until it recovers.
        hold.late = True
        self._tell(level, event, f"renewal {late:.3g} s late, {remaining:.3g} s of the lease left: {why}")

    def lost(self, hold: Hold, reason: LossReason) -> None:
        self.losses += 1
        ran_out = reason == "expired" and hold.ran_out
        event = Lost(*_who(hold), reason, monotonic() - hold.since, ran_out)
        self._tell(logging.INFO if ran_out else logging.WARNING, event, f"lost: {reason}")
        self._ended(hold)

    def orphaned(self, hold: Hold, task: str) -> None:
        held = "held the lock. It is" if _is_lock(hold.claim.want.scripts.kind) else "had them. They are"
        text = (
            f"task {task!r} ended while it {held} released, unless the event loop ends first. "
            "Use `async with`, or a named owner"
        )
        event = Orphaned(*_who(hold), len(hold.leases), task, monotonic() - hold.since)
        self._tell(logging.WARNING, event, text)
        self._ended(hold)

    def _ended(self, hold: Hold) -> None:
        if self._marks is not None:
            self._marks.ended(hold)

    # What is no event.

    def left_elsewhere(self, hold: Hold) -> None:
        """An ``async with`` block was left by a task that did not enter it."""
        text = (
            "lock %r: its `async with` was left by another task than entered it; it could not have been told of a loss"
        )
        log.warning(text, hold.keys.name, extra={"lock_name": hold.keys.name, "client": self._client})

    def closed_in_doubt(self, pending: int) -> None:
        """The client was closed with so many commands unanswered."""
        text = "closed while %d commands had no answer: what these should free ends with its lease"
        log.warning(text, pending, extra={"client": self._client})

    def closed(self) -> None:
        """The client is closed."""
        if self._marks is not None:
            try:
                self._marks.close(self._client)
            except Exception:
                log.exception("the telemetry failed when its client was closed", extra={"client": self._client})

    def is_heard(self) -> bool:
        """Whether anybody wants to know of what happens all the time."""
        return self.on_event is not None or logger.isEnabledFor(logging.DEBUG)

    def _tell(self, level: int, event: LockEvent, text: str) -> None:
        if logger.isEnabledFor(level):
            self._log(level, event, text)
        try:
            if self.on_event is not None:
                self.on_event(event)
        except (Exception, CancelledError):
            self._note_failure(event)

    def _log(self, level: int, event: LockEvent, text: str) -> None:
        what = f"{'lock' if _is_lock(event.kind) else 'permits of'} {event.name!r}"
        where = what + (f" (token {event.token})" if event.token else "")
        log.log(level, "%s: %s", where, text, extra=self._fields(event))

    def _fields(self, event: LockEvent) -> dict[str, object]:
        """What a log record has of *event*: all of it, its name by one that records do not have already."""
        found = {each.name: getattr(event, each.name) for each in fields(event)}
        return {"event": type(event).__name__, "client": self._client, "lock_name": found.pop("name"), **found}

    def _note_failure(self, event: LockEvent) -> None:
        """The user's hook has raised."""
        if not self._hook_failed:
            log.exception("on_event failed on %r; further failures are not logged", event)
        self._hook_failed = True


def _who(hold: Hold) -> Who:
    return hold.keys.name, hold.claim.want.scripts.kind, hold.owner, hold.token


def _is_lock(kind: LockKind) -> bool:
    """Else it is permits, of which each acquire has some of its own."""
    return not kind.endswith("semaphore")


def why_not(failed: Failure, most: float | None) -> NotAcquiredReason:
    """Why an acquire that was to wait *most* seconds ended without the lock."""
    if failed is None:
        return "busy" if most == 0 else "timeout"
    return "cancelled" if issubclass(failed, CancelledError) else "error"


def _ignore(event: LockEvent) -> None:
    """Who takes part by marks alone has events made, too."""
