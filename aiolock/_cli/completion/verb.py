"""`aiolock completion` on the command line."""

import argparse

from aiolock._cli import options
from aiolock._cli.completion.script import SHELLS, script
from aiolock._cli.exit_codes import common
from aiolock._cli.output import write

SUMMARY = "print a script that completes commands and options in a shell"

DESCRIPTION = """\
Prints a script for a shell that completes the commands and options of this version. It asks no server.
"""

EXAMPLES = """\
examples:
  source <(aiolock completion bash)                                    # in ~/.bashrc
  aiolock completion zsh > "${fpath[1]}/_aiolock"                      # then a new shell
  aiolock completion fish > ~/.config/fish/completions/aiolock.fish

"""

ENVIRONMENT = ""

EXIT_CODES = common("0", "2", "141")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    parser.add_argument("shell", type=options.not_a_url, choices=SHELLS, help="the shell")


def run(parsed: argparse.Namespace) -> int:
    """Run the verb; returns the exit code."""
    write(script(parsed.shell, parsed.verbs))
    return 0
