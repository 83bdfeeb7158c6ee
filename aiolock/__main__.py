"""The command line: `python -m aiolock`, or `aiolock` where the package is installed."""

import argparse
import os
import sys
from collections.abc import Sequence

from aiolock import __version__
from aiolock._output import OutputError, ReaderGoneError, flush

_EXIT_CODES = """\
exit codes:
  0    all is well
  1    demo: a deposit was lost, or a fault that belongs to it did not happen
       doctor: an error was found: the server is not fit to keep locks, or does not answer
  2    wrong usage, or the command could not run (for the demo also if there is no server), or could not write
  130  interrupted (Ctrl-C); what was started is ended
  141  whoever read the output has gone; what was started is ended. The doctor's stays 0 or 1
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


_DOCTOR = """\
Checks whether a server is fit to keep locks: what it says of itself, and what it does when a throw-away lock is taken
and a message sent, and how soon it answers. Of a cluster, every primary is checked, and of a Sentinel the one
that it names. Takes some two seconds, and leaves
no key behind.
"""

_DOCTOR_ENVIRONMENT = """\
environment:
  REDIS_URL  the server, when no URL is given: a password there does not show up in the list of processes

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that *arguments* (by default those of the process) name; the exit code."""
    if sys.stdout is None:  # It was closed before we began.
        print("aiolock: standard output is closed", file=sys.stderr)
        return 2
    try:
        parsed = _parsed(arguments)
        exit_code: int = parsed.run(parsed)
    except ReaderGoneError:
        return 141  # As of a program that SIGPIPE ends.
    except OutputError as error:
        print(f"aiolock: the output cannot be written: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\naiolock: interrupted", file=sys.stderr)
        return 130
    return exit_code


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    try:
        parsed, unknown = _parser().parse_known_args(arguments)
    finally:
        flush()  # Where help was wanted, it is printed by now.
    if unknown:  # Told by the parser of the command: argparse itself would show the usage of none.
        options = [each for each in unknown if each.startswith("-")]  # A second URL may have a password.
        parsed.parser.error(f"unrecognized arguments: {' '.join(options)}" if options else "too many arguments")
    return parsed


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
    demo.set_defaults(run=_demo, parser=demo)
    doctor = commands.add_parser(
        "doctor",
        help="check whether a server is fit to keep locks",
        description=_DOCTOR,
        epilog=_DOCTOR_ENVIRONMENT + _EXIT_CODES,
        formatter_class=raw,
    )
    _add_doctor_arguments(doctor)
    doctor.set_defaults(run=_doctor, parser=doctor)
    return parser


def _add_doctor_arguments(doctor: argparse.ArgumentParser) -> None:
    url = "redis://, rediss:// or unix://, as redis-py reads it; by default REDIS_URL, else redis://localhost"
    doctor.add_argument("url", nargs="?", metavar="URL", help=url)
    doctor.add_argument("--json", action="store_true", help="one JSON object instead of text")
    doctor.add_argument("--lease", type=float, default=30.0, metavar="SECONDS", help="the lease that you will use (30)")
    doctor.add_argument("--primary", metavar="NAME", help="which one to check, where a Sentinel watches several")
    doctor.add_argument("--prefix", default="", help="the prefix of your locks, for a user who may use no other keys")


def _demo(parsed: argparse.Namespace) -> int:
    if sys.platform == "win32":
        print("aiolock: the demo needs the signals of Linux or macOS (SIGSTOP, SIGCONT)", file=sys.stderr)
        return 2
    from aiolock._demo.run import run

    return run(plain=parsed.plain)


def _doctor(parsed: argparse.Namespace) -> int:
    from aiolock._doctor.run import run

    url = parsed.url or os.environ.get("REDIS_URL") or "redis://localhost"
    return run(url, lease=parsed.lease, prefix=parsed.prefix, primary=parsed.primary, as_json=parsed.json)


if __name__ == "__main__":
    sys.exit(main())
