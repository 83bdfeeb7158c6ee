"""A verb of the command line."""

from argparse import ArgumentParser, Namespace
from typing import Protocol


class Verb(Protocol):
    """What the module of each verb has: its texts for the help, its arguments, and what it does."""

    SUMMARY: str
    DESCRIPTION: str
    EPILOG: str
    """Examples, and the variables of the environment that the verb reads."""
    EXIT_CODES: dict[str, str]

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments of the verb to *parser*."""

    def run(self, parsed: Namespace) -> int:
        """Run the verb; returns the exit code."""
