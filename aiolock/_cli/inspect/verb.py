"""`aiolock inspect` on the command line."""

import argparse

from aiolock._cli import options

SUMMARY = "tell all that is known of one lock"

DESCRIPTION = """\
Tells all that is known of one lock: its kind, its server, who holds it, since when and for how long, its tokens, who
waits, and the line of a fair lock. The name is that of the key: the prefix is part of it. It changes nothing.
"""

EXAMPLES = """\
examples:
  aiolock inspect shop:orders:42
  aiolock inspect shop:orders:42 --json | jq .holds[0].token

"""

ENVIRONMENT = options.ENVIRONMENT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    parser.add_argument("name", metavar="NAME", help="the name of the lock, its prefix included")
    options.add_server(parser, as_json="one JSON object instead of text")


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    from aiolock._cli.inspect.run import run

    return run(parsed)
