"""`aiolock release` on the command line."""

import argparse

from aiolock._cli.tickets import options

SUMMARY = "release a lock by its ticket"

DESCRIPTION = """\
Releases what the ticket is for, and wakes a waiter. The ticket is of no use any more.
"""

EXAMPLES = """\
examples:
  aiolock release                 # the ticket is in AIOLOCK_TICKET
  aiolock release - < ticket

"""

ENVIRONMENT = options.ENVIRONMENT

EXIT_CODES = options.EXIT_CODES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_ticket(parser)


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.tickets.run import done, release

    return done(parsed, release)
