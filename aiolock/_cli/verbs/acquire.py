"""`aiolock acquire`: takes a lock, and prints its ticket."""

from argparse import ArgumentParser, Namespace

from aiolock import LockClient
from aiolock._cli import options, taking, tickets
from aiolock._cli.tickets import Client
from aiolock._cli.verb import NO_LOCK, NOT_GRANTED, VerbError, common

SUMMARY = "take a lock for a given time, and print the ticket that renews, hands over and releases it"

DESCRIPTION = """\
Takes the lock, and prints a ticket for it. The lock stays held for the lease, and nothing renews it meanwhile, unless
you do. If the ticket cannot be printed, the lock is released.

For a command that runs while the lock is held, `aiolock run` is safer: it renews the lock, and stops the command before
anyone else can get it.
"""

EPILOG = f"""\
examples:
  AIOLOCK_TICKET=$(aiolock acquire deploy --wait 60 --lease 600) || exit
  export AIOLOCK_TICKET
  ./deploy && aiolock release

{options.ENVIRONMENT}"""

EXIT_CODES = (
    common("0", "69", "130", "141")
    | NO_LOCK
    | {
        "75": "the lock was not granted in time",
        "76": "the lock was lost before its ticket was printed",
    }
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    taking.add_lock(parser)
    options.add_lease(parser, 60.0, "how long the lock stays held (default: 60)")
    options.add_server(parser, as_json="one JSON object, with the ticket and the fencing token")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    taking.check_lock(parsed)
    return tickets.done(parsed, acquire)


async def acquire(parsed: Namespace, redis: Client) -> int:
    """Take the lock, and print its ticket."""
    async with LockClient(redis) as locks:
        lease = await taking.lock_of(locks, parsed, tickets.OWNER).try_acquire(parsed.wait)
        if lease is None:
            raise VerbError(f"lock {parsed.name!r} was not granted within {parsed.wait:g} s", NOT_GRANTED)
        return await tickets.hand_over(parsed, lease, parsed.lease)
