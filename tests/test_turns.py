"""The turns of the event loop that a section takes where its task is alone."""

import asyncio
import selectors
from itertools import pairwise
from statistics import median

import pytest
from redis.asyncio import Redis

from aiolock import LockClient, LockConfig
from aiolock._embedded_server import Server
from aiolock._types import BlockRelease
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


@pytest.mark.parametrize(("release", "most"), [("answered", 4), ("behind", 3)])
def test_a_section_of_a_lone_task_takes_few_turns(
    server: Server, release: BlockRelease, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A reply arrives in one turn; in the next one, the connection reads it, and the task that awaits it goes on.

    Behind, the connection looks in one more turn whether other calls follow the release and the acquire. The replies of
    a quick server arrive in that turn.
    """
    config, selector = LockConfig(release=release), CountingSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        assert median(runner.run(take_turns(server.url, config, selector, monkeypatch))) <= most


@pytest.mark.parametrize("release", ["answered", "behind"])
async def test_a_lone_task_sends_what_it_has_without_waiting_for_other_tasks(
    redis: Redis, release: BlockRelease
) -> None:
    """With ``"behind"``, that is a release and the next acquire; otherwise each of them."""
    loop, later = asyncio.get_running_loop(), list[int]()
    async with LockClient(redis, config=LockConfig(release=release)) as locks:
        lock = locks.lock("orders")

        def note(before: int) -> None:
            later.append(locks.statistics().batches - before)

        for _ in range(5):
            async with lock:
                # The next turn begins with this callback.
                loop.call_soon(note, locks.statistics().batches)
        assert later[2:4] == [1, 1]


async def test_a_hand_off_leaves_in_the_turn_that_submits_it(locks: LockClient) -> None:
    loop, later = asyncio.get_running_loop(), list[int]()
    lock = locks.lock("orders")

    def note(before: int) -> None:
        later.append(locks.statistics().batches - before)

    async def take_often() -> None:
        for _ in range(5):
            async with lock:
                await asyncio.sleep(0)
                # The next turn begins with this callback.
                loop.call_soon(note, locks.statistics().batches)

    await asyncio.gather(take_often(), take_often())
    assert later[3:8] == [1, 1, 1, 1, 1]
