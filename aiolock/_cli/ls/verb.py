"""`aiolock ls` on the command line."""

import argparse

from aiolock._cli import options
from aiolock._cli.exit_codes import common

SUMMARY = "list the locks that are held, who holds them, and how many wait"

DESCRIPTION = """\
Lists the locks that are held, also those of Redisson, and the counts of semaphores and latches. It asks every primary
with SCAN, page by page, and changes nothing. A name is shown as its key is called, with the prefix.

WAITING counts the clients that listen for the release; of a fair lock it counts the tasks in line. Semaphores and
latches are plain numbers in Redis. Where neither a waiting client nor a recent use tells them apart, KIND names both.
"""

EXAMPLES = """\
examples:
  aiolock ls
  aiolock ls 'shop:orders:*'
  aiolock ls --json | jq -r '.locks[] | select(.waiting > 0) | .name'

"""

ENVIRONMENT = options.ENVIRONMENT

EXIT_CODES = common("0", "2", "69", "130", "141")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    pattern = "which names to list: a pattern as KEYS takes it (default: all)"
    parser.add_argument("pattern", metavar="PATTERN", type=options.not_a_url, nargs="?", default="*", help=pattern)
    options.add_server(parser, as_json="one JSON object instead of a table")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.ls.run import run

    return run(parsed)
