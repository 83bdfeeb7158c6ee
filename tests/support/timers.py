"""The timers of an event loop, for tests that count what happens without them."""

import asyncio
from collections.abc import Callable
from contextvars import Context

import pytest


def never_ring(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, a timer of *loop* rings after an hour, which is later than the end of any test."""
    call_later = loop.call_later

    def ring_after_an_hour(
        delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return call_later(3600, callback, *args, context=context)

    monkeypatch.setattr(loop, "call_later", ring_after_an_hour)
