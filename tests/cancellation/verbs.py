"""The possible acts of a round with its subject, for every primitive."""

import asyncio

from tests.cancellation.rounds import Round

# Seconds in which a client subscribes, also on a busy machine.
SHORT = 0.6


async def acquire(round_: Round) -> object:
    return await round_.lock.acquire()


async def try_once(round_: Round) -> object:
    return await round_.attempt()


async def try_shortly(round_: Round) -> object:
    return await round_.attempt(wait=SHORT)


async def try_long(round_: Round) -> object:
    return await round_.attempt(wait=10, lease=30)


async def try_for_ever(round_: Round) -> object:
    return await round_.attempt(wait=None)


async def with_lock(round_: Round) -> None:
    async with round_.lock as lease:
        await asyncio.sleep(0)
        lease.check()


async def with_hold(round_: Round) -> None:
    async with round_.lock.hold(wait=10, lease=30):
        await asyncio.sleep(0)


async def with_short_hold(round_: Round) -> None:
    async with round_.lock.hold(wait=SHORT):
        pass


async def with_two_holds(round_: Round) -> None:
    async with round_.lock, round_.lock.hold(wait=10):
        await asyncio.sleep(0)


async def with_several(round_: Round) -> None:
    """The lock of the round is neither the first nor the last of several."""
    names = (f"z {round_.name}", round_.lock, f"a {round_.name}")
    async with round_.mine.multi(*names, owner=round_.owner).hold(wait=10) as lease:
        await asyncio.sleep(0)
        lease.check()


async def release(round_: Round) -> None:
    await round_.lock.release()
