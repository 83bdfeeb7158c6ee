"""`aiolock inspect` on the command line."""

import argparse

from aiolock._cli import options
from aiolock._cli.exit_codes import common

SUMMARY = "show everything that is known about one lock"

DESCRIPTION = """\
Shows everything that is known about one lock: kind, server, holders, since when and for how long they hold it,
tokens, who waits, and the line of a fair lock. Give the name as its key is called, with the prefix. It changes
nothing.
"""

EXAMPLES = """\
examples:
  aiolock inspect shop:orders:42
  aiolock inspect shop:orders:42 --json | jq .holds[0].token

"""

ENVIRONMENT = options.ENVIRONMENT

EXIT_CODES = common("2", "69", "130", "141") | {"0": "somebody holds the lock", "1": "nobody holds it"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    parser.add_argument(
        "name", metavar="NAME", type=options.not_a_url, help="the name of the lock, its prefix included"
    )
    options.add_server(parser, as_json="one JSON object instead of text")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.inspect.run import run

    return run(parsed)
