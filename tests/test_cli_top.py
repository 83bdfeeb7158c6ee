"""`top`: what it shows, in what order, and how it ends."""

import asyncio
import io
import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, ConsoleDimensions

from aiolock import LockClient
from aiolock._cli.locks.model import Hold, Lock
from aiolock._cli.main import main
from aiolock._cli.screen.live import Leases, LiveScreen
from aiolock._cli.screen.plain import Frame, Screen, ordered
from aiolock._cli.verbs import top
from aiolock._embedded_server import Server
from tests.support.cli import parsed
from tests.support.observe import until


def lock(name: str, *, waiting: int = 0, age: float | None = 1.0, left: float = 20.0, holders: int = 1) -> Lock:
    holds = [
        Hold(owner_id=f"c{number}:1", library="aiolock", holds=1, left=left, age=age, token=7)
        for number in range(holders)
    ]
    return Lock(name=name, kind="lock", server="s", holds=holds, waiting=waiting)


LOCKS = [lock("b", waiting=1, age=3, left=9), lock("a", waiting=5, age=1, left=20), lock("c", age=60, left=2)]


@pytest.mark.parametrize(("order", "names"), [("waiting", "abc"), ("held", "cba"), ("left", "cba"), ("name", "abc")])
def test_the_order_is_the_chosen_one(order: str, names: str) -> None:
    assert "".join(each.name for each in ordered(LOCKS, order)) == names


def test_the_share_of_a_lease_is_of_the_most_that_was_seen_of_it() -> None:
    leases, first, later = Leases(), lock("a", left=30), lock("a", left=6)
    leases.see([first])
    assert leases.share(first, first.holds[0]) == 1
    leases.see([later])
    assert leases.share(later, later.holds[0]) == 0.2
    granted_again = replace(later, holds=[replace(later.holds[0], token=8)])
    leases.see([granted_again])
    assert leases.share(granted_again, granted_again.holds[0]) == 1


def test_all_is_left_of_a_hold_that_never_ends() -> None:
    forever = lock("a", left=math.inf)
    shown = picture(Frame(at="10:00:00", server="s", locks=ordered([forever, lock("b")], "left")))
    assert re.search(r"for ever +━{8}", shown)
    assert shown.index("20 s") < shown.index("for ever")


def picture(frame: Frame, *, height: int = 20, width: int = 100) -> str:
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    console.print(LiveScreen(console).picture(frame))
    return console.export_text()


def test_the_picture_fits_the_terminal_and_says_what_it_leaves_out() -> None:
    many = [lock(f"orders:{number:03}", holders=number % 3 + 1) for number in range(100)]
    shown = picture(Frame("12:00:00", "redis://a", many, 0.01), height=20)
    assert len(shown.splitlines()) <= 20
    assert "100 held by 3 clients, 0 waiting" in shown
    listed = shown.count("orders:")
    assert f"and {100 - listed} more" in shown
    crowded = picture(Frame("12:00:00", "s", [lock("a", holders=50)], 0.0))
    assert "and 45 more" in crowded
    lost = picture(Frame("12:00:00", "s", error="Redis cannot be reached"))
    assert "Redis cannot be reached" in lost


async def test_plain_lines_and_objects_for_programs(
    server: Server, locks: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await locks.lock("orders").acquire()
    asked = ("top", "--url", server.url, "--interval", "0.1", "--count", "2")
    await top.watch(parsed(*asked))
    shown = capsys.readouterr().out
    assert shown.count("1 held by 1 client, 0 waiting") == 2
    assert shown.count("\norders ") == 2
    await top.watch(parsed(*asked, "--json"))
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [look["locks"][0]["name"] for look in looks] == ["orders"] * 2


def test_a_last_look_that_failed_is_an_exit_code(own: Server, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["top", "--interval", "0.1", "--plain", "--url", own.url, "--count"]
    assert main([*asked, "1"]) == 0
    assert main([*asked, "1", "\udcff"]) == 2
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("aiolock._cli.screen.plain.Screen.left_within", stopping(own))
        assert main([*asked, "2"]) == 69
    shown = capsys.readouterr().out
    assert "0 held" in shown
    assert "Redis cannot be reached" in shown


def stopping(server: Server) -> Callable[..., Awaitable[bool]]:
    """In place of the pause between two looks: the server stops."""

    async def left_within(*_: object) -> bool:
        server.stop()
        return False

    return left_within


def test_a_first_look_that_fails_ends_it(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    for url, said in ("redis://127.0.0.1:1", "cannot be reached"), (f"{server.url}/99", "out of range"):
        assert main(["top", "--url", url]) == 69
        assert said in capsys.readouterr().err


def test_characters_that_the_output_lacks_end_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    with io.TextIOWrapper(written, "ascii") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert main(["inspect", "--url", server.url, "caf\N{LATIN SMALL LETTER E WITH ACUTE}"]) == 1
        assert written.getvalue().startswith(b"caf?")
        monkeypatch.undo()


async def test_a_server_that_is_gone_for_a_while_ends_nothing(
    own: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[Frame] = []
    watching = asyncio.create_task(top.watch(parsed("top", "--url", own.url, "--interval", "0.1")))
    monkeypatch.setattr("aiolock._cli.screen.plain.Screen.show", lambda self, frame: frames.append(frame))

    async def shows(error: bool) -> None:
        while not frames or (frames[-1].error is None) is error:
            await asyncio.sleep(0.01)

    async with asyncio.timeout(30):
        await shows(error=False)
        own.stop()
        await shows(error=True)
        own.restart()
        await shows(error=False)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_server_that_is_silent_is_reported_at_once_and_shown_as_soon_as_it_answers(
    own: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_SILENT", 0.5)
    monkeypatch.setattr(top, "_TICK", 0.02)
    frames: list[Frame] = []
    monkeypatch.setattr("aiolock._cli.screen.plain.Screen.draw", lambda self, frame: frames.append(frame))
    async with LockClient.from_url(own.url) as locks:
        await locks.lock("orders").acquire()
        watching = asyncio.create_task(top.watch(parsed("top", "--url", own.url, "--interval", "0.1")))
        await until(lambda: len(frames) > 1)
        own.pause()
        await until(lambda: frames[-1].error is not None)
        silent = len(frames) - 1
        own.resume()
        await until(lambda: frames[-1].error is None)
        seen = len(frames)
        await until(lambda: len(frames) > seen)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    [told] = frames[silent : seen - 1]
    assert told.error is not None
    assert re.fullmatch(r"no answer for \d+ s; the list is of \d\d:\d\d:\d\d", told.error)
    assert told.as_dict()["locks"] == []
    assert [lock.name for lock in frames[seen - 1].locks] == ["orders"]
    assert frames[seen - 1].took < 0.5, "the silence does not make the next look late"


async def test_a_user_who_leaves_while_the_server_is_silent_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never() -> AsyncGenerator[Frame, None]:
        await asyncio.Event().wait()
        yield Frame("", "")

    monkeypatch.setattr(top, "_TICK", 0.01)
    screen = Screen()
    screen.left = True
    async with asyncio.timeout(30):
        assert await top._next(never(), screen, top.Answers()) is None


@pytest.mark.parametrize(
    ("took", "error", "pause"), [(0.1, None, 2.0), (3.0, None, 3.0), (0.0, "gone", 1.0)], ids=["soon", "long", "failed"]
)
def test_at_least_half_of_the_time_nothing_is_asked(took: float, error: str | None, pause: float) -> None:
    assert top._pause(Frame("", "s", took=took, error=error), 2.0) == pause


async def test_another_size_of_the_terminal_is_drawn_at_once() -> None:
    drawn = io.StringIO()
    console = Console(width=100, height=20, force_terminal=True, file=drawn)
    with LiveScreen(console) as screen:
        screen.show(Frame("12:00:00", "redis://a", LOCKS, 0.01))
        before = drawn.tell()
        console.size = ConsoleDimensions(40, 12)
        os.kill(os.getpid(), signal.SIGWINCH)
        await until(lambda: drawn.tell() > before)
    assert "─" * 40 in drawn.getvalue()[before:]
    assert "─" * 41 not in drawn.getvalue()[before:]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 140])
def test_a_narrow_terminal_shows_fewer_columns_and_all_of_each(width: int) -> None:
    holder = Hold(owner_id="c:named:nightly", library="aiolock", holds=1, left=3599.0, age=3599.0, token=7)
    wide = Lock(name="shop:orders:42:" + "x" * 200, kind="read-write lock", server="s", holds=[holder], waiting=12)
    for frame in (Frame("12:00:00", "redis://a", [wide]), Frame("12:00:00", "redis://a", [wide], error="e" * 300)):
        lines = picture(frame, width=width).splitlines()
        assert max(map(len, lines)) <= width
        [headings] = [line.split() for line in lines if line.startswith("NAME")]
        assert headings == {
            30: ["NAME", "HOLDER", "WAITING"],
            40: ["NAME", "HOLDER", "WAITING"],
            60: ["NAME", "HOLDER", "LEFT", "WAITING"],
            80: ["NAME", "HOLDER", "HELD", "LEFT", "WAITING"],
        }.get(width, ["NAME", "KIND", "HOLDER", "HELD", "LEFT", "WAITING"])
        [row] = [line for line in lines if line.startswith("shop:")]
        assert row.rstrip().endswith("12 clients")


@contextmanager
def on_a_terminal(server: Server, *arguments: str) -> Iterator[tuple[Any, int]]:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "90", "LINES": "20", "PYTHONASYNCIODEBUG": ""}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-W", "error", "-m", "aiolock", "top", "--url", server.url, *arguments]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment, process_group=0
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def read_until(terminal: int, wanted: bytes, within: float = 30) -> bytes:
    read, deadline = b"", time.monotonic() + within
    while wanted not in read:
        assert time.monotonic() < deadline, read
        if select.select([terminal], [], [], 0.1)[0]:
            read += os.read(terminal, 4096)
    return read


@pytest.mark.slow
@pytest.mark.parametrize("end", ["q", "Ctrl-C"])
async def test_on_a_terminal_it_stays_in_place_until_somebody_has_seen_enough(
    end: str, server: Server, locks: LockClient
) -> None:
    await locks.lock("orders:42").acquire()

    def watch() -> tuple[int, bytes]:
        with on_a_terminal(server) as (process, terminal):
            read_until(terminal, b"orders:42")
            if end == "q":
                os.write(terminal, b"q")
            else:
                process.send_signal(signal.SIGINT)
            # This brings back the screen that was there before.
            shown = read_until(terminal, b"\x1b[?1049l")
            assert b"\x1b[?25h" in shown or b"\x1b[?25h" in read_until(terminal, b"\x1b[?25h")
            return process.wait(30), process.stderr.read()

    assert await asyncio.to_thread(watch) == (0, b"")


@pytest.mark.slow
async def test_the_terminal_is_given_back_before_a_signal_stops_or_ends_it(server: Server, locks: LockClient) -> None:
    """The process is of our session: SIGTSTP stops no process whose group is an orphan."""
    await locks.lock("orders:42").acquire()

    def watch() -> tuple[int, bytes]:
        with on_a_terminal(server) as (process, terminal):
            read_until(terminal, b"orders:42")
            process.send_signal(signal.SIGTSTP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            read_until(terminal, b"\x1b[?1049l")
            assert termios.tcgetattr(terminal)[3] & termios.ECHO
            process.send_signal(signal.SIGCONT)
            read_until(terminal, b"\x1b[?1049h")
            read_until(terminal, b"orders:42")
            process.send_signal(signal.SIGTERM)
            ended = process.wait(30)
            read_until(terminal, b"\x1b[?1049l")
            assert termios.tcgetattr(terminal)[3] & termios.ECHO
            return ended, process.stderr.read()

    assert await asyncio.to_thread(watch) == (-signal.SIGTERM, b"")
