"""A process of a hand-over: it takes and detaches the lock, or adopts it, and says so.

python -m tests.processes.hand_over URL detach       prints the ticket
python -m tests.processes.hand_over URL adopt        reads a ticket; prints the token, then "left"
"""

import asyncio
import sys

from aiolock import LeaseLostError, LockClient, LockConfig

NAME = "handed over"
LEASE = 4.0


def say(words: object) -> None:
    print(words, flush=True)


async def detach(locks: LockClient) -> None:
    async with locks.lock(NAME) as lease:
        ticket = await lease.detach(60)
    say(lease.token)
    say(ticket)
    await asyncio.sleep(60)


async def adopt(locks: LockClient) -> None:
    ticket = sys.stdin.readline()
    try:
        async with locks.adopt(ticket, name=NAME) as lease:
            say(lease.token)
            await asyncio.to_thread(sys.stdin.readline)
            lease.check()
    except LeaseLostError as error:
        say(error.reason)
    say("left")


async def main(url: str, act: str) -> None:
    async with LockClient.from_url(url, config=LockConfig(lease=LEASE)) as locks:
        await {"detach": detach, "adopt": adopt}[act](locks)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
