"""The types of `aiolock.opentelemetry` and of events: checked by mypy and pyright, never run."""

from collections.abc import Callable
from datetime import timedelta
from typing import Literal, assert_type

from fastapi import FastAPI
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from aiolock import (
    Acquired,
    ClientStatistics,
    LockActivity,
    LockConfig,
    LockEvent,
    NotAcquired,
    NotAcquiredReason,
    Released,
    Telemetry,
)
from aiolock.fastapi import healthz, lifespan, locks_page
from aiolock.opentelemetry import instrument


def settings(meters: MeterProvider, tracers: TracerProvider) -> None:
    assert_type(instrument(), LockConfig)
    config = instrument(LockConfig(lease=5), group=lambda name: name[:1], link_after=timedelta(seconds=1))
    instrument(meter_provider=meters, tracer_provider=tracers)
    app = FastAPI(lifespan=lifespan("redis://localhost", config=config))
    app.add_api_route("/healthz", healthz)
    app.add_api_route("/locks", locks_page)


def refused() -> None:
    instrument("redis://localhost")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    instrument(group="orders")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Vendor:
    """The telemetry of another vendor."""

    patience: float = 0.1

    def started(self, client: str, statistics: Callable[[], ClientStatistics]) -> None:
        assert_type(statistics(), ClientStatistics)

    def closed(self, client: str) -> None: ...

    def mark(self, event: Acquired) -> str:
        return f"{event.owner} {event.token}"


def events(event: LockEvent) -> None:
    match event:
        case NotAcquired():
            assert_type(event.reason, Literal["busy", "timeout", "cancelled", "done", "error"])
            reason: NotAcquiredReason = event.reason
            assert reason
        case Released():
            assert_type(event.held, float)
        case _:
            assert_type(event.token, int)


def activity(lock: LockActivity) -> float:
    return sum(each.waited for each in lock.waiting) + sum(each.held for each in lock.holding)


vendor: Telemetry = Vendor()
config = LockConfig(telemetry=Vendor(), on_event=events)
