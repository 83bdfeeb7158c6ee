"""
The spans of one client: of its waits and its holds, within the traces of their tasks.

Outside of a trace there are no spans: a span of a lock alone would help nobody.
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
from aiolock._types import quoted

NAME, OWNER, TOKEN = "aiolock.lock.name", "aiolock.lock.owner", "aiolock.lock.token"

_W3C = TraceContextTextMapPropagator()
_FIELD = "traceparent"
# The outcomes of a wait that are failures; a cancellation is not one.
_FAILED = {"timeout", "error"}

Attributes = dict[str, str | int]


class Spans:
    """The spans of holds that have not ended, and of waits."""

    def __init__(self, provider: TracerProvider | None) -> None:
        self._tracer = get_tracer(SCOPE, __version__, provider)
        # Invariant: a hold that began within a trace has its span here until it ends. An owner may have several permits
        # that have no tokens: it does not matter which span belongs to which permit, the last one ends first.
        self.holds: dict[tuple[str, str, str, int], list[Span]] = {}

    def waited(self, event: Acquired | NotAcquired, group: str | None) -> None:
        """Make the span of a wait that has ended, with a link to the span of the holder, if it left a mark."""
        if not get_current_span().is_recording():
            return
        outcome, error = (event.reason, event.error) if isinstance(event, NotAcquired) else ("acquired", None)
        attributes = _attributes(event, group) | {OUTCOME: outcome}
        if error is not None:
            attributes[ERROR] = error
        began = time_ns() - round(event.waited * 1e9)
        span = self._tracer.start_span(
            "aiolock.wait", links=_links(event.mark), attributes=attributes, start_time=began
        )
        if outcome in _FAILED:
            span.set_status(Status(StatusCode.ERROR, f"{quoted(event.name)} was not acquired in {event.waited:.3g} s"))
        span.end()

    def hold_began(self, event: Acquired, group: str | None) -> None:
        """Begin the span of a hold that does not nest in another."""
        if get_current_span().is_recording():
            span = self._tracer.start_span("aiolock.hold", attributes=_attributes(event, group))
            self.holds.setdefault(_key(event), []).append(span)

    def hold_ended(self, event: LockEvent, outcome: str, *, why: str | None = None) -> None:
        """End the span of a hold; *why* is the reason if the end is a failure."""
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
        """Add the event *what* to the span of a hold."""
        for span in self.holds.get(_key(event), ()):
            span.add_event(what, attributes)

    def mark(self, event: Acquired) -> str:
        """The trace context of the hold that was just granted; empty if its trace is not recorded."""
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
    """A link to the span whose context is in *mark*; none if *mark* is not a trace context."""
    context = get_current_span(_W3C.extract({_FIELD: mark or ""})).get_span_context()
    return [Link(context, {"aiolock.link": "holder"})] if mark and context.is_valid else []
