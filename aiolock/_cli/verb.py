"""A verb of the command line: the form of its module, its exit codes, and its failure."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from math import inf
from typing import Protocol

FAILED, USAGE, UNREACHABLE, NOT_GRANTED, LOST = 1, 2, 69, 75, 76
# Shells have the same exit codes, and add the number of a signal to the last one.
CANNOT_EXECUTE, NOT_FOUND = 126, 127
OF_A_SIGNAL = 128

_COMMON = {
    "0": "success",
    "2": "wrong usage, or the output could not be written",
    "69": "Redis cannot be reached, or refuses a command",
    "130": "interrupted (Ctrl-C)",
    "141": "the reader of the output is gone, as with | head",
}
# For verbs that must not touch a key that is not a lock.
NO_LOCK = {"2": "wrong usage, the key is not a lock, or the output could not be written"}


def common(*codes: str) -> dict[str, str]:
    """The meaning of these *codes* for all verbs that have them."""
    return {code: _COMMON[code] for code in codes}


def text(codes: Mapping[str, str]) -> str:
    """The section of a help text that explains *codes*."""
    width = max(map(len, codes))
    lines = [f"  {code:<{width}}  {codes[code]}" for code in sorted(codes, key=_number)]
    return "\n".join(["exit codes:", *lines, ""])


def _number(code: str) -> float:
    first = code.split(maxsplit=1)[0]
    return int(first) if first.isdecimal() else inf


class VerbError(Exception):
    """The verb cannot do what the arguments ask for; *words* are for people, *code* is the exit code."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


class Verb(Protocol):
    """The module of a verb, with its texts for the help, its arguments, and its action."""

    SUMMARY: str
    DESCRIPTION: str
    EPILOG: str
    """Examples, and the variables of the environment that the verb reads."""
    EXIT_CODES: dict[str, str]

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments of the verb to *parser*."""

    def run(self, parsed: Namespace) -> int:
        """Run the verb; returns the exit code."""
