"""The common parts of the verbs about tickets on the command line."""

import argparse
import os
import sys

from aiolock._cli import options
from aiolock._cli.exit_codes import USAGE, VerbError, common

VARIABLE = "AIOLOCK_TICKET"

ENVIRONMENT = f"""\
{options.ENVIRONMENT.rstrip()}
  {VARIABLE}  the ticket, when there is none among the arguments

"""

EXIT_CODES = common("0", "2", "69", "130", "141") | {
    "76": "the ticket is of no use any more: it was used, its time is over, or the lock was freed by force",
}


def add_ticket(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the ticket and the server to *parser*."""
    what = (
        f"what acquire, adopt or lease.detach() has given; - reads standard input; by default {VARIABLE}. An argument "
        "can be seen in the list of processes"
    )
    parser.add_argument("ticket", metavar="TICKET", nargs="?", type=options.not_a_url, help=what)
    options.add_server(parser, as_json="one JSON object")


def ticket_of(parsed: argparse.Namespace) -> str:
    """The ticket that the arguments, standard input or the environment has."""
    if parsed.ticket == "-":
        return _standard_input()
    ticket = parsed.ticket or os.environ.get(VARIABLE)
    if not ticket:
        raise VerbError(f"a ticket is wanted: as an argument, in {VARIABLE}, or on standard input with -", USAGE)
    return str(ticket)


def _standard_input() -> str:
    if sys.stdin is None:  # It was closed before the process began.
        raise VerbError(f"standard input is closed: give the ticket there, or in {VARIABLE}", USAGE)
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise VerbError("standard input has no ticket: it is no text", USAGE) from error
