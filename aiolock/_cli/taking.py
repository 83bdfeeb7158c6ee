"""The lock that `acquire` and `run` take: the arguments that name it, and its handle."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from aiolock import AsyncRLock, AsyncSemaphore, Holder, LockClient
from aiolock._cli.failure import refused_as_usage
from aiolock._cli.options import add_name, number, seconds

Handle = AsyncRLock | AsyncSemaphore


def add_lock(parser: ArgumentParser) -> None:
    """Add the arguments: which lock, and how long the verb waits for it; `check_lock` checks them."""
    add_name(parser)
    wait = "how long to wait for the lock; 0 tries once (default: for ever)"
    for_ever = "; leave --wait out to wait for ever"
    parser.add_argument("--wait", type=seconds(0, for_ever), metavar="SECONDS", help=wait)
    kind = "lock; fair: first come, first served; semaphore: one of --permits N permits (default: lock)"
    parser.add_argument("--kind", choices=("lock", "fair", "semaphore"), default="lock", help=kind)
    permits = "how many permits the semaphore has; it counts only if Redis has no number yet"
    parser.add_argument("--permits", type=number, metavar="N", help=permits)


def check_lock(parsed: Namespace) -> None:
    """End with the usage unless the arguments go together."""
    if (parsed.permits is None) is (parsed.kind == "semaphore"):
        parsed.parser.error("--kind semaphore and --permits N belong together")


def lock_of(locks: LockClient, parsed: Namespace, owner: str) -> Handle:
    """The lock, or the semaphore of which one permit is taken."""
    with refused_as_usage():
        if parsed.kind == "semaphore":
            return locks.semaphore(parsed.name, parsed.permits, owner=owner)
        return (locks.fair_lock if parsed.kind == "fair" else locks.lock)(parsed.name, owner=owner)


async def holders_of(lock: Handle) -> Sequence[Holder]:
    """The present holders."""
    if isinstance(lock, AsyncSemaphore):
        return await lock.holders()
    holder = await lock.holder()
    return [] if holder is None else [holder]
