"""A completion script for each shell, made from the arguments that the verbs add to their parsers."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHELLS = ("bash", "zsh", "fish")

_LINE_OF_BASH = """\
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


@dataclass(frozen=True, slots=True)
class _Option:
    """One option: its *names*, its help, whether it takes a value, and its possible values if there are only some."""

    names: tuple[str, ...]
    help: str
    takes: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Verb:
    """One verb; *choices* are the possible first arguments, and *runs* says that a command of the user's follows."""

    help: str
    options: tuple[_Option, ...]
    choices: tuple[str, ...]
    runs: bool


def script(shell: str, verbs: Mapping[str, Any]) -> str:
    """The script for *shell*, for all *verbs*."""
    make = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return make({name: _verb(verb) for name, verb in verbs.items()})


class Recorder(argparse.ArgumentParser):
    """Records the arguments that are added to it, in *actions*: argparse has no public way to ask."""

    def __init__(self) -> None:
        self.actions: list[argparse.Action] = []
        super().__init__()

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """The same as `argparse.ArgumentParser.add_argument`."""
        action = super().add_argument(*names, **settings)
        self.actions.append(action)
        return action


def _verb(verb: Any) -> _Verb:
    recorder = Recorder()
    verb.add_arguments(recorder)
    named = [each for each in recorder.actions if each.option_strings]
    words = [each for each in recorder.actions if not each.option_strings]
    options = tuple(
        _Option(tuple(each.option_strings), _first(each.help), each.nargs != 0, tuple(each.choices or ()))
        for each in named
    )
    choices = tuple(str(choice) for each in words for choice in each.choices or ())
    return _Verb(verb.SUMMARY, options, choices, any(each.dest == "command" for each in words))


def _first(help_: str | None) -> str:
    """The first part of a help text, without characters that a shell would interpret."""
    said = re.sub(r" \(default: [^)]*\)", "", help_ or "")
    return re.sub(r"[^\w ,()./=%-]", "", re.split(r"[;:]", said)[0])


def _bash(verbs: Mapping[str, _Verb]) -> str:
    values, options = [], []
    for name, verb in verbs.items():
        for option in verb.options:
            if option.takes:
                found = f"COMPREPLY=($(compgen -W '{' '.join(option.choices)}' -- \"$cur\"))" if option.choices else ":"
                values += [f"        {name}:{each}) {found}; return ;;" for each in option.names]
        words = " ".join([*verb.choices, *(each for option in verb.options for each in option.names)])
        options.append(f"        {name}) COMPREPLY=($(compgen -W '{words}' -- \"$cur\")) ;;")
    return _LINE_OF_BASH % {"values": "\n".join(values), "verbs": " ".join(verbs), "options": "\n".join(options)}


def _zsh(verbs: Mapping[str, _Verb]) -> str:
    options = []
    for name, verb in verbs.items():
        specs = [f"'{each}[{option.help}]{_value(option)}'" for option in verb.options for each in option.names]
        if verb.choices:
            specs.append(f"'1:{name}:({' '.join(verb.choices)})'")
        specs += (
            ["'1:name:()'", "'2:command:_command_names -e'", "'*:argument:_files'"] if verb.runs else ["'*:name:()'"]
        )
        options.append(f"        {name}) _arguments {' '.join(specs)} ;;")
    listed = "\n".join(f"        '{name}:{_first(verb.help)}'" for name, verb in verbs.items())
    return _ZSH % {"verbs": listed, "options": "\n".join(options)}


def _value(option: _Option) -> str:
    if not option.takes:
        return ""
    return f":value:({' '.join(option.choices)})" if option.choices else ":value:"


def _fish(verbs: Mapping[str, _Verb]) -> str:
    lines = ["complete -c aiolock -f"]
    for name, verb in verbs.items():
        lines.append(f"complete -c aiolock -n __fish_use_subcommand -a {name} -d '{_first(verb.help)}'")
        within = f"complete -c aiolock -n '__fish_seen_subcommand_from {name}'"
        for option in verb.options:
            names = " ".join(f"-l {each[2:]}" if each[:2] == "--" else f"-s {each[1:]}" for each in option.names)
            value = (" -x" + (f" -a '{' '.join(option.choices)}'" if option.choices else "")) if option.takes else ""
            lines.append(f"{within} {names}{value} -d '{option.help}'")
        if verb.choices:
            lines.append(f"{within} -a '{' '.join(verb.choices)}'")
        if verb.runs:
            lines.append(f"{within} -a '(__fish_complete_subcommand --fcs-skip=3)'")
    return "\n".join(lines)
