"""`completion`: what a shell completes is what the parser knows."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from aiolock._cli.main import VERBS, main
from aiolock._cli.verb import Verb
from aiolock._cli.verbs.completion import SHELLS, Recorder, script

DRIVER = """
source %s
complete_words() {
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _aiolock 2> /dev/null
    echo "${COMPREPLY[*]}"
}
"""


def actions_of(verb: Verb) -> list[argparse.Action]:
    return Recorder(verb).actions


@pytest.mark.parametrize("shell", SHELLS)
def test_every_verb_and_option_is_completed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    for name, verb in VERBS.items():
        lines = [line for line in shown.splitlines() if name in line]
        assert lines
        for action in actions_of(verb):
            for option in action.option_strings:
                wanted = {"fish": f"-l {option[2:]} " if option[:2] == "--" else f"-s {option[1:]} "}.get(shell, option)
                assert any(wanted in line for line in lines), f"{name} {option}"


@pytest.mark.skipif(sys.platform == "win32", reason="it is bash that reads it")
def test_bash_completes_verbs_options_and_choices(tmp_path: Path) -> None:
    path = tmp_path / "aiolock.bash"
    path.write_text(script("bash", VERBS))
    lines = {
        "aiolock in": "inspect",
        "aiolock run --ki": "--kind",
        "aiolock run orders --kind f": "fair",
        "aiolock completion f": "fish",
        "aiolock top --sort ''": "waiting held left name",
        "aiolock run orders --wait ''": "",
        "aiolock run orders -- l": "",
    }
    program = DRIVER % path + "".join(f"complete_words {line}\n" for line in lines)
    ended = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert dict(zip(lines, ended.stdout.split("\n"), strict=False)) == lines
