"""`aiolock clients` on the command line."""

import argparse

from aiolock._cli import options
from aiolock._cli.exit_codes import common

SUMMARY = "list the clients that hold locks: host, process, and how many locks"

DESCRIPTION = """\
Lists the clients that hold locks: where they run, and what they hold. Of a client of Redisson only the id is known.
It asks every primary with SCAN, page by page, and changes nothing.
"""

EXAMPLES = """\
examples:
  aiolock clients
  aiolock clients --json | jq -r '.clients[] | select(.held > 100) | .host'

"""

ENVIRONMENT = options.ENVIRONMENT

EXIT_CODES = common("0", "2", "69", "130", "141")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_server(parser, as_json="one JSON object instead of a table")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.clients.run import run

    return run(parsed)
