"""The turns of the event loop that a section takes where its task is alone."""

import asyncio
import selectors
from itertools import pairwise
from statistics import median
from typing import Literal

import pytest

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from tests.support import timers

_SECTIONS = 50


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of the loop that asks it."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


async def take_turns(
    url: str, config: LockConfig, selector: CountingSelector, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """The turns of the loop for each of many sections, without the turns in which a timer rings."""
    timers.never_ring(asyncio.get_running_loop(), monkeypatch)
    async with LockClient.from_url(url, config=config) as locks:
        lock = locks.lock("orders")
        ends: list[int] = []
        for _ in range(_SECTIONS):
            async with lock:
                pass
            ends.append(selector.turns)
        return [after - before for before, after in pairwise(ends)]


@pytest.mark.parametrize(("release", "turns"), [("answered", 4), ("behind", 3)])
def test_a_section_of_a_lone_task_takes_few_turns(
    server: Server, release: Literal["answered", "behind"], turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A reply arrives in one turn; in the next one, the connection reads it, and the task that awaits it goes on.

    An acquire behind a release is written a turn later, together with it.
    """
    config, selector = LockConfig(release=release), CountingSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert median(runner.run(take_turns(server.url, config, selector, monkeypatch))) == turns
