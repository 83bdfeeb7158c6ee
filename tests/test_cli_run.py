"""`run`, as a user runs it: how the command ends when something happens to the lock, the server or aiolock."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from aiolock._cli.command.guarded import Guarded
from aiolock._cli.verb import VerbError
from aiolock._embedded_server import Server
from tests.support.topologies import ask, wait_until

RUN = [sys.executable, "-W", "error", "-m", "aiolock", "run"]
# The command that `run` starts. It writes its process id into a file, and with "and-child" a child of it does so, too.
# Then each process writes again and again when it was alive, until it is ended, or its file is removed.
PROGRAM = """
import os, signal, sys, time
path, *hows = sys.argv[1:]
if "and-child" in hows and os.fork() == 0:
    path += ".child"
for how in hows:
    if how.startswith("catches-"):
        signal.signal(int(how[8:]), lambda number, _: (os.write(1, b"caught\\n"), os._exit(9)))
if "stubborn" in hows:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "slow" in hows:
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print("ended in order", flush=True), os._exit(0)))
with open(path + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(path + ".new", path)
alive = open(path + ".alive", "w", buffering=1)
while os.path.exists(path):
    alive.seek(0)
    alive.write(f"{time.monotonic():.6f}\\n")
    time.sleep(0.01)
"""
# Prints the environment of the command, and that of its parent, the guard.
ENVIRONMENTS = """
import json, os
def environment(pid):
    with open(f"/proc/{pid}/environ") as file:
        return [each.split("=", 1) for each in file.read().split(chr(0)) if each]
print(json.dumps([environment("self"), environment(os.getppid())]))
"""
# Runs its arguments, and waits for that process alone, as the first process of a container may do: no init.
REAPS_NOBODY = """
import ctypes, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
sys.exit(subprocess.call(sys.argv[1:]))
"""
# Prints what its parent, the guard, has open, when the guard has let its standard output go.
FILES_OF_THE_GUARD = """
import os, time
place = f"/proc/{os.getppid()}/fd"
while os.readlink(f"{place}/1") != os.devnull:
    time.sleep(0.01)
for each in os.listdir(place):
    print(os.readlink(f"{place}/{each}"))
"""
LEASE = 6.0

Running = subprocess.Popen[str]


@contextmanager
def running(server: Server, *arguments: str, hang_up: signal.Handlers = signal.SIG_DFL) -> Iterator[Running]:
    """`aiolock run` with these arguments, started with that handling of SIGHUP; the tests may ignore it."""
    environment = os.environ | {"REDIS_URL": server.url, "PYTHONASYNCIODEBUG": ""}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*RUN, *arguments],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, hang_up),  # noqa: PLW1509
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: Running, within: float = 30) -> tuple[int, str, str]:
    """The exit code, and the texts on both outputs."""
    output, errors = process.communicate(timeout=within)
    return process.returncode, output, errors


def run(server: Server, *arguments: str) -> tuple[int, str, str]:
    with running(server, *arguments) as process:
        return ended(process)


def pid_in(path: Path) -> int:
    """The id of the process that wrote the file, once the file is there."""
    wait_until(path.exists, f"{path.name} is there")
    return int(path.read_text())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(*pids: int, within: float = 30) -> None:
    """Return when all of these processes have ended."""
    wait_until(lambda: not any(map(lives, pids)), f"{pids} have ended", within)


def last_alive(*paths: Path) -> float:
    """The last time when any of these processes was alive, on the monotonic clock that all processes share."""
    return max(float(path.with_name(f"{path.name}.alive").read_text()) for path in paths)


def paused(server: Server) -> float:
    """Pause the server right after a renewal; returns when the lock would expire, on the monotonic clock."""
    renewals = ask(server, "HGET", "orders", "aiolock:renewal")
    wait_until(lambda: bool(ask(server, "HGET", "orders", "aiolock:renewal") != renewals), "it is renewed")
    expires = time.monotonic() + int(ask(server, "PTTL", "orders")) / 1000
    server.pause()
    return expires


def program(path: Path, *hows: str) -> list[str]:
    return ["--", sys.executable, "-c", PROGRAM, str(path), *hows]


@pytest.fixture
def sync(server: Server) -> Iterator[Redis]:
    with Redis.from_url(server.url, decode_responses=True) as client:
        client.flushall()
        yield client


def test_the_command_has_its_streams_its_environment_and_its_exit_code(server: Server, sync: Redis) -> None:
    says = 'read line; echo "$line $AIOLOCK_NAME $AIOLOCK_TOKEN $# $1"; echo oops >&2; exit 7'
    with running(server, "orders", "--", "sh", "-c", says, "sh", "--wait", "--") as process:
        output, errors = process.communicate("hello\n", timeout=30)
    assert (process.returncode, errors) == (7, "oops\n")
    said, name, token, count, first = output.split()
    assert (said, name, count, first) == ("hello", "orders", "2", "--wait")
    assert int(token) == int(sync.zscore("aiolock_token:{orders}", "token") or 0)
    assert not sync.exists("orders")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the environments")
def test_the_url_is_hidden_from_the_command_where_that_is_wanted(server: Server, sync: Redis) -> None:
    """Neither the command nor the process that watches over it sees the URL, however the server was named."""
    every = [sys.executable, "-c", ENVIRONMENTS]
    for hides, arguments in ((False, []), (True, ["--hide-url"]), (True, ["--hide-url", "--url", server.url])):
        code, output, errors = run(server, "orders", *arguments, "--", *every)
        assert (code, errors) == (0, "")
        of_the_command, of_the_guard = map(dict, json.loads(output))
        for environment in (of_the_command, of_the_guard):
            assert environment.pop("REDIS_URL", None) == (None if hides else server.url)
            assert (environment["AIOLOCK_NAME"], environment["PATH"]) == ("orders", os.environ["PATH"])
            assert server.url not in environment.values()


@pytest.mark.parametrize(
    ("command", "code"),
    [(["true"], 0), (["sh", "-c", "kill -9 $$"], 137), (["no-such-command"], 127), (["/etc/passwd"], 126)],
    ids=["true", "killed", "missing", "no program"],
)
def test_exit_codes_are_those_of_a_shell(command: list[str], code: int, server: Server, sync: Redis) -> None:
    assert run(server, "orders", "--", *command)[0] == code
    assert not sync.exists("orders")


@pytest.mark.parametrize("kind", [(), ("--kind", "fair"), ("--kind", "semaphore", "--permits", "1")], ids=str)
def test_two_exclude_each_other(kind: tuple[str, ...], server: Server, sync: Redis, tmp_path: Path) -> None:
    with running(server, "orders", *kind, *program(tmp_path / "pid")) as first:
        pid = pid_in(tmp_path / "pid")
        code, _, errors = run(server, "orders", *kind, "--wait", "0.1", "--", "true")
        assert (code, errors) == (75, "aiolock: lock 'orders' was not granted within 0.1 s\n")
        with running(server, "orders", *kind, "--", "true") as second:
            wait_until(lambda: bool(waits(sync)), "the second waits")
            first.terminate()
            assert ended(first)[0] == 143
            assert ended(second)[0] == 0
    gone(pid)


def waits(redis: Redis) -> Any:
    return [channel for channel in redis.pubsub_channels() if "orders" in channel]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_are_passed_on_to_the_whole_process_group(
    number: signal.Signals, server: Server, sync: Redis, tmp_path: Path
) -> None:
    with running(server, "orders", *program(tmp_path / "pid", f"catches-{number}", "and-child")) as process:
        pids = pid_in(tmp_path / "pid"), pid_in(tmp_path / "pid.child")
        process.send_signal(number)
        code, output, errors = ended(process)
    assert (code, output.splitlines(), errors) == (9, ["caught"] * 2, "")
    gone(*pids)


def test_signals_that_the_parent_ignores_the_command_ignores_too(server: Server, sync: Redis, tmp_path: Path) -> None:
    """`nohup` starts programs in such a way."""

    def ignores(pid: int) -> bool:
        status = Path(f"/proc/{pid}/status").read_text()
        return bool(int(status.partition("SigIgn:")[2].split()[0], 16) & 1 << signal.SIGHUP - 1)

    for hang_up in (signal.SIG_IGN, signal.SIG_DFL):
        path = tmp_path / hang_up.name
        with running(server, "orders", *program(path), hang_up=hang_up) as process:
            assert [ignores(pid) for pid in (process.pid, pid_in(path))] == [hang_up is signal.SIG_IGN] * 2
            process.terminate()
            assert ended(process)[0] == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_ends_the_wait(number: signal.Signals, server: Server, sync: Redis, tmp_path: Path) -> None:
    with running(server, "orders", *program(tmp_path / "pid")) as first:
        pid_in(tmp_path / "pid")
        with running(server, "orders", "--", "true") as second:
            wait_until(lambda: bool(waits(sync)), "the second waits")
            second.send_signal(number)
            assert ended(second) == (128 + number, "", "")
        first.terminate()
        assert ended(first)[0] == 143


def test_it_is_renewed_for_as_long_as_the_command_runs(server: Server, sync: Redis, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with running(server, "orders", "--lease", "1", *program(path)) as process:
        pid_in(path)
        wait_until(lambda: int(sync.hget("orders", "aiolock:renewal") or 0) >= 5, "it is renewed five times")
        path.unlink()
        assert ended(process) == (0, "", "")


def test_a_server_that_hangs_stops_the_command_before_the_lock_can_be_anothers(own: Server, tmp_path: Path) -> None:
    """The command gets SIGTERM while the lock is still held, and has time to end; `consul lock` would exit with 0."""
    path = tmp_path / "pid"
    with running(own, "orders", "--lease", str(LEASE), "--json", *program(path, "slow")) as process:
        pid = pid_in(path)
        expires = paused(own)
        try:
            gone(pid)
            assert last_alive(path) < expires
            code, output, errors = ended(process)
        finally:
            own.resume()
    assert (code, output) == (76, "ended in order\n")
    [said] = [json.loads(line) for line in errors.splitlines()]
    assert (said["lock"], said["event"], said["exit_code"]) == ("orders", "lost", 0)


def test_a_command_that_does_not_end_is_killed_at_the_deadline(own: Server, tmp_path: Path) -> None:
    """All processes that the command has started are killed with it."""
    path = tmp_path / "pid"
    with running(own, "orders", "--lease", str(LEASE), *program(path, "stubborn", "and-child")) as process:
        pids = pid_in(path), pid_in(tmp_path / "pid.child")
        expires = paused(own)
        try:
            gone(*pids)
            assert last_alive(path, tmp_path / "pid.child") < expires
            code, _, errors = ended(process)
        finally:
            own.resume()
    assert code == 76
    assert errors == "aiolock: lock 'orders' could not be renewed in time; the command ended by signal 9\n"


def test_a_lock_that_is_freed_by_force_stops_the_command_at_once(server: Server, sync: Redis, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    catches = f"catches-{signal.SIGTERM}"
    with running(server, "orders", "--lease", "12", "--grace", "1", *program(path, catches)) as process:
        pid = pid_in(path)
        token = sync.hget("orders", "aiolock:token")
        freed = [sys.executable, "-m", "aiolock", "break", "orders", "--token", str(token), "--yes"]
        subprocess.run([*freed, "--url", server.url], check=True, capture_output=True, timeout=30)
        code, output, errors = ended(process)
        gone(pid)
    assert (code, output) == (76, ""), "the command was not asked to end"
    assert errors == "aiolock: lock 'orders' was lost: forced; the command ended by signal 9\n"


def test_a_loss_that_nobody_noticed_is_not_success(server: Server, sync: Redis, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with running(server, "orders", *program(path)) as process:
        pid_in(path)
        sync.delete("orders")
        path.unlink()
        code, _, errors = ended(process)
    assert (code, errors) == (76, "aiolock: lock 'orders' was lost: expired; the command ended with 0\n")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who lives")
@pytest.mark.parametrize("how", ["obedient", "stubborn"])
def test_when_aiolock_is_killed_its_command_ends_before_the_lock(
    how: str, server: Server, sync: Redis, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    with running(server, "orders", "--grace", "1", *program(path, how, "and-child")) as process:
        pids = pid_in(path), pid_in(tmp_path / "pid.child")
        process.kill()
        gone(*pids, within=15)
        assert sync.exists("orders")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who lives")
def test_when_aiolock_is_paused_its_command_ends_before_the_lock(server: Server, sync: Redis, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with running(server, "orders", "--lease", str(LEASE), *program(path)) as process:
        pid = pid_in(path)
        process.send_signal(signal.SIGSTOP)
        gone(pid)
        assert sync.exists("orders")
        process.send_signal(signal.SIGCONT)
        assert ended(process)[0] == 76


@pytest.mark.skipif(sys.platform != "linux", reason="there alone a child dies with its parent")
def test_when_the_guard_is_killed_the_command_is_too(server: Server, sync: Redis, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with running(server, "orders", *program(path, "stubborn")) as process:
        pid = pid_in(path)
        guard = parent_of(pid)
        assert guard != process.pid
        os.kill(guard, signal.SIGKILL)
        assert ended(process)[0] == 137
        gone(pid)
        assert not sync.exists("orders")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which process is the guard")
def test_a_signal_to_every_process_lets_the_command_end_in_order(server: Server, sync: Redis, tmp_path: Path) -> None:
    """As systemd sends it to all processes of a service; the command gets it a second time from aiolock."""
    path = tmp_path / "pid"
    with running(server, "orders", *program(path, "slow")) as process:
        pid = pid_in(path)
        for each in (parent_of(pid), pid, process.pid):
            os.kill(each, signal.SIGTERM)
        assert ended(process) == (0, "ended in order\n", "")
    assert not sync.exists("orders")


@pytest.mark.skipif(sys.platform != "linux", reason="there alone the children of a dead process can be adopted")
def test_orphans_that_nobody_reaps_do_not_keep_a_stopped_command_from_its_end(own: Server) -> None:
    environment = os.environ | {"REDIS_URL": own.url}
    lives_on = ["--lease", "3", "--", "sh", "-c", "echo runs; sleep 600 & sleep 600"]
    reaper = [sys.executable, "-c", REAPS_NOBODY, *RUN, "orders", *lives_on]
    with subprocess.Popen(reaper, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        own.pause()
        assert process.wait(30) == 76


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what is open")
def test_the_guard_can_wait_though_standard_input_is_closed(server: Server, sync: Redis) -> None:
    """The pipe that wakes it has two ends: neither has got the number of standard input, which it gives away."""
    command = [*RUN, "orders", "--", sys.executable, "-c", FILES_OF_THE_GUARD]
    output = subprocess.check_output(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command], env=os.environ | {"REDIS_URL": server.url}, text=True, timeout=30
    )
    pipes = [each for each in output.splitlines() if each.startswith("pipe:")]
    assert [pipes.count(each) for each in pipes] == [2, 2]


def test_a_command_runs_though_standard_error_is_closed(server: Server, sync: Redis) -> None:
    command = [*RUN, "orders", "--", "sh", "-c", "echo runs; exit 7"]
    closed = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    ended = subprocess.run(
        closed, env=os.environ | {"REDIS_URL": server.url}, stdout=subprocess.PIPE, check=False, timeout=30
    )
    assert (ended.returncode, ended.stdout) == (7, b"runs\n")


def test_readers_of_its_output_wait_for_the_command_alone(server: Server, sync: Redis) -> None:
    code, output, _ = run(server, "orders", "--", "sh", "-c", "echo all")
    assert (code, output) == (0, "all\n")


def test_ignored_signals_stay_ignored(server: Server, sync: Redis, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    ignoring = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *RUN]
    command = [*ignoring, "orders", *program(path)]
    with subprocess.Popen(command, env=os.environ | {"REDIS_URL": server.url}) as process:
        pid_in(path)
        process.send_signal(signal.SIGHUP)
        path.unlink()
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["orders", "--url", "redis://127.0.0.1:1", "--", "true"], 69, "Redis cannot be reached"),
        (["orders", "--url", "redis://me:secr/et@localhost", "--", "true"], 2, "URL has to begin with"),
        (["orders", "--kind", "semaphore", "--", "true"], 2, "belong together"),
        (["orders", "--grace", "20", "--", "true"], 2, "half the lease"),
        (["orders", "--lease", "0.5", "--", "true"], 2, "1 to 1e+09"),
        (["aiolock_token:{a}", "--", "true"], 2, "aiolock's own"),
        (["orders"], 2, "CMD"),
        (["orders", "--"], 2, "CMD"),
        (["orders", "true"], 2, "aiolock run NAME -- CMD"),
        (["orders", "true", "--json"], 2, "aiolock run NAME -- CMD"),
        (["orders", "true", "--url", "redis://:secr@127.0.0.1:1"], 2, "aiolock run NAME -- CMD"),
        (["orders", "true", "--all=secr", "--", "true"], 2, "aiolock run NAME -- CMD"),
        (["orders", "--js", "--", "true"], 2, "unrecognized arguments: --js"),
    ],
)
def test_a_failure_is_reported_in_words(
    arguments: list[str], code: int, words: str, server: Server, sync: Redis
) -> None:
    found, output, errors = run(server, *arguments)
    assert (found, output) == (code, "")
    assert words in errors
    assert "Traceback" not in errors
    assert "secr" not in errors


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["orders", "--url", "redis://127.0.0.1:1", "--", "true"], 69, "Redis cannot be reached"),
        (["orders", "--", "no-such-command"], 127, "the command 'no-such-command' cannot be run: No such file"),
        (["orders", "--", "/etc/passwd"], 126, "the command '/etc/passwd' cannot be run: Permission denied"),
        (["aiolock_token:{a}", "--", "true"], 2, "aiolock's own"),
    ],
)
def test_a_failure_is_an_object_with_json(
    arguments: list[str], code: int, words: str, server: Server, sync: Redis
) -> None:
    found, output, errors = run(server, "--json", *arguments)
    assert (found, output) == (code, "")
    [said] = [json.loads(line) for line in errors.splitlines()]
    assert (said["lock"], said["event"]) == (arguments[0], "failed")
    assert words in said["words"]


async def test_a_guard_that_cannot_be_started_is_no_fault_of_redis(recwarn: pytest.WarningsRecorder) -> None:
    """The system limits the length of one argument; it may also be out of processes, files or memory."""
    with pytest.raises(VerbError, match="'true' cannot be run: Argument list too long") as raised:
        await Guarded.start(["true", "x" * 200_000], {}, 1, 10)
    assert raised.value.code == 126
    gc.collect()
    assert not recwarn.list


def test_a_key_that_is_no_lock_is_left_alone(server: Server, sync: Redis) -> None:
    sync.set("orders", "text")
    code, _, errors = run(server, "orders", "--", "true")
    assert (code, sync.get("orders")) == (2, "text")
    assert "the key of 'orders' holds something else" in errors
    assert "use another name" in errors
    assert "LockConfig" not in errors


async def test_a_command_that_has_ended_before_its_guard_is_told_anything() -> None:
    """The exit code of the command counts, although the guard hears nothing any more."""
    guarded = await Guarded.start([sys.executable, "-c", "raise SystemExit(7)"], os.environ, 1, 60)
    try:
        await guarded.process.wait()
        for _ in range(3):
            guarded.allow(60)
            await asyncio.sleep(0)
        assert await guarded.ended() == 7
    finally:
        await guarded.aclose()


async def test_a_guard_that_is_killed_before_it_hears_anything_is_no_failure_of_redis() -> None:
    guarded = await Guarded.start(["sleep", "600"], os.environ, 1, 60)
    try:
        guarded.process.send_signal(signal.SIGSTOP)
        guarded.allow(60)
        guarded.process.kill()
        assert await guarded.ended() == -signal.SIGKILL
    finally:
        await guarded.aclose()


async def test_a_guard_that_begins_late_hears_of_the_renewals_before_it_stops_the_command() -> None:
    guarded = await Guarded.start(["sh", "-c", "sleep 0.3; exit 7"], os.environ, 1, remaining=0.1)
    try:
        guarded.allow(60)
        assert await guarded.ended() == 7
        assert not guarded.stopped
    finally:
        await guarded.aclose()
