"""A simulated process ends without traces in the seeds after it."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulation.fork import use_in_child
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.world import World


async def act() -> None:
    """A coroutine that, like a block, awaits something as it ends, which fails if there is no running task."""
    try:
        await asyncio.sleep(10)
    finally:
        try:
            await asyncio.sleep(10)
        finally:
            raise ValueError


async def work() -> None:
    with contextlib.suppress(Exception):
        await act()


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process(Network(World(0), (0.001, 0.002)), "p1")
    yield process
    process.close()
    World.here = None


def test_the_end_of_a_process_leaves_no_coroutine_to_the_garbage_collector(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    task = process.start(work(), "work")
    process.world.run_until(1.0)
    process.end()
    assert task.get_coro().cr_frame is None  # type: ignore[union-attr]
    assert ignored == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.parametrize(
    ("way", "code", "found"),
    [
        (os._exit, 0, []),
        (os._exit, 3, ["ended with status 3"]),
        (signal.raise_signal, signal.SIGKILL, ["ended with status -9"]),
    ],
)
def test_a_forked_child_that_fails_is_found(process: Process, way: Any, code: int, found: list[str]) -> None:
    process.call_soon(way, code)
    assert use_in_child(process, cancels=False) == found
