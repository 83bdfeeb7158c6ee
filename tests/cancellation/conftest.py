"""The servers of the rounds, and a line in the report with the number of suspension points that they visited."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from aiolock._embedded_server import Server
from aiolock._redis import notifier as _notifier
from tests.cancellation.rounds import Arena


@pytest.fixture
def brief_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients leave a channel without waiters within some hundredths of a second, not within a second."""
    monkeypatch.setattr(_notifier, "LINGER", 0.01)
    monkeypatch.setattr(_notifier, "_PULSE", 0.01)


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """The same as `record_property`, without its warning for --junitxml, which would be an error here."""
    properties: list[tuple[str, object]] = request.node.user_properties
    return lambda name, value: properties.append((name, value))


@pytest.fixture
def arena(server: Server, redis: Redis, brief_linger: None, record: Callable[[str, object], None]) -> Arena:
    return Arena(redis, lambda: Redis.from_url(server.url), record, [redis])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how many suspension points were visited."""
    counts = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "suspensions"
    ]
    if counts:
        terminalreporter.write_line(f"cancelled at {sum(counts)} suspension points in {len(counts)} scenarios")
