"""`aiolock doctor` on the command line."""

import argparse

from aiolock._cli import options

SUMMARY = "check whether a server is fit to keep locks"

DESCRIPTION = """\
Checks whether a server is fit to keep locks: what it says of itself, and what it does when a throw-away lock is taken
and a message sent, and how soon it answers. Of a cluster, every primary is checked, and of a Sentinel the one
that it names. Several servers are checked as a quorum: each of them, and whether they are independent. Takes some
two seconds, and leaves no key behind.
"""

EXAMPLES = """\
examples:
  aiolock doctor redis://localhost
  aiolock doctor redis://sentinel-1:26379 --primary orders
  aiolock doctor --lease 10 --json

"""

ENVIRONMENT = """\
environment:
  REDIS_URL  the server, when no URL is given: a password there does not show up in the list of processes

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    url = f"redis://, rediss:// or unix://, as redis-py reads it; by default REDIS_URL, else {options.DEFAULT_URL}"
    parser.add_argument("url", nargs="*", metavar="URL", help=url)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    lease = "the lease that you will use (default: 30)"
    parser.add_argument("--lease", type=float, default=30.0, metavar="SECONDS", help=lease)
    parser.add_argument("--primary", metavar="NAME", help="which one to check, where a Sentinel watches several")
    parser.add_argument("--prefix", default="", help="the prefix of your locks, for a user who may use no other keys")


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    from aiolock._cli.doctor.run import run

    urls = parsed.url or [options.usual_url()]
    return run(urls, lease=parsed.lease, prefix=parsed.prefix, primary=parsed.primary, as_json=parsed.json)
