"""The command line: its verbs, and what it does when output or input end."""

import argparse
import re
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

from aiolock import __version__
from aiolock._cli.break_ import verb as break_
from aiolock._cli.clients import verb as clients
from aiolock._cli.completion import verb as completion
from aiolock._cli.demo import verb as demo
from aiolock._cli.doctor import verb as doctor
from aiolock._cli.exit_codes import TEXT, VerbError
from aiolock._cli.inspect import verb as inspect
from aiolock._cli.ls import verb as ls
from aiolock._cli.output import OutputError, ReaderGoneError, flush
from aiolock._cli.run import verb as run
from aiolock._cli.top import verb as top

# Each has SUMMARY, DESCRIPTION, EXAMPLES, ENVIRONMENT, add_arguments(parser) and run(parsed).
VERBS = {
    "run": run,
    "ls": ls,
    "inspect": inspect,
    "break": break_,
    "top": top,
    "clients": clients,
    "demo": demo,
    "doctor": doctor,
    "completion": completion,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that *arguments* (by default those of the process) name; the exit code."""
    if sys.stdout is None:  # It was closed before we began.
        print("aiolock: standard output is closed", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # A name may have what its encoding has not.
    try:
        parsed = _parsed(arguments)
        exit_code: int = parsed.run(parsed)
    except ReaderGoneError:
        return 141  # As of a program that SIGPIPE ends.
    except OutputError as error:
        print(f"aiolock: the output cannot be written: {error}", file=sys.stderr)
        return 2
    except VerbError as error:
        print(f"aiolock: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("\naiolock: interrupted", file=sys.stderr)
        return 130
    return exit_code


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    # What is behind -- is a command that another program reads: argparse would take any -- in there for its own.
    end = given.index("--") if given[:1] == ["run"] and "--" in given else len(given)
    try:
        parsed, unknown = parser().parse_known_args(given[:end])
        parsed.behind = given[end + 1 :]
    finally:
        flush()  # Where help was wanted, it is printed by now.
    if parsed.run is run.run and parsed.command:  # Its options may be among ours, or among the unknown.
        parsed.parser.error(run.BEHIND)
    if unknown:  # Told by the parser of the command: argparse itself would show the usage of none.
        # A URL may have a password, also behind the = of an option, or at once behind its letter.
        options = [re.split("[=:]", each)[0] for each in unknown if each.startswith("-")]
        parsed.parser.error(f"unrecognized arguments: {' '.join(options)}" if options else "too many arguments")
    return parsed


def parser() -> argparse.ArgumentParser:
    """What reads the arguments, with every verb."""
    raw = argparse.RawDescriptionHelpFormatter
    about = "aiolock: a distributed lock for asyncio, on Redis and Valkey."
    whole = argparse.ArgumentParser("aiolock", description=about, epilog=TEXT, formatter_class=raw, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"aiolock {__version__}")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, verb in VERBS.items():
        epilog = verb.EXAMPLES + verb.ENVIRONMENT + TEXT
        looks: dict[str, Any] = {"description": verb.DESCRIPTION, "epilog": epilog, "formatter_class": raw}
        each = commands.add_parser(name, help=verb.SUMMARY, allow_abbrev=False, **looks)
        verb.add_arguments(each)
        each.set_defaults(run=verb.run, parser=each)
    return whole
