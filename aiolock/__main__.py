"""The command line: `python -m aiolock`, or `aiolock` where the package is installed."""

import argparse
import sys
from collections.abc import Sequence

from aiolock import __version__

_EXIT_CODES = """\
exit codes:
  0    all is well
  1    demo: a deposit was lost, or a fault that belongs to it did not happen
  2    wrong usage, or the command could not run: no server, say
  130  interrupted (Ctrl-C); what was started is ended
"""

_DEMO = """\
Processes share one account file under a lock. One of them is killed, one is paused past its lease, one is cancelled.
The verdict at the end is computed from the file. Takes some 20 seconds.
"""

_ENVIRONMENT = """\
environment:
  REDIS_URL  use this server, under keys that are deleted at the end; without it, an embedded one is started
  NO_COLOR   plain lines instead of a live picture, as --plain and as when the output is not a terminal

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that *arguments* (by default those of the process) name; the exit code."""
    parsed = _parser().parse_args(arguments)
    return _demo(parsed.plain)


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    about = "aiolock: a distributed lock for asyncio, on Redis and Valkey."
    parser = argparse.ArgumentParser("aiolock", description=about, epilog=_EXIT_CODES, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"aiolock {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="watch processes share one account file under a lock, while some of them fail",
        description=_DEMO,
        epilog=_ENVIRONMENT + _EXIT_CODES,
        formatter_class=raw,
    )
    demo.add_argument("--plain", action="store_true", help="plain lines instead of a live picture")
    return parser


def _demo(plain: bool) -> int:
    if sys.platform == "win32":
        print("aiolock: the demo needs the signals of Linux or macOS (SIGSTOP, SIGCONT)", file=sys.stderr)
        return 2
    from aiolock._demo.run import run

    return run(plain=plain)


if __name__ == "__main__":
    sys.exit(main())
