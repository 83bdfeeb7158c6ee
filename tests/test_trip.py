"""The trip of one acquire and of one release through the package: how many rooms, and how often from one to another."""

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import aiolock
from aiolock import AsyncRLock, LockClient

PACKAGE = Path(aiolock.__file__).parent
MOST_ROOMS = 14
MOST_MOVES = 26


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
    """The way that *act* takes."""
    if act is AsyncRLock.release:
        await lock.acquire()
    with followed() as rooms:
        await act(lock)
    if lock.statistics().held:
        await lock.release()
    return rooms


@pytest.mark.parametrize("act", [AsyncRLock.acquire, AsyncRLock.release], ids=["acquire", "release"])
async def test_the_way_to_the_server_and_back_is_short(
    locks: LockClient, act: Callable[[AsyncRLock], Awaitable[object]], capsys: pytest.CaptureFixture[str]
) -> None:
    lock = locks.lock("a")
    async with lock:  # The connection stands, and the scripts are known.
        pass
    # A timer of the connection may ring on the way, if the machine is busy: the shortest of some trips is the way.
    rooms = min([await trip(lock, act) for _ in range(10)], key=len)
    with capsys.disabled():
        print(f"\n{act.__name__}: {len(set(rooms))} rooms, {len(rooms) - 1} moves: {' > '.join(rooms)}")
    assert len(set(rooms)) <= MOST_ROOMS
    assert len(rooms) - 1 <= MOST_MOVES
