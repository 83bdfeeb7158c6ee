"""The demo, run as a user runs it; and its verdict, which must not pass when something was lost."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from aiolock._embedded_server import Server
from examples.demo.account import Account, Entry, StaleTokenError
from examples.demo.protocol import Event, Settings, What
from examples.demo.screen import moment
from examples.demo.team import Team
from examples.demo.verdict import Fault, Faults, Record, judge

COMMAND = [sys.executable, "-m", "examples.demo"]
ROOT = Path(__file__).parents[1]
LEASE = 2.0


def environment(**extra: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "NO_COLOR")}
    return kept | extra


def start(temporary: Path, **extra: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND,
        cwd=ROOT,
        env=environment(TMPDIR=str(temporary), **extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
async def test_the_demo_shows_every_fault_and_nothing_is_lost_on_a_server_that_is_left_as_it_was(
    tmp_path: Path, redis: Redis
) -> None:
    settings = redis.connection_pool.connection_kwargs
    await redis.set("mine", "untouched")
    calls = (await redis.info("stats"))["total_commands_processed"]
    demo = start(tmp_path, REDIS_URL=f"redis://{settings['host']}:{settings['port']}")
    output, errors = await asyncio.to_thread(demo.communicate, timeout=50)
    assert (demo.returncode, errors) == (0, ""), output + errors
    assert "yours, by REDIS_URL" in output
    assert (await redis.info("stats"))["total_commands_processed"] - calls > 500
    assert await redis.keys("*") == [b"mine"]
    for shown in (
        "hand-offs/s",
        "SIGKILL",
        "SIGSTOP",
        "SIGCONT",
        "REFUSED by the file",
        "task.cancel()",
        "had it after",
    ):
        assert shown in output, shown
    verdict = output.partition("Verdict")[2]
    assert verdict.count("  ok  ") == len(judge(story()))
    assert "All is well" in verdict
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= 80
    assert not list(tmp_path.iterdir()), "the demo left files behind"


@pytest.mark.slow
def test_the_demo_ends_quietly_when_the_reader_of_its_output_has_gone(tmp_path: Path) -> None:
    demo = start(tmp_path)
    assert demo.stdout is not None
    # Another task than the story's prints it.
    while "hand-offs/s" not in demo.stdout.readline():
        pass
    demo.stdout.close()
    _, errors = demo.communicate(timeout=50)
    assert (demo.returncode, errors) == (141, "")
    assert not list(tmp_path.iterdir()), "the demo left files behind"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_its_child_processes(tmp_path: Path, number: signal.Signals) -> None:
    demo = start(tmp_path)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "All is well" in line:
            break
    children = descendants(demo.pid)
    # Four workers and the server run.
    assert len(children) >= 5
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=20)
    assert demo.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert not [pid for pid in children if Path(f"/proc/{pid}/cmdline").exists()]
    assert not list(tmp_path.iterdir()), "the demo left files behind"


def descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(child) for child, parent in map(str.split, listed.splitlines()) if int(parent) == pid]


@pytest.mark.parametrize(("extra", "live"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_on_a_terminal_the_demo_shows_a_live_picture_unless_asked_not_to(extra: dict[str, str], live: bool) -> None:
    terminal, end = os.openpty()
    settings = environment(**{"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"} | extra)
    with subprocess.Popen(COMMAND, cwd=ROOT, env=settings, stdout=end, stderr=end) as demo:
        os.close(end)
        shown = b""
        while b"hand-offs/s" not in shown:
            shown += os.read(terminal, 10_000)
        demo.send_signal(signal.SIGINT)
        # Linux says so that nobody writes to it any more.
        with suppress(OSError):
            while more := os.read(terminal, 10_000):
                shown += more
    os.close(terminal)
    assert demo.returncode == 130
    assert (b"worker 4" in shown, b"\x1b[" in shown) == (live, live)


def test_the_demo_needs_nothing_that_only_tests_need() -> None:
    code = "import sys; sys.modules['pytest'] = None; import examples.demo.run, examples.demo.worker"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_demo_reports_that_it_has_no_server() -> None:
    for url, reason in (("redis://127.0.0.1:1", "no answer from the server"), ("nonsense", "REDIS_URL")):
        environ = environment(REDIS_URL=url)
        ended = subprocess.run(COMMAND, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=30)
        assert ended.returncode == 2
        assert reason in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_server_that_the_workers_cannot_use_is_reported(tmp_path: Path) -> None:
    allowed = ["+ping", "+info", "+client", "+hello", "+del"]
    with Server() as server:
        with SyncRedis.from_url(server.url) as admin:
            admin.acl_setuser("poor", enabled=True, passwords=["+secret"], commands=allowed, keys=["*"])
        url = server.url.replace("redis://", "redis://poor:secret@")
        demo = start(tmp_path, REDIS_URL=url)
        output, errors = demo.communicate(timeout=50)
    assert demo.returncode == 2
    assert "did not start" in errors
    assert "secret" not in output + errors


def test_the_account_logs_refused_writes(tmp_path: Path) -> None:
    """The tests of the examples show that the account refuses in every order of reads and writes."""
    account = Account(tmp_path)
    account.create()
    assert account.read(10) == 0
    account.write(1, 10)
    assert account.read(20) == 1
    for refused in (lambda: account.write(2, 10), lambda: account.read(10)):
        with pytest.raises(StaleTokenError):
            refused()
    account.write(2, 20)
    assert account.balance() == 2
    assert account.entries() == [Entry(10, 10, True), Entry(10, 20, False), Entry(20, 20, True)]


# The verdict, on forged records. Turns: 1a wrote, 2a was killed, 3a was paused and refused, 4a was cancelled, 1a wrote.

KILLED, PAUSED, CANCELLED = Fault("2a", 20, 3.6), Fault("3a", 30, 5.7), Fault("4a", 50, 9.0)


def turn(who: str, token: int, asked: float, *rest: tuple[float, What]) -> list[Event]:
    return [Event(asked, who, "waits"), *(Event(at, who, what, token) for at, what in rest)]


def story() -> Record:
    events = [
        *turn("1a", 10, 0.0, (0.1, "holds"), (0.2, "wrote"), (0.3, "released")),
        *turn("2a", 20, 0.1, (0.3, "holds"), (1.0, "renewed"), (2.0, "renewed")),
        *turn("3a", 30, 0.2, (5.5, "holds"), (5.7, "freezes"), (8.3, "wakes"), (8.4, "lost"), (8.5, "refused")),
        *turn("1a", 40, 0.4, (7.7, "holds"), (7.8, "wrote"), (7.9, "released")),
        *turn("4a", 50, 0.4, (8.0, "holds"), (9.01, "cancelled")),
        *turn("1a", 60, 8.8, (9.02, "holds"), (9.1, "wrote"), (9.2, "released")),
    ]
    entries = [Entry(10, 0, True), Entry(40, 10, True), Entry(30, 40, False), Entry(60, 40, True)]
    exits = {"1": 0, "2": -signal.SIGKILL, "3": 0, "4": 0}
    return Record(3, entries, events, Faults(KILLED, PAUSED, CANCELLED), exits, LEASE)


def without(record: Record, unwanted: Callable[[Event], bool]) -> Record:
    return replace(record, events=[event for event in record.events if not unwanted(event)])


def moved(record: Record, token: int, what: What, at: float) -> Record:
    hit = [event for event in record.events if (event.token, event.what) == (token, what)]
    assert len(hit) == 1
    return replace(record, events=[replace(event, at=at) if event is hit[0] else event for event in record.events])


@pytest.mark.parametrize(
    ("until", "condition", "said"),
    [
        (0.15, {}, "1a holds, 1 wait"),
        (3.6, {"2": "killed"}, "2a, killed, still holds, 3 wait"),
        (5.8, {"2": "killed", "3": "frozen"}, "3a, frozen, still holds, 2 wait"),
        (7.8, {"2": "killed", "3": "frozen"}, "1a holds, 1 wait"),
        (7.9, {"2": "killed", "3": "frozen"}, "nobody holds, 1 wait"),
    ],
)
def test_the_status_line_names_the_worker_with_the_lease(until: float, condition: dict[str, str], said: str) -> None:
    team = Team(Settings("", "", "", LEASE))
    team.condition = condition
    for event in sorted(story().events, key=lambda event: event.at):
        if event.at <= until:
            team.timeline.add(event)
    assert moment(team).startswith(said + ";")


FORGED: dict[str, tuple[Record, str]] = {
    "an increment was lost": (replace(story(), balance=2), "no deposit lost"),
    "nothing happened": (replace(story(), balance=0, entries=[]), "no deposit lost"),
    "a confirmed write is not in the log": (
        replace(story(), balance=2, entries=story().entries[:-1]),
        "lacks 1 that workers made",
    ),
    "a token came twice": (
        replace(story(), balance=4, entries=[*story().entries, Entry(60, 60, True)]),
        "the fencing token grew",
    ),
    "a token went back": (
        replace(story(), balance=4, entries=[*story().entries, Entry(50, 60, True)]),
        "the fencing token grew",
    ),
    "a token was granted twice": (
        replace(story(), events=[*story().events, *turn("4b", 60, 9.2, (9.3, "holds"), (9.4, "released"))]),
        "the fencing token grew",
    ),
    "two at once": (moved(story(), 40, "wrote", 8.1), "somebody else's turn"),
    "the stale write was accepted": (
        replace(story(), balance=4, entries=[*story().entries[:2], Entry(30, 40, True), story().entries[3]]),
        "was NOT refused",
    ),
    "the stale write was refused, and accepted when repeated": (
        replace(story(), balance=4, entries=[*story().entries[:3], Entry(30, 40, True), story().entries[3]]),
        "was NOT refused",
    ),
    "the victim's write was accepted": (
        replace(story(), balance=4, entries=[story().entries[0], Entry(20, 10, True), *story().entries[1:]]),
        "was killed as it held",
    ),
    "nobody was refused": (
        replace(story(), entries=[entry for entry in story().entries if entry.accepted]),
        "was NOT refused",
    ),
    "the pause was shorter than the lease": (moved(story(), 30, "wakes", 7.6), "was NOT refused"),
    "nobody was killed": (replace(story(), faults=Faults(None, PAUSED, CANCELLED)), "no holder was killed"),
    "nobody was paused": (replace(story(), faults=Faults(KILLED, None, CANCELLED)), "no holder was paused"),
    "nobody was cancelled": (replace(story(), faults=Faults(KILLED, PAUSED, None)), "no holder was cancelled"),
    "the victim ended by itself": (replace(story(), exits=story().exits | {"2": 0}), "was killed as it held"),
    "the victim held nothing": (
        replace(story(), faults=Faults(replace(KILLED, token=10), PAUSED, CANCELLED)),
        "no holder was killed",
    ),
    "the kill left the lock stuck": (moved(story(), 30, "holds", 6.7), "was killed as it held"),
    "nothing was renewed": (without(story(), lambda event: event.what == "renewed"), "renewing its lease"),
    "the long job was shorter than a lease": (moved(story(), 20, "holds", 1.7), "renewing its lease"),
    "another had the lock during the long job": (
        replace(story(), events=[*story().events, *turn("1b", 21, 0.2, (1.5, "holds"), (1.6, "released"))]),
        "renewing its lease",
    ),
    "the cancelled one went on": (
        replace(without(story(), lambda event: event.what == "cancelled"), balance=3),
        "was cancelled in its turn",
    ),
    "the lock was left to its lease after the cancel": (moved(story(), 60, "holds", 10.5), "was cancelled in its turn"),
    "the lock stood still": (moved(story(), 40, "holds", 8.8), "never stood still"),
    "nobody got the lock after the cancel": (
        replace(without(story(), lambda event: event.token == 60), balance=3),
        "was cancelled, and nobody",
    ),
    "another worker crashed": (replace(story(), exits=story().exits | {"1": 1}), "ended with an error: worker 1"),
}


def test_the_verdict_on_a_good_record_is_good() -> None:
    assert [check.text for check in judge(story()) if not check.passed] == []


@pytest.mark.parametrize(("record", "point"), FORGED.values(), ids=FORGED)
def test_the_verdict_fails_when(record: Record, point: str) -> None:
    assert [check for check in judge(record) if point in check.text and not check.passed]
