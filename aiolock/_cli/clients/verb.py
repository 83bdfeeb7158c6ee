"""`aiolock clients` on the command line."""

import argparse

from aiolock._cli import options

SUMMARY = "list who holds locks: hosts, processes, and how many"

DESCRIPTION = """\
Lists the clients that hold locks, or did within the last minute and a half: where they run, since when they have been
used, and how much they hold. Clients of Redisson's say no more than their id. It looks at every primary, with SCAN, a
page at a time, and changes nothing.
"""

EXAMPLES = """\
examples:
  aiolock clients
  aiolock clients --json | jq -r '.clients[] | select(.held > 100) | .host'

"""

ENVIRONMENT = options.ENVIRONMENT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    options.add_server(parser, as_json="one JSON object instead of a table")


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    from aiolock._cli.clients.run import run

    return run(parsed)
