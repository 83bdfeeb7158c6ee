"""`aiolock top` on the command line."""

import argparse

from aiolock._cli import options

SUMMARY = "watch the locks: what is waited for, who holds it, for how long"

DESCRIPTION = """\
Shows the locks that are held, again and again, those first that most wait for. q or Ctrl-C ends it. The bar shows how
much is left of a lease: one that is renewed stays above two thirds, and is red when it has been below half. Where the
output is no terminal, or the extra "cli" is not installed, it prints plain lines. It looks with SCAN, a page at a
time, and where that takes long, less often.
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    pattern = "names to show, as of KEYS (default: all)"
    parser.add_argument("pattern", metavar="PATTERN", nargs="?", default="*", help=pattern)
    parser.add_argument("--sort", choices=ORDERS, default="waiting", help="what comes first (default: waiting)")
    interval = "from one look to the next (default: 2)"
    parser.add_argument("--interval", type=options.seconds(0.1), default=2.0, metavar="SECONDS", help=interval)
    parser.add_argument("--count", type=options.number, metavar="N", help="end after so many looks")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    options.add_server(parser, as_json="one JSON object a line for each look")


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    from aiolock._cli.top.run import run

    return run(parsed)
