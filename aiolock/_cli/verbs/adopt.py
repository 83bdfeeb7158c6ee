"""`aiolock adopt`: takes the lock of a ticket over, and prints another ticket."""

from argparse import ArgumentParser, Namespace

from aiolock._cli import options, tickets
from aiolock._cli.tickets import Client

SUMMARY = "take a lock over by its ticket, and print a new ticket; the old one is of no use any more"

DESCRIPTION = """\
Takes the lock of the ticket over, and prints a new ticket. That is a grant: the fencing token is greater, and the old
ticket can neither renew nor release the lock. The lock stays held for the lease.
"""

EPILOG = f"""\
examples:
  AIOLOCK_TICKET=$(aiolock adopt --lease 600) || exit
  aiolock adopt - --json < ticket | jq -r .ticket

{tickets.ENVIRONMENT}"""

EXIT_CODES = tickets.EXIT_CODES


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    tickets.add_ticket(parser)
    options.add_lease(parser, None, "how long the lock stays held (default: as long as with the old ticket)")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    return tickets.done(parsed, adopt)


async def adopt(parsed: Namespace, redis: Client) -> int:
    """Take the lock of the ticket over, and print another ticket."""
    keep = parsed.ticket.parts[0].keep if parsed.lease is None else parsed.lease
    async with tickets.client_of(redis, parsed.ticket) as locks:
        return await tickets.hand_over(parsed, await tickets.adopted(locks, parsed.ticket), keep)
