"""A process of the test: it leads or keeps a lock, prints a line, and lives on until it is killed."""

import asyncio
import sys
from time import monotonic

from aiolock import LockClient, LockConfig, Term

NAME, LEASE, AT_LEAST = "leader", 1.5, 4.0


def say(*words: object) -> None:
    print(*words, flush=True)


async def lead(locks: LockClient) -> None:
    async def work(term: Term) -> None:
        say("leads", term.token, monotonic())
        await asyncio.sleep(3600)

    await locks.leader(NAME).run(work)


async def keep(locks: LockClient) -> None:
    async with locks.lock(NAME).hold(at_least=AT_LEAST):
        say("holds", monotonic())
        await asyncio.sleep(3600)


async def once(locks: LockClient) -> None:
    async def work() -> None:
        say("runs", monotonic())
        await asyncio.sleep(3600)

    await locks.once(NAME, keep=AT_LEAST, failures="remember").run(work)


async def main(url: str, act: str) -> None:
    async with LockClient.from_url(url, config=LockConfig(lease=LEASE)) as locks:
        await {"lead": lead, "keep": keep, "once": once}[act](locks)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
