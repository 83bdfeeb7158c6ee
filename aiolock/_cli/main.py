"""The command line: its verbs, and its behaviour when output or input end."""

import logging
import os
import re
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from io import TextIOWrapper

from aiolock import __version__
from aiolock._cli import options
from aiolock._cli.output import OutputError, ReaderGoneError, flush, tell, write_error
from aiolock._cli.verb import USAGE, Verb, VerbError, text
from aiolock._cli.verbs import (
    acquire,
    adopt,
    break_,
    clients,
    completion,
    doctor,
    inspect,
    ls,
    release,
    renew,
    run,
    top,
)

VERBS: dict[str, Verb] = {
    "run": run,
    "acquire": acquire,
    "renew": renew,
    "adopt": adopt,
    "release": release,
    "ls": ls,
    "inspect": inspect,
    "break": break_,
    "top": top,
    "clients": clients,
    "doctor": doctor,
    "completion": completion,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that *arguments* (by default those of the process) name; returns the exit code."""
    if sys.stdout is None:
        tell("standard output is closed")
        return 2
    if sys.stderr is None:
        # `print` would write to standard output instead.
        sys.stderr = open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        # A name may have characters that this encoding lacks.
        sys.stdout.reconfigure(errors="replace")
    # Each verb reports its own errors.
    logging.getLogger("aiolock").addHandler(logging.NullHandler())
    try:
        parsed = _parsed(arguments)
        exit_code: int = parsed.run(parsed)
    except ReaderGoneError:
        # A program that SIGPIPE ends has the same exit code.
        return 141
    except OutputError as error:
        tell(f"the output cannot be written: {error}")
        return 2
    except VerbError as error:
        tell(str(error))
        return error.code
    except KeyboardInterrupt:
        write_error("\naiolock: interrupted")
        return 130
    return exit_code


def _parsed(arguments: Sequence[str] | None) -> Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    # The command after -- is for another program: argparse would interpret any further -- in it.
    end = given.index("--") if given[:1] == ["run"] and "--" in given else len(given)
    if not given:
        parser().print_help(sys.stderr)
        sys.exit(USAGE)
    try:
        parsed, unknown = parser().parse_known_args(given[:end])
        parsed.behind = given[end + 1 :]
    finally:
        # If help was asked for, it has been printed.
        flush()
    # The command's options may be among ours, or among the unknown ones.
    if parsed.run is run.run and parsed.command:
        parsed.parser.error(run.BEHIND)
    if any(map(options.is_url, unknown)):
        parsed.parser.error(options.NO_URL_HERE)
    # The verb's parser reports them: argparse itself would show the usage without a verb.
    if unknown:
        # A URL may contain a password; it may also stand after the = of an option, or right after its letter.
        named = [re.split("[=:]", each)[0] for each in unknown if each.startswith("-")]
        parsed.parser.error(f"unrecognized arguments: {' '.join(named)}" if named else "too many arguments")
    return parsed


def parser() -> ArgumentParser:
    """The parser of the arguments, with every verb."""
    raw = RawDescriptionHelpFormatter
    about = "aiolock: a distributed lock for asyncio, on Redis and Valkey."
    more = "aiolock COMMAND --help shows the options, examples and exit codes of a command."
    whole = ArgumentParser("aiolock", description=about, epilog=more, formatter_class=raw, allow_abbrev=False)
    whole.add_argument("--version", action="version", version=f"aiolock {__version__}")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, verb in VERBS.items():
        each = commands.add_parser(
            name,
            help=verb.SUMMARY,
            description=verb.DESCRIPTION,
            epilog=f"{verb.EPILOG}\n{text(verb.EXIT_CODES)}",
            formatter_class=raw,
            allow_abbrev=False,
        )
        verb.add_arguments(each)
        each.set_defaults(run=verb.run, parser=each, verbs=VERBS)
    return whole
