"""
The spans of one client: of waits, and of holds, within the traces of whoever waits and holds.

Where there is no trace there is no span: a lock alone tells nobody's story.
"""

from time import time_ns

from opentelemetry.trace import (
    Link,
    Span,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aiolock import Acquired, LockEvent, NotAcquired, __version__
from aiolock._otel.metrics import ERROR, GROUP, KIND, OUTCOME, SCOPE

NAME, OWNER, TOKEN = "aiolock.lock.name", "aiolock.lock.owner", "aiolock.lock.token"

_W3C = TraceContextTextMapPropagator()
_FIELD = "traceparent"
_FAILED = {"timeout", "error"}  # How a wait ends that has failed; who is cancelled has not.

Attributes = dict[str, str | int]


class Spans:
    """The spans of holds that are not over, and those of waits."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._tracer = get_tracer(SCOPE, __version__, provider)
        # Invariant: a hold that began within a trace has its span here until it ends. An owner may have several holds
        # of what has no tokens: which of their spans is whose does not matter, the last one ends first.
        self.holds: dict[tuple[str, str, str, int], list[Span]] = {}

    def waited(self, event: Acquired | NotAcquired, group: str | None) -> None:
        """A wait has ended; its span is linked to that of whoever was waited for."""
        if not get_current_span().is_recording():
            return
        attributes = _attributes(event, group)
        failed = isinstance(event, NotAcquired) and event.reason in _FAILED
        attributes[OUTCOME] = event.reason if isinstance(event, NotAcquired) else "acquired"
        if isinstance(event, NotAcquired) and event.error is not None:
            attributes[ERROR] = event.error
        began = time_ns() - round(event.waited * 1e9)
        span = self._tracer.start_span(
            "aiolock.wait", links=_links(event.mark), attributes=attributes, start_time=began
        )
        if failed:
            span.set_status(Status(StatusCode.ERROR, f"{event.name!r} was not acquired in {event.waited:.3g} s"))
        span.end()

    def hold_began(self, event: Acquired, group: str | None) -> None:
        """A first hold was granted."""
        if get_current_span().is_recording():
            span = self._tracer.start_span("aiolock.hold", attributes=_attributes(event, group))
            self.holds.setdefault(_key(event), []).append(span)

    def hold_ended(self, event: LockEvent, outcome: str, *, why: str | None = None) -> None:
        """It has ended; *why* if that is a failure."""
        if not (spans := self.holds.get(_key(event))):
            return
        span = spans.pop()
        if not spans:
            del self.holds[_key(event)]
        span.set_attribute(OUTCOME, outcome)
        if why is not None:
            span.set_status(Status(StatusCode.ERROR, why))
        span.end()

    def note(self, event: LockEvent, what: str, attributes: dict[str, float]) -> None:
        """Something happened during a hold."""
        for span in self.holds.get(_key(event), ()):
            span.add_event(what, attributes)

    def mark(self, event: Acquired) -> str:
        """The context of the span of the hold that was just granted; empty if it is in no trace that is kept."""
        if not self.holds or not (spans := self.holds.get(_key(event))):
            return ""
        if not spans[-1].get_span_context().trace_flags.sampled:
            return ""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, set_span_in_context(spans[-1]))
        return carrier.get(_FIELD, "")


def _key(event: LockEvent) -> tuple[str, str, str, int]:
    return event.owner, event.kind, event.name, event.token


def _attributes(event: LockEvent, group: str | None) -> Attributes:
    attributes: Attributes = {NAME: event.name, KIND: event.kind, OWNER: event.owner}
    if event.token:
        attributes[TOKEN] = event.token
    if group is not None:
        attributes[GROUP] = group
    return attributes


def _links(mark: str | None) -> list[Link]:
    """A link to the span that *mark* is of, unless it is something else's mark."""
    context = get_current_span(_W3C.extract({_FIELD: mark or ""})).get_span_context()
    return [Link(context, {"aiolock.link": "holder"})] if mark and context.is_valid else []
