"""The command: its options, and what it does when nobody reads its output any more."""

import argparse
import os
import sys

DESCRIPTION = """\
Several processes share one account file under a lock. One of them is killed, one is paused for longer than its lease,
and one is cancelled. The verdict at the end is computed from the file. It takes about 20 seconds.
"""

MORE = """\
environment:
  REDIS_URL  use this server, under keys that are deleted at the end; without it, an embedded one is started
  NO_COLOR   plain lines instead of a live picture, as --plain and as when the output is not a terminal

exit codes:
  0    success
  1    a deposit was lost, or a fault of the story did not happen
  2    wrong usage, or no server could be started or reached
  130  interrupted
  141  the reader of the output has gone
"""


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m examples.demo",
        description=DESCRIPTION,
        epilog=MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--plain", action="store_true", help="plain lines instead of a live picture")
    parsed = parser.parse_args()
    if sys.platform == "win32":
        print("demo: it needs the signals of Linux or macOS (SIGSTOP, SIGCONT)", file=sys.stderr)
        return 2
    from examples.demo.run import run

    try:
        return run(plain=parsed.plain)
    except BrokenPipeError:
        # The interpreter writes what is left when it ends, and must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


if __name__ == "__main__":
    sys.exit(main())
