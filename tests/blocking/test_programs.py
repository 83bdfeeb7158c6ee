"""Ctrl-C and the end of a program leave nothing locked."""

import signal
import subprocess
import textwrap
from contextlib import AbstractContextManager

from aiolock._embedded_server import Server
from aiolock.blocking import LockClient
from tests.support.programs import Program, python, rest, said

_HEAD = """
import os, sys, threading, time
from aiolock.blocking import LockClient
locks = LockClient.from_url({url!r})
"""


def program(source: str, server: Server) -> AbstractContextManager[Program]:
    """A program that runs with `locks`, a client, and prints what it does, and its errors."""
    # A name of a host is looked up in a pool of threads.
    url = server.url.replace("127.0.0.1", "localhost")
    code = _HEAD.format(url=url) + textwrap.dedent(source)
    return python("-W", "error", "-c", code, stderr=subprocess.STDOUT)


def test_ctrl_c_while_it_waits_ends_a_program_and_leaves_nothing_behind(server: Server, elsewhere: LockClient) -> None:
    with (
        elsewhere.lock("orders"),
        program(
            """
            def tell():
                while not locks.statistics().parked:
                    time.sleep(0.001)
                print("waits")

            threading.Thread(target=tell, daemon=True).start()
            with locks.lock("orders"):
                print("entered")
            """,
            server,
        ) as waiting,
    ):
        assert said(waiting) == "waits"
        waiting.send_signal(signal.SIGINT)
        told = rest(waiting)
        assert "KeyboardInterrupt" in told
        assert "entered" not in told
        assert waiting.wait() == -signal.SIGINT
    assert elsewhere.lock("orders").try_lock() is not None


def test_ctrl_c_within_a_block_gives_the_lock_back(server: Server, elsewhere: LockClient) -> None:
    with program("with locks.lock('orders'):\n    print('holds')\n    time.sleep(600)", server) as holding:
        assert said(holding) == "holds"
        assert elsewhere.lock("orders").try_lock() is None
        holding.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in rest(holding)
    assert elsewhere.lock("orders").try_lock() is not None


def test_a_program_that_ends_releases_its_locks(server: Server, elsewhere: LockClient) -> None:
    with program("lease = locks.lock('orders').acquire()\nprint('holds')", server) as holding:
        assert said(holding) == "holds"
        assert "Traceback" not in rest(holding)
        assert holding.wait() == 0
    assert elsewhere.lock("orders").try_lock() is not None


def test_threads_go_on_when_the_main_thread_has_ended(server: Server, elsewhere: LockClient) -> None:
    """A connection looks up the name of its host, but Python's pools of threads take no more work."""
    code = f"""
import threading
from concurrent.futures import ThreadPoolExecutor
from aiolock.blocking import LockClient

def pools_work():
    try:
        pool.submit(int).result()
    except RuntimeError:
        return False
    return True

def hold():
    while pools_work():
        pass
    with locks.lock("orders"):
        print("holds")

pool = ThreadPoolExecutor(1)
locks = LockClient.from_url("redis://localhost:{server.port}")
threading.Thread(target=hold).start()
"""
    with python("-W", "error", "-c", code, stderr=subprocess.STDOUT) as working:
        assert rest(working) == "holds\n"
        assert working.wait() == 0
    assert not elsewhere.lock("orders").locked()


def test_a_program_ends_though_a_daemon_thread_holds_or_waits(server: Server, elsewhere: LockClient) -> None:
    with elsewhere.lock("busy"):
        with program(
            """
            def hold():
                with locks.lock("orders"):
                    print("holds")
                    locks.lock("busy").acquire()

            threading.Thread(target=hold, daemon=True).start()
            while not locks.statistics().parked:
                time.sleep(0.001)
            """,
            server,
        ) as ending:
            assert said(ending) == "holds"
            assert ending.wait() == 0
        assert elsewhere.lock("orders").try_lock() is not None


def test_a_program_ends_though_its_server_is_gone(own: Server) -> None:
    with program("lease = locks.lock('orders').acquire()\nprint('holds')\nsys.stdin.readline()", own) as ending:
        assert said(ending) == "holds"
        own.stop()
        assert ending.stdin is not None
        ending.stdin.close()
        assert ending.wait() == 0
