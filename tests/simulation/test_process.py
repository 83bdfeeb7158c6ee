"""A simulated process ends without traces in the seeds after it."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulation.fork import may_fork, use_in_child
from tests.simulation.network import Network
from tests.simulation.process import Process
from tests.simulation.server import Server
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


def test_a_process_forks_only_while_no_connection_is_being_made(process: Process) -> None:
    world, network = process.world, process.network
    server = network.servers["s1:6379"] = Server(world, "s1")
    world.run_until(5.0)
    assert may_fork(process)
    connecting = process.start(network.connect(process, asyncio.Protocol, server.address), "connect")
    world.run_until(5.0001)
    assert not connecting.done()
    assert not may_fork(process)
    world.run_until(5.1)
    assert connecting.done()
    # The connection breaks before the process has used it.
    for link in list(network.links):
        link.reset(forget=True)
    assert not may_fork(process)
    world.run_until(6.1)
    assert may_fork(process)


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
