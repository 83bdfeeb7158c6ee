"""`aiolock renew` on the command line."""

import argparse

from aiolock._cli.options import add_lease
from aiolock._cli.tickets import options

SUMMARY = "let a lock stay held for longer, by its ticket"

DESCRIPTION = """\
Lets what the ticket is for stay held for the lease from now on, or longer. The ticket stays the same.
"""

EXAMPLES = """\
examples:
  aiolock renew || exit           # the ticket is in AIOLOCK_TICKET
  aiolock renew - --lease 600 < ticket

"""

ENVIRONMENT = options.ENVIRONMENT

EXIT_CODES = options.EXIT_CODES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_ticket(parser)
    add_lease(parser, None, "how long from now (default: as long as the ticket was made for)")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.tickets.run import done, renew

    return done(parsed, renew)
