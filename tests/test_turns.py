"""The turns of the event loop that a section takes where its task is alone."""

import asyncio
import selectors

import pytest

from aiolock import LockClient
from aiolock._embedded_server import Server
from tests.support import timers

_SECTIONS = 50


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of the loop that asks it."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


async def take_turns(url: str, selector: CountingSelector, monkeypatch: pytest.MonkeyPatch) -> float:
    """The turns of the loop for each of many sections, without the turns in which a timer rings."""
    timers.never_ring(asyncio.get_running_loop(), monkeypatch)
    async with LockClient.from_url(url) as locks:
        lock = locks.lock("orders")
        for _ in range(3):
            async with lock:
                pass
        before = selector.turns
        for _ in range(_SECTIONS):
            async with lock:
                pass
        return (selector.turns - before) / _SECTIONS


def test_a_section_of_a_lone_task_takes_six_turns(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command takes three: one in which its reply arrives, one to read it, and one for the task that awaits it."""
    selector = CountingSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert runner.run(take_turns(server.url, selector, monkeypatch)) == 6
