"""
Metrics and traces of locks, by OpenTelemetry: ``LockClient.from_url(url, config=instrument())``.

Needs the API of OpenTelemetry (the extra ``opentelemetry``). The application configures an SDK that exports metrics and
traces; without one nothing is recorded.
"""

from collections.abc import Callable
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import Any

from opentelemetry.context import get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

import aiolock._origin  # noqa: F401 - refuses a folder that another package shares
from aiolock import (
    Acquired,
    Bypassed,
    ClientStatistics,
    Duration,
    LockConfig,
    LockEvent,
    LockKind,
    Lost,
    NotAcquired,
    Orphaned,
    Released,
    RenewalLate,
    WaitStarted,
)
from aiolock._otel.metrics import ERROR, GROUP, KIND, OUTCOME, REASON, Count, instruments_of
from aiolock._otel.traces import Spans
from aiolock._types import seconds

__all__ = ["instrument"]


def instrument(
    config: LockConfig | None = None,
    *,
    group: Callable[[str], str | None] | None = None,
    link_after: Duration = 0.1,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> LockConfig:
    """
    A copy of *config* whose clients report to OpenTelemetry; its own `LockConfig.on_event` is called as before.

    Spans have the names of locks; metrics do not, because each name would be a time series of its own. *group* maps
    a name to one of a few groups, which metrics have as an attribute: ``lambda name: name.partition(":")[0]``.

    Within a trace there is a span for each wait and each hold. A wait that took longer than *link_after* seconds has a
    link to the span of the holder, in any process: the holder leaves its trace context in Redis when it has held the
    lock for a quarter of *link_after*. Holders that are not sampled leave nothing.

    The providers are those of the whole process unless you give others; they may be set later.

    Raises:
        TypeError, ValueError: *config* is no `LockConfig`, or has a telemetry already; *group* is no plain function;
            *link_after* is not a time.
    """
    settings = LockConfig() if config is None else config
    if not isinstance(settings, LockConfig):
        kind = type(config).__name__
        raise TypeError(f"instrument takes a LockConfig, and returns another one for the client, not {kind}")
    _check_group(group)
    if settings.telemetry is not None:
        raise ValueError("this LockConfig has a telemetry already")
    patience = seconds(link_after, "link_after")
    reporter = _Reporter(settings.on_event, group, patience, meter_provider, tracer_provider)
    return replace(settings, on_event=reporter.hear, telemetry=reporter)


def _check_group(group: object) -> None:
    if group is not None and (not callable(group) or iscoroutinefunction(group)):
        raise TypeError(f"group must be a plain function that maps a name to a group, not {group!r}")


class _Reporter:
    """The `Telemetry` of some clients: makes metrics and spans of their events."""

    def __init__(
        self,
        on_event: Callable[[LockEvent], object] | None,
        group: Callable[[str], str | None] | None,
        patience: float,
        meter_provider: MeterProvider | None,
        tracer_provider: TracerProvider | None,
    ) -> None:
        self._on_event = on_event
        self._groups = group
        self._metrics = instruments_of(meter_provider)
        self._spans = Spans(tracer_provider)
        self.patience: float = patience
        self.mark: Callable[[Acquired], str] = self._spans.mark
        self._acquires: dict[tuple[LockKind, str | None], Count] = {}
        self._handlers: dict[type[LockEvent], Callable[[Any], None]] = {
            Bypassed: self._bypassed,
            Lost: self._lost,
            NotAcquired: self._not_acquired,
            Orphaned: self._orphaned,
            Released: self._released,
            RenewalLate: self._renewal_late,
            WaitStarted: self._wait_started,
        }

    # The methods of a `Telemetry`.

    def started(self, client: str, statistics: Callable[[], ClientStatistics]) -> None:
        self._metrics.clients.started(client, statistics)

    def closed(self, client: str) -> None:
        self._metrics.clients.closed(client)

    def hears_release(self) -> bool:
        return self._on_event is not None or bool(self._spans.holds) or self._metrics.records_holds()

    # Events.

    def hear(self, event: LockEvent) -> None:
        try:
            # This event comes in every section: calling a handler would take longer.
            if isinstance(event, Acquired):
                group = self._groups and self._groups(event.name)
                (self._acquires.get((event.kind, group)) or self._begin(event.kind, group)).number += 1
                # The context is empty most of the time.
                if event.contended or get_current():
                    self._acquired(event, group)
            elif (handler := self._handlers.get(type(event))) is not None:
                handler(event)
        finally:
            if self._on_event is not None:
                self._on_event(event)

    def _group(self, event: LockEvent) -> str | None:
        return None if self._groups is None else self._groups(event.name)

    def _wait_started(self, event: WaitStarted) -> None:
        self._metrics.contentions.add(((KIND, event.kind), (GROUP, self._group(event))))

    def _begin(self, kind: LockKind, group: str | None) -> Count:
        """Count the first grant of that *kind* and *group*."""
        begun = self._acquires[kind, group] = self._metrics.begin(kind, group)
        return begun

    def _acquired(self, event: Acquired, group: str | None) -> None:
        """Report a grant that had to wait, or that may be in a trace."""
        if event.contended:
            self._metrics.waited(event.waited, event.kind, group, "acquired")
            self._spans.waited(event, group)
        if event.holds == 1:
            self._spans.hold_began(event, group)

    def _bypassed(self, event: Bypassed) -> None:
        self._metrics.bypasses.add(((KIND, event.kind), (GROUP, self._group(event))))

    def _not_acquired(self, event: NotAcquired) -> None:
        group, metrics = self._group(event), self._metrics
        who = ((KIND, event.kind), (GROUP, group))
        metrics.acquires.add((*who, (OUTCOME, event.reason), (ERROR, event.error)))
        if event.reason == "busy":
            metrics.contentions.add(who)
        if event.contended:
            metrics.waited(event.waited, event.kind, group, event.reason)
            self._spans.waited(event, group)

    def _released(self, event: Released) -> None:
        if not event.holds:
            self._metrics.held(event.held, event.kind, self._group(event), "released")
            self._spans.hold_ended(event, "released")

    def _lost(self, event: Lost) -> None:
        group = self._group(event)
        outcome = "ran out" if event.ran_out else "lost"
        if not event.ran_out:
            self._metrics.losses.add(((KIND, event.kind), (GROUP, group), (REASON, event.reason)))
        if event.reason == "orphaned":
            # The hold ended with `Orphaned`, which comes before this event.
            return
        self._metrics.held(event.held, event.kind, group, outcome)
        self._spans.hold_ended(event, outcome, why=None if event.ran_out else f"lost: {event.reason}")

    def _orphaned(self, event: Orphaned) -> None:
        self._metrics.held(event.held, event.kind, self._group(event), "orphaned")
        self._spans.hold_ended(event, "orphaned", why=f"task {event.task!r} ended while it held the lock")

    def _renewal_late(self, event: RenewalLate) -> None:
        self._metrics.late_renewals.add(((KIND, event.kind), (GROUP, self._group(event))))
        self._spans.note(event, "renewal late", {"aiolock.late": event.late, "aiolock.remaining": event.remaining})
