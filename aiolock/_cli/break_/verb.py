"""`aiolock break` on the command line."""

import argparse

from aiolock._cli import options
from aiolock._cli.exit_codes import common

SUMMARY = "free a lock from its present holder, and from nobody else"

DESCRIPTION = """\
Shows who holds the lock, asks for confirmation (unless --yes is given), and frees the lock from those holders. If the
lock was granted to someone else in the meantime, that grant is left alone. A key that is not a lock is left alone,
too.

The holder notices the loss with its next renewal, after a third of its lease, or at once if another task of its
client gets the lock. Until then it keeps working, and only the fencing token protects your data from it.
"""

EXAMPLES = """\
examples:
  aiolock break shop:orders:42
  aiolock break shop:orders:42 --token 1795551705616179 --yes
  aiolock break api --client dffaed68

"""

ENVIRONMENT = options.ENVIRONMENT

EXIT_CODES = common("0", "69", "130", "141") | {
    "1": "nothing was freed",
    "2": "wrong usage, the key is not a lock, or the output could not be written",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    parser.add_argument(
        "name", metavar="NAME", type=options.not_a_url, help="the name of the lock, its prefix included"
    )
    parser.add_argument("--token", type=options.number, metavar="N", help="free only the grant that has this token")
    parser.add_argument(
        "--client", metavar="ID", help="free only what this client holds; the beginning of its id will do"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    options.add_server(parser, as_json="one JSON object that says what was done")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.break_.run import run

    return run(parsed)
