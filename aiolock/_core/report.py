"""The events, log records and counters of one client."""

import logging
from asyncio import CancelledError
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from time import monotonic
from typing import Protocol

from aiolock._core.held import DoneError, Held
from aiolock._errors import BackendError, LossReason
from aiolock._events import (
    Acquired,
    Bypassed,
    HandedOff,
    LockEvent,
    Lost,
    NotAcquired,
    NotAcquiredReason,
    Orphaned,
    Released,
    RenewalLate,
    Renewed,
    RenewedByThread,
    WaitStarted,
)
from aiolock._keys import LockKeys
from aiolock._log import log, logger
from aiolock._scripts import Want
from aiolock._types import LockKind, quoted

# Locks in one log record.
_MOST_NAMED = 5
# Seconds between two warnings of one client that a lock was bypassed: without Redis, each call would warn.
_PAUSE = 1.0

# The first fields of each event.
Who = tuple[str, LockKind, str, int]
# The class of the exception that ended an acquire.
Failure = type[BaseException] | None


class Wait:
    """An acquire that waits, and the holder of the lock, as far as this client knows it."""

    __slots__ = ("holder", "keys", "mark")

    def __init__(self, keys: LockKeys, holder: str | None) -> None:
        self.keys: LockKeys = keys
        self.holder: str | None = holder
        """The holder when the wait began, if it was an owner of this client."""
        self.mark: str | None = None
        """The mark of the holder, if the observer has found one."""


class Observer(Protocol):
    """The interface of the core for telemetry."""

    def is_behind(self, hook: object) -> bool:
        """Whether *hook*, which gets the events, belongs to the observer, and serves no other purpose."""

    def hears_release(self) -> bool:
        """Whether the observer's own hook wants a `Released`."""

    def wait_started(self, wait: Wait) -> None:
        """An acquire begins to wait."""

    def wait_ended(self, wait: Wait) -> None:
        """The wait has ended."""

    def acquired(self, hold: Held, event: Acquired) -> None:
        """*hold* was granted; *event* is about its first lease."""

    def ended(self, hold: Held) -> None:
        """*hold* was given back, or is lost."""

    def closed(self, client: str) -> None:
        """The client is closed."""


class Reporter:
    """
    Counts and logs the events of one client's holds, and passes them to the user's hook.

    The hook may give any lock back: after a report, the state of a hold is read again.
    """

    def __init__(self, client: str, on_event: Callable[[LockEvent], object] | None, observer: Observer | None) -> None:
        self._client = client
        self._on_event = on_event
        self._observer = observer
        # Whether a hook or an observer gets the events.
        self.is_observed: bool = on_event is not None or observer is not None
        # The observer that decides whether a `Released` is made: it may decide only if the hook is its own.
        self._filter = observer if observer is not None and observer.is_behind(on_event) else None
        self._hook_failed = False
        # The time from which a bypassed lock is a warning again, on the monotonic clock.
        self._next_bypass = 0.0
        self.renewals: int = 0
        self.renewals_by_thread: int = 0
        self.losses: int = 0
        self.losses_behind: int = 0
        self.hand_offs: int = 0

    # Acquires.

    def wait_started(self, want: Want, owner: str, hold: Held | None) -> Wait:
        """An acquire begins to wait; *hold* is the lock's hold, if it is one of this client."""
        wait = Wait(want.keys, None if hold is None else hold.owner)
        event = WaitStarted(want.keys.name, want.scripts.kind, owner, 0, wait.holder)
        self._tell(logging.DEBUG, event, "waits")
        if self._observer is not None:
            self._observer.wait_started(wait)
        return wait

    def wait_ended(self, wait: Wait) -> None:
        if self._observer is not None:
            self._observer.wait_ended(wait)

    def waits_long(self, want: Want, waited: float, why: str) -> None:
        """An acquire has waited for *waited* seconds, and may wait for ever."""
        self._warn(want.keys, want.scripts.kind, "not granted for %.3g s: %s", waited, why)

    def acquire_ended(
        self,
        want: Want,
        owner: str,
        hold: Held | None,
        wait: Wait | None,
        waited: float,
        *,
        most: float | None,
        failed: Failure,
    ) -> None:
        """An acquire that could wait *most* seconds has ended: with a *hold*, without one, or with an exception."""
        if hold is not None:
            self._acquired(hold, wait, waited)
        # With `GeneratorExit`, Python destroys the coroutine, perhaps in another thread.
        elif failed is not GeneratorExit:
            who = (want.keys.name, want.scripts.kind, owner, 0)
            self._not_acquired(who, wait, waited, _why_not(failed, most), failed)

    def _acquired(self, hold: Held, wait: Wait | None, waited: float) -> None:
        holds = len(hold.leases)
        event = Acquired(*_who(hold), holds, waited, *_known(wait))
        self._tell(logging.DEBUG, event, "acquired")
        if self._observer is not None and holds == 1:
            try:
                self._observer.acquired(hold, event)
            except (Exception, CancelledError):
                self._note_failure(event)

    def _not_acquired(
        self, who: Who, wait: Wait | None, waited: float, reason: NotAcquiredReason, failed: Failure
    ) -> None:
        error = failed.__name__ if failed is not None and reason == "error" else None
        event = NotAcquired(*who, reason, error, waited, *_known(wait))
        self._tell(logging.DEBUG, event, f"not acquired in {waited:.3g} s: {error or reason}")

    def bypassed(self, want: Want, owner: str, error: Exception) -> None:
        """The function of *owner* runs without the lock, because Redis failed with *error*."""
        event = Bypassed(want.keys.name, want.scripts.kind, owner, 0, str(error))
        is_warned = monotonic() < self._next_bypass
        if not is_warned:
            self._next_bypass = monotonic() + _PAUSE
        level = logging.DEBUG if is_warned else logging.WARNING
        self._tell(level, event, f"bypassed, because on_unavailable is 'run': {error}")

    def left_unanswered(self, want: Want, error: Exception) -> None:
        """The function under the lock has ended; the release failed with *error*, and on_unavailable is ``"run"``."""
        text = "the release failed after its function had ended, and is ignored because on_unavailable is 'run': %s"
        self._warn(want.keys, want.scripts.kind, text, error)

    def handed_off(self, hold: Held) -> None:
        self.hand_offs += 1
        if self.is_heard():
            self._tell(logging.DEBUG, HandedOff(*_who(hold)), "handed off")

    # Holds.

    def released(self, hold: Held, holds: int, ended: float, *, confirmed: bool = True) -> None:
        # The loss was reported.
        if hold.loss is not None:
            return
        if self._filter is None or self._filter.hears_release() or logger.isEnabledFor(logging.DEBUG):
            event = Released(*_who(hold), holds, ended - hold.since, confirmed)
            self._tell(logging.DEBUG, event, "released" if confirmed else "released, without an answer")
        if not holds:
            self._ended(hold)

    def renewed(self, hold: Held) -> None:
        self.renewals += 1
        hold.watch.late = False
        if self.is_heard():
            self._tell(logging.DEBUG, Renewed(*_who(hold), hold.deadline - monotonic()), "renewed")

    def renewal_late(self, hold: Held, late: float) -> None:
        remaining = hold.deadline - monotonic()
        trouble = hold.watch.trouble
        why = trouble or ("it has no answer" if hold.watch.unanswered else "the event loop was blocked")
        event = RenewalLate(*_who(hold), late, remaining, trouble)
        # One warning until a renewal succeeds again.
        level = logging.DEBUG if hold.watch.late else logging.WARNING
        hold.watch.late = True
        self._tell(level, event, f"renewal {late:.3g} s late, {remaining:.3g} s of the lease left: {why}")

    def renewed_by_thread(
        self, renewals: Collection[tuple[Held, int]], blocked: float, *, most: float, again: bool
    ) -> None:
        """
        A thread has renewed each hold a number of times, because the event loop was late.

        *blocked* is how long the loop was blocked; the thread renews for *most* seconds of that. *again*: there was
        such a report a moment ago.
        """
        total = sum(number for _, number in renewals)
        self.renewals += total
        self.renewals_by_thread += total
        text = "the event loop was late with renewals, and blocked for %.3g s: a thread has renewed %s"
        text += f", for no longer than `max_stall`, {most:.3g} s" if blocked > most else ""
        level = logging.DEBUG if again else logging.WARNING
        names = _some_of([hold.keys.name for hold, _ in renewals])
        log.log(level, text, blocked, names, extra={"client": self._client})
        for hold, number in renewals:
            event = RenewedByThread(*_who(hold), number, blocked)
            self._tell(logging.DEBUG, event, f"renewed by a thread, {number} times")

    def unanswered(self, hold: Held, holds: int, ended: float, error: BackendError) -> None:
        """A release that was left behind has failed, or got no answer in time."""
        self._warn(hold.keys, hold.kind, "its block had ended when the %s", error, token=hold.token)
        self.released(hold, holds, ended, confirmed=False)

    def lost(self, hold: Held, reason: LossReason, *, behind: bool) -> None:
        """*hold* is lost; *behind*: the loss was found by the answer to a release that nobody waited for."""
        self.losses += 1
        self.losses_behind += behind
        ran_out = reason == "expired" and hold.ran_out
        trouble = hold.watch.trouble
        event = Lost(*_who(hold), reason, monotonic() - hold.since, ran_out, trouble, behind)
        text = f"lost: {reason}" if trouble is None else f"lost: {reason}; the last renewal failed: {trouble}"
        text += "; its block had ended, without an error, when the release was answered" if behind else ""
        level = logging.INFO if ran_out else logging.WARNING
        # `orphaned` has warned about the task that ended.
        self._tell(logging.DEBUG if reason == "orphaned" else level, event, text)
        self._ended(hold)

    def orphaned(self, hold: Held, task: str) -> None:
        """The *task* that acquired it has ended."""
        event = Orphaned(*_who(hold), len(hold.leases), task, monotonic() - hold.since)
        self._tell(logging.WARNING, event, _of_orphan(hold, task))
        self._ended(hold)

    def _ended(self, hold: Held) -> None:
        if self._observer is not None:
            self._observer.ended(hold)

    # Reports that are no events.

    def left_elsewhere(self, hold: Held) -> None:
        """A block was left by another task than the one that entered it."""
        # `orphaned` has reported it, with the task's name.
        if hold.orphan_of is not None:
            return
        text = (
            "its `async with` was left by a task that did not enter it, and that a loss would not have cancelled. "
            "Leave the block in the task that entered it"
        )
        self._warn(hold.keys, hold.kind, text)

    def abandoned(self, names: Sequence[str]) -> None:
        """The program has dropped the client without closing it, while it held *names*."""
        text = (
            "nothing refers to this LockClient any more, but it was not closed. It holds %s until a release, or the "
            "end of the holder's task. Keep the client, and use `async with LockClient(...)`"
        )
        log.warning(text, _some_of(names), extra={"client": self._client})

    def closed_in_doubt(self, pending: int) -> None:
        """The client was closed with *pending* commands unanswered."""
        text = "closed while %d commands had no answer: locks that they should free end with their leases"
        log.warning(text, pending, extra={"client": self._client})

    def closed(self) -> None:
        """The client is closed."""
        if self._observer is not None:
            try:
                self._observer.closed(self._client)
            except Exception:
                log.exception("the telemetry failed when its client was closed", extra={"client": self._client})

    def is_heard(self) -> bool:
        """Whether anything listens to all events."""
        return self.is_observed or logger.isEnabledFor(logging.DEBUG)

    def _tell(self, level: int, event: LockEvent, text: str) -> None:
        if logger.isEnabledFor(level):
            self._log(level, event, text)
        try:
            if self._on_event is not None:
                self._on_event(event)
        except (Exception, CancelledError):
            self._note_failure(event)

    def _warn(self, keys: LockKeys, kind: LockKind, text: str, *about: object, token: int = 0) -> None:
        """Log a warning about one lock, which is no event."""
        extra = {"lock_name": keys.name, "client": self._client}
        log.warning(f"%s: {text}", _where(keys.name, kind, token), *about, extra=extra)

    def _log(self, level: int, event: LockEvent, text: str) -> None:
        where = _where(event.name, event.kind, event.token)
        log.log(level, "%s: %s", where, text, extra=self._fields(event))

    def _fields(self, event: LockEvent) -> dict[str, object]:
        """The fields of *event* for a log record; its name gets a key that records do not have already."""
        found = {each.name: getattr(event, each.name) for each in fields(event)}
        return {"event": type(event).__name__, "client": self._client, "lock_name": found.pop("name"), **found}

    def _note_failure(self, event: LockEvent) -> None:
        """Log the exception of the user's hook, if it is the first."""
        if not self._hook_failed:
            log.exception("on_event failed on %r; further failures are not logged", event)
        self._hook_failed = True


def _who(hold: Held) -> Who:
    return hold.keys.name, hold.kind, hold.owner, hold.token


def _known(wait: Wait | None) -> tuple[bool, str | None, str | None]:
    """Whether the acquire has waited; the holder and its mark, if the client knows them."""
    return (False, None, None) if wait is None else (True, wait.holder, wait.mark)


def _some_of(names: Sequence[str]) -> str:
    """The first *names*, as a text."""
    return ", ".join(map(repr, names[:_MOST_NAMED])) + (", ..." if len(names) > _MOST_NAMED else "")


def _where(name: str, kind: LockKind, token: int) -> str:
    """The lock or permits that a log record is about; the record begins with this text."""
    what = f"{'lock' if _is_lock(kind) else 'permits of'} {quoted(name)}"
    return what + (f" (token {token})" if token else "")


def _of_orphan(hold: Held, task: str) -> str:
    """The text of the log record about the end of the *task* that acquired *hold*."""
    held, them = ("held the lock", "It is") if _is_lock(hold.kind) else ("had them", "They are")
    if any(lease._scoped for lease in hold.leases):
        # A counting semaphore has no owners.
        counted = hold.kind == "counting_semaphore"
        instead = "call acquire() and release(), without a block" if counted else "use a named owner (owner=...)"
        return (
            f"task {task!r} ended inside of its block. {them} released, unless the event loop ends first. "
            f"The rest of the block runs in another task, as a test does after the `yield` of its fixture: {instead}"
        )
    return (
        f"task {task!r} ended while it {held}. {them} released, unless the event loop ends first. Let one task "
        "or thread acquire, work and release. To release in another one, use a named owner (owner=...): each cell of a "
        "notebook, each request and each fixture is a task of its own"
    )


def _is_lock(kind: LockKind) -> bool:
    """Whether *kind* is a lock; otherwise it is a semaphore."""
    return not kind.endswith("semaphore")


def _why_not(failed: Failure, most: float | None) -> NotAcquiredReason:
    """The reason why an acquire that could wait *most* seconds ended without the lock."""
    if failed is None:
        return "busy" if most == 0 else "timeout"
    if failed is DoneError:
        return "done"
    return "cancelled" if issubclass(failed, CancelledError) else "error"
