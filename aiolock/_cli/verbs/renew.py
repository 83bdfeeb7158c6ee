"""`aiolock renew`: lets the lock of a ticket stay held for longer."""

from argparse import ArgumentParser, Namespace

from aiolock._cli import options, tickets
from aiolock._cli.tickets import Client

SUMMARY = "let a lock stay held for longer, by its ticket"

DESCRIPTION = """\
Lets the lock of the ticket stay held for the lease from now on, or longer. The ticket stays the same.
"""

EPILOG = f"""\
examples:
  aiolock renew || exit           # the ticket is in AIOLOCK_TICKET
  aiolock renew - --lease 600 < ticket

{tickets.ENVIRONMENT}"""

EXIT_CODES = tickets.EXIT_CODES


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    tickets.add_ticket(parser)
    options.add_lease(parser, None, "how long from now (default: as long as the ticket was made for)")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    return tickets.done(parsed, renew)


async def renew(parsed: Namespace, redis: Client) -> int:
    """Let the lock of the ticket stay held for longer."""
    async with tickets.client_of(redis, parsed.ticket) as locks:
        left = await locks._detached(parsed.ticket, tickets.OWNER).prolong(parsed.lease)
    return tickets.confirm(parsed, parsed.ticket, left=left)
