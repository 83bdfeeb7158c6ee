"""`aiolock completion` on the command line."""

import argparse

from aiolock._cli.completion.script import SHELLS, script
from aiolock._cli.output import write

SUMMARY = "print a script that completes verbs and options in a shell"

DESCRIPTION = """\
Prints a script for a shell, which completes the verbs and options of this version. It asks no server.
"""

EXAMPLES = """\
examples:
  source <(aiolock completion bash)                                    # in ~/.bashrc
  aiolock completion zsh > "${fpath[1]}/_aiolock"                      # then a new shell
  aiolock completion fish > ~/.config/fish/completions/aiolock.fish

"""

ENVIRONMENT = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    from aiolock._cli.main import VERBS

    write(script(parsed.shell, VERBS))
    return 0
