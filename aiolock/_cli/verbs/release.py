"""`aiolock release`: releases the lock of a ticket."""

from argparse import ArgumentParser, Namespace

from aiolock._cli import tickets
from aiolock._cli.tickets import Client

SUMMARY = "release a lock by its ticket"

DESCRIPTION = """\
Releases the lock of the ticket, and wakes a waiter. The ticket is of no use any more.
"""

EPILOG = f"""\
examples:
  aiolock release                 # the ticket is in AIOLOCK_TICKET
  aiolock release - < ticket

{tickets.ENVIRONMENT}"""

EXIT_CODES = tickets.EXIT_CODES


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    tickets.add_ticket(parser)


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    return tickets.done(parsed, release)


async def release(parsed: Namespace, redis: Client) -> int:
    """Release the lock of the ticket."""
    async with tickets.client_of(redis, parsed.ticket) as locks:
        await (await tickets.adopted(locks, parsed.ticket)).release()
    return tickets.confirm(parsed, parsed.ticket)
