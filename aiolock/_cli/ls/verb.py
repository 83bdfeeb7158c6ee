"""`aiolock ls` on the command line."""

import argparse

from aiolock._cli import options

SUMMARY = "list the locks that are held, who holds them and who waits"

DESCRIPTION = """\
Lists the locks that are held, those of Redisson's included, and what semaphores and latches count. It looks at every
primary, with SCAN, a page at a time, and changes nothing. A name is that of the key: the prefix is part of it.

Who waits is counted in clients that listen for the release; a fair lock has its line. A semaphore and a latch are
numbers, of which only who waits or took permits lately tells them apart.
"""

EXAMPLES = """\
examples:
  aiolock ls
  aiolock ls 'shop:orders:*'
  aiolock ls --json | jq -r '.locks[] | select(.waiting > 0) | .name'

"""

ENVIRONMENT = options.ENVIRONMENT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    pattern = "names to list, as of KEYS (default: all)"
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="*", help=pattern)
    options.add_server(parser, as_json="one JSON object instead of a table")


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    from aiolock._cli.ls.run import run

    return run(parsed)
