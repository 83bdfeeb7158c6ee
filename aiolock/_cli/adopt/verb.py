"""`aiolock adopt` on the command line."""

import argparse

from aiolock._cli.options import add_lease
from aiolock._cli.tickets import options

SUMMARY = "take a lock over by its ticket, and print a new ticket; the old one is of no use any more"

DESCRIPTION = """\
Takes over what the ticket is for, and prints a new ticket. That is a grant: the fencing token is greater, and whoever
has the old ticket can neither renew nor release the lock. The lock stays held for the lease.
"""

EXAMPLES = """\
examples:
  AIOLOCK_TICKET=$(aiolock adopt --lease 600) || exit
  aiolock adopt - --json < ticket | jq -r .ticket

"""

ENVIRONMENT = options.ENVIRONMENT

EXIT_CODES = options.EXIT_CODES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_ticket(parser)
    add_lease(parser, None, "how long the lock stays held (default: as long as with the old ticket)")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.tickets.run import adopt, done

    return done(parsed, adopt)
