"""The trip of an acquire, a release and a block through the package: the rooms that it visits, and its moves."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import aiolock
from aiolock import AsyncRLock, LockClient
from tests.support import timers
from tests.support.observe import all_parked

PACKAGE = Path(aiolock.__file__).parent
# Rooms and moves.
MOST = {"acquire": (14, 29), "release": (12, 29), "block": (15, 61)}


@contextmanager
def followed() -> Iterator[list[str]]:
    """The modules of ours in which a function begins or goes on, one after the other."""
    rooms: list[str] = []

    def follow(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            room = path.relative_to(PACKAGE).with_suffix("").as_posix()
            if rooms[-1:] != [room]:
                rooms.append(room)

    before = sys.getprofile()
    sys.setprofile(follow)
    try:
        yield rooms
    finally:
        sys.setprofile(before)


async def trip(lock: AsyncRLock, act: Callable[[AsyncRLock], Awaitable[object]]) -> list[str]:
    """The rooms that *act* visits, in order."""
    if act is AsyncRLock.release:
        await lock.acquire()
    with followed() as rooms:
        await act(lock)
    if lock.statistics().held:
        await lock.release()
    return rooms


async def block(lock: AsyncRLock) -> None:
    """Enters a block and leaves it."""
    async with lock:
        pass


@pytest.mark.parametrize("act", [AsyncRLock.acquire, AsyncRLock.release, block], ids=["acquire", "release", "block"])
async def test_the_way_to_the_server_and_back_is_short(
    locks: LockClient,
    act: Callable[[AsyncRLock], Awaitable[object]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers.never_ring(asyncio.get_running_loop(), monkeypatch)
    lock = locks.lock("a")
    # The first section sends the source of each script, and the second one needs its digest.
    for _ in range(2):
        async with lock:
            pass
    rooms = await trip(lock, act)
    with capsys.disabled():
        print(f"\n{act.__name__}: {len(set(rooms))} rooms, {len(rooms) - 1} moves: {' > '.join(rooms)}")
    most_rooms, most_moves = MOST[act.__name__]
    assert len(set(rooms)) <= most_rooms
    assert len(rooms) - 1 <= most_moves


async def test_a_wait_keeps_few_coroutines(locks: LockClient) -> None:
    """A thousand waiters keep a thousand of each."""
    lock = locks.lock("a")

    async def wait() -> None:
        async with lock:
            pass

    async with lock:
        task = asyncio.create_task(wait())
        await all_parked(locks, 1)
        names = list(coroutines(task.get_coro()))
    await task
    assert names == ["wait", "_enter", "run", "wait"], "the last one is that of the event"


def coroutines(awaiting: object) -> Iterator[str]:
    """The names of *awaiting* and of each coroutine that the one before it awaits."""
    while inspect.iscoroutine(awaiting):
        yield awaiting.cr_code.co_name
        awaiting = awaiting.cr_await
