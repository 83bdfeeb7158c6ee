"""`aiolock demo` on the command line."""

import argparse
import sys

SUMMARY = "watch processes share one account file under a lock, while some of them fail"

DESCRIPTION = """\
Processes share one account file under a lock. One of them is killed, one is paused past its lease, one is cancelled.
The verdict at the end is computed from the file. Takes some 20 seconds.
"""

EXAMPLES = """\
examples:
  aiolock demo
  aiolock demo --plain > story.txt

"""

ENVIRONMENT = """\
environment:
  REDIS_URL  use this server, under keys that are deleted at the end; without it, an embedded one is started
  NO_COLOR   plain lines instead of a live picture, as --plain and as when the output is not a terminal

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    parser.add_argument("--plain", action="store_true", help="plain lines instead of a live picture")


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    if sys.platform == "win32":
        print("aiolock: the demo needs the signals of Linux or macOS (SIGSTOP, SIGCONT)", file=sys.stderr)
        return 2
    from aiolock._cli.demo.run import run

    return run(plain=parsed.plain)
