"""`aiolock doctor`: checks whether a server is fit to keep locks."""

from argparse import ArgumentParser, Namespace
from contextlib import suppress

from aiolock._cli import options
from aiolock._cli.output import ReaderGoneError, write
from aiolock._cli.servers import finished
from aiolock._cli.verb import FAILED, USAGE, VerbError, common
from aiolock._config import LEAST_LEASE

SUMMARY = "check whether a server is fit to keep locks"

DESCRIPTION = """\
Checks whether a server is fit to keep locks: its settings, what it does with a throw-away lock and a message, and how
fast it answers. It checks every primary of a cluster, and the primary that a Sentinel names. Several URLs are checked
as a quorum: each server, and whether the servers are independent. It takes about two seconds and leaves no key
behind.
"""

EPILOG = """\
examples:
  aiolock doctor redis://localhost
  aiolock doctor redis://sentinel-1:26379 --primary orders
  aiolock doctor --lease 10 --json

environment:
  REDIS_URL  the server, when no URL is given. A password in a URL argument can be seen in the list of processes;
             one in REDIS_URL cannot
"""

EXIT_CODES = common("2", "130") | {
    "0": "the server is fit to keep locks; there may be warnings",
    "1": "it is not fit, or does not answer",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    url = f"redis://, rediss:// or unix://, as redis-py reads it; by default REDIS_URL, else {options.DEFAULT_URL}"
    parser.add_argument("url", type=options.not_empty, nargs="*", metavar="URL", help=url)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    lease = "the lease of your locks (default: 30)"
    parser.add_argument("--lease", type=options.seconds(LEAST_LEASE), default=30.0, metavar="SECONDS", help=lease)
    primary = "which primary to check, if a Sentinel watches several"
    parser.add_argument("--primary", type=options.not_empty, metavar="NAME", help=primary)
    parser.add_argument("--prefix", default="", help="the prefix of your locks, if the user may use no other keys")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    from aiolock._cli.doctor.report import report_on, report_on_quorum

    urls = parsed.url or [options.usual_url()]
    if len(urls) == 1:
        report = finished(report_on(urls[0], parsed.lease, parsed.prefix, parsed.primary))
    elif parsed.primary is None:
        report = finished(report_on_quorum(urls, parsed.lease, parsed.prefix))
    else:
        raise VerbError("--primary says which primary of a Sentinel is meant: several URLs are a quorum", USAGE)
    # A reader that is gone may still want the exit code.
    with suppress(ReaderGoneError):
        write(report.json() if parsed.json else report.text())
    return 0 if report.fit else FAILED
