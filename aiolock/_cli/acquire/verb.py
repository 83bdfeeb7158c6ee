"""`aiolock acquire` on the command line."""

import argparse

from aiolock._cli import options
from aiolock._cli.exit_codes import common

SUMMARY = "take a lock for a given time, and print the ticket that renews, hands over and releases it"

DESCRIPTION = """\
Takes the lock, and prints a ticket for it. The lock stays held for the lease, and nothing renews it meanwhile, unless
you do. If the ticket cannot be printed, the lock is released.

For a command that runs while the lock is held, `aiolock run` is safer: it renews the lock, and stops the command before
anyone else can get it.
"""

EXAMPLES = """\
examples:
  AIOLOCK_TICKET=$(aiolock acquire deploy --wait 60 --lease 600) || exit
  export AIOLOCK_TICKET
  ./deploy && aiolock release

"""

ENVIRONMENT = options.ENVIRONMENT

EXIT_CODES = common("0", "2", "69", "130", "141") | {
    "75": "the lock was not granted in time",
    "76": "the lock was lost before its ticket was printed",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_lock(parser)
    options.add_lease(parser, 60.0, "how long the lock stays held (default: 60)")
    options.add_server(parser, as_json="one JSON object, with the ticket and the fencing token")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    options.check_lock(parsed)
    from aiolock._cli.tickets.run import acquire, done

    return done(parsed, acquire)
