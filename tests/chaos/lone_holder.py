"""A process that holds a lock until it loses it, and prints each event on a line of its own."""

import asyncio
import sys
from typing import Any

from aiolock import Lease, LeaseLostError, LockClient, LockConfig, NotHeldError


def say(*words: Any) -> None:
    print(*words, flush=True)


async def main(url: str, name: str, lease: float) -> None:
    async with LockClient.from_url(url, config=LockConfig(lease=lease)) as locks:
        lock = locks.lock(name)
        leases: list[Lease] = []
        try:
            async with lock as held:
                leases.append(held)
                await work(held.token)
        except LeaseLostError as error:
            task = asyncio.current_task()
            say("lost", error.reason, task and task.cancelling(), *(held.lost.is_set() for held in leases))
        try:
            await lock.release()
        except NotHeldError:
            say("not held")


async def work(token: int) -> None:
    say("held", token)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        say("cancelled")
        raise
    finally:
        await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        say("rolled back")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
