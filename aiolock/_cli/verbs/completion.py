"""`aiolock completion`: a script for each shell, made from the arguments that the verbs add to their parsers."""

import re
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from aiolock._cli import options
from aiolock._cli.output import write
from aiolock._cli.verb import Verb, common

SUMMARY = "print a script that completes commands and options in a shell"

DESCRIPTION = """\
Prints a script for a shell that completes the commands and options of this version. It asks no server.
"""

EPILOG = """\
examples:
  source <(aiolock completion bash)                                    # in ~/.bashrc
  aiolock completion zsh > "${fpath[1]}/_aiolock"                      # then a new shell
  aiolock completion fish > ~/.config/fish/completions/aiolock.fish
"""

EXIT_CODES = common("0", "2", "141")

SHELLS = ("bash", "zsh", "fish")

_BASH = """\
_aiolock() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} at
    COMPREPLY=()
    for ((at = 2; at < COMP_CWORD; at++)); do
        [[ ${COMP_WORDS[at]} == -- ]] && { compopt -o default; return; }
    done
    case ${COMP_WORDS[1]}:$prev in
%(values)s
    esac
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W '%(verbs)s' -- "$cur"))
        return
    fi
    case ${COMP_WORDS[1]} in
%(options)s
    esac
}
complete -F _aiolock aiolock"""

_ZSH = """\
#compdef aiolock
_aiolock() {
    local -a verbs
    verbs=(
%(verbs)s
    )
    if ((CURRENT == 2)); then
        _describe 'verb' verbs
        return
    fi
    local verb=$words[2]
    shift words
    ((CURRENT--))
    case $verb in
%(options)s
    esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _aiolock "$@"; else compdef _aiolock aiolock; fi"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    parser.add_argument("shell", type=options.not_a_url, choices=SHELLS, help="the shell")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    write(script(parsed.shell, parsed.verbs))
    return 0


def script(shell: str, verbs: Mapping[str, Verb]) -> str:
    """The script for *shell*, for all *verbs*."""
    known = {name: Recorder(verb) for name, verb in verbs.items()}
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](known)


class Recorder(ArgumentParser):
    """Records the arguments of *verb* in *actions*: argparse has no public way to ask."""

    def __init__(self, verb: Verb) -> None:
        self.actions: list[Action] = []
        super().__init__()
        verb.add_arguments(self)
        self.summary: str = _first(verb.SUMMARY)
        self.options: list[Action] = [each for each in self.actions if each.option_strings]
        words = [each for each in self.actions if not each.option_strings]
        self.choices: str = " ".join(map(_choices, words)).strip()
        """What the first argument may be, if that is known."""
        self.runs: bool = any(each.dest == "command" for each in words)
        """Whether a command of the user follows."""

    def add_argument(self, *names: Any, **settings: Any) -> Action:
        """The same as `argparse.ArgumentParser.add_argument`."""
        action = super().add_argument(*names, **settings)
        self.actions.append(action)
        return action


def _choices(action: Action) -> str:
    return " ".join(action.choices or ())


def _takes_a_value(option: Action) -> bool:
    return option.nargs != 0


def _first(said: str | None) -> str:
    """The first part of a help text, without characters that a shell would interpret."""
    plain = re.sub(r" \(default: [^)]*\)", "", said or "")
    return re.sub(r"[^\w ,()./=%-]", "", re.split(r"[;:]", plain)[0])


def _bash(verbs: Mapping[str, Recorder]) -> str:
    values, words = [], []
    for name, verb in verbs.items():
        for option in filter(_takes_a_value, verb.options):
            found = f"COMPREPLY=($(compgen -W '{_choices(option)}' -- \"$cur\"))" if option.choices else ":"
            values += [f"        {name}:{each}) {found}; return ;;" for each in option.option_strings]
        first = [verb.choices] if verb.choices else []
        every = " ".join([*first, *(each for option in verb.options for each in option.option_strings)])
        words.append(f"        {name}) COMPREPLY=($(compgen -W '{every}' -- \"$cur\")) ;;")
    return _BASH % {"values": "\n".join(values), "verbs": " ".join(verbs), "options": "\n".join(words)}


def _zsh(verbs: Mapping[str, Recorder]) -> str:
    lines = []
    for name, verb in verbs.items():
        specs = [
            f"'{each}[{_first(option.help)}]{_value(option)}'"
            for option in verb.options
            for each in option.option_strings
        ]
        if verb.choices:
            specs.append(f"'1:{name}:({verb.choices})'")
        of_a_command = ["'1:name:()'", "'2:command:_command_names -e'", "'*:argument:_files'"]
        specs += of_a_command if verb.runs else ["'*:name:()'"]
        lines.append(f"        {name}) _arguments {' '.join(specs)} ;;")
    listed = "\n".join(f"        '{name}:{verb.summary}'" for name, verb in verbs.items())
    return _ZSH % {"verbs": listed, "options": "\n".join(lines)}


def _value(option: Action) -> str:
    if not _takes_a_value(option):
        return ""
    return f":value:({_choices(option)})" if option.choices else ":value:"


def _fish(verbs: Mapping[str, Recorder]) -> str:
    lines = ["complete -c aiolock -f"]
    for name, verb in verbs.items():
        lines.append(f"complete -c aiolock -n __fish_use_subcommand -a {name} -d '{verb.summary}'")
        within = f"complete -c aiolock -n '__fish_seen_subcommand_from {name}'"
        for option in verb.options:
            strings = option.option_strings
            names = " ".join(f"-l {each[2:]}" if each[:2] == "--" else f"-s {each[1:]}" for each in strings)
            choices = f" -a '{_choices(option)}'" if option.choices else ""
            value = f" -x{choices}" if _takes_a_value(option) else ""
            lines.append(f"{within} {names}{value} -d '{_first(option.help)}'")
        if verb.choices:
            lines.append(f"{within} -a '{verb.choices}'")
        if verb.runs:
            lines.append(f"{within} -a '(__fish_complete_subcommand --fcs-skip=3)'")
    return "\n".join(lines)
