"""The command line: its verbs, and what it does when output or input end."""

import argparse
import sys
from collections.abc import Sequence

from aiolock import __version__
from aiolock._cli.demo import verb as demo
from aiolock._cli.doctor import verb as doctor
from aiolock._cli.output import OutputError, ReaderGoneError, flush

# Each has SUMMARY, DESCRIPTION, ENVIRONMENT, add_arguments(parser) and run(parsed).
_VERBS = {"demo": demo, "doctor": doctor}

_EXIT_CODES = """\
exit codes:
  0    all is well
  1    demo: a deposit was lost, or a fault that belongs to it did not happen
       doctor: an error was found: the server is not fit to keep locks, or does not answer
  2    wrong usage, or the command could not run (for the demo also if there is no server), or could not write
  130  interrupted (Ctrl-C); what was started is ended
  141  whoever read the output has gone; what was started is ended. The doctor's stays 0 or 1
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
    for name, verb in _VERBS.items():
        epilog = verb.ENVIRONMENT + _EXIT_CODES
        each = commands.add_parser(
            name, help=verb.SUMMARY, description=verb.DESCRIPTION, epilog=epilog, formatter_class=raw
        )
        verb.add_arguments(each)
        each.set_defaults(run=verb.run, parser=each)
    return parser
