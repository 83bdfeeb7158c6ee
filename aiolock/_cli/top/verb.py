"""`aiolock top` on the command line."""

import argparse

from aiolock._cli import options
from aiolock._cli.exit_codes import common

SUMMARY = "watch the locks: who waits, who holds, and for how long"

DESCRIPTION = """\
Shows the locks that are held, again and again, those with the most waiting clients first. Press q or Ctrl-C to end
it.

The bar shows how much of a lease is left. A lease that is renewed in time stays above two thirds; below half the bar
is red. It prints plain lines if the output is no terminal, or the extra "cli" is not installed. It asks with SCAN,
page by page, and asks less often if the server has many keys.
"""

EXAMPLES = """\
examples:
  aiolock top
  aiolock top 'shop:*' --sort held
  aiolock top --count 1 --plain

"""

ENVIRONMENT = f"""\
{options.ENVIRONMENT.rstrip()}
  NO_COLOR   plain lines, as --plain

"""

ORDERS = ("waiting", "held", "left", "name")

EXIT_CODES = common("2", "69", "141") | {"0": "success, also on q and Ctrl-C"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    pattern = "which names to show: a pattern as KEYS takes it (default: all)"
    parser.add_argument("pattern", metavar="PATTERN", type=options.not_a_url, nargs="?", default="*", help=pattern)
    parser.add_argument("--sort", choices=ORDERS, default="waiting", help="what comes first (default: waiting)")
    interval = "time from one look to the next (default: 2)"
    parser.add_argument("--interval", type=options.seconds(0.1), default=2.0, metavar="SECONDS", help=interval)
    parser.add_argument("--count", type=options.number, metavar="N", help="end after N looks")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    options.add_server(parser, as_json="one JSON object a line for each look")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.top.run import run

    return run(parsed)
