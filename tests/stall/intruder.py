"""
A process that tries to get a lock all the time: `python -m tests.stall.intruder PLACE NAME`.

It writes `tries` once it was refused, and the time on the monotonic clock, which all processes share, when it gets in.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.stall.places import LONGEST_LEASE, Place
from tests.support.programs import Program, python, said

_PAUSE = 0.003


@asynccontextmanager
async def intruder(place: Place, name: str) -> AsyncIterator[Program]:
    """A running intruder, which was refused at least once; it is killed in the end, if it has not ended before."""
    with python("-m", "tests.stall.intruder", place.written(), name) as running:
        assert await asyncio.to_thread(said, running) == "tries"
        yield running


def got_in(running: Program) -> float:
    """The time at which the intruder got in; the calling thread waits for it."""
    return float(said(running))


async def main(place: Place, name: str) -> None:
    async with place.client() as locks:
        lock, tries = locks.lock(name), 0
        while not await lock.try_lock(0, LONGEST_LEASE):
            tries += 1
            if tries == 1:
                print("tries", flush=True)
            await asyncio.sleep(_PAUSE)
        print(time.monotonic(), flush=True)
        await lock.release()


if __name__ == "__main__":
    _, place, name = sys.argv
    asyncio.run(main(Place.read(place), name))
