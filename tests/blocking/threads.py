"""Threads whose steps a test orders, and a wait for what it sees."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
_WITHIN = 30.0  # Seconds: no test is about them.


def until(predicate: Callable[[], object]) -> None:
    """Return as soon as the predicate holds."""
    ends = time.monotonic() + _WITHIN
    while not predicate():
        assert time.monotonic() < ends, "not in time"
        time.sleep(0.001)


def begin(function: Callable[[], T], name: str = "worker") -> "Future[T]":
    """What *function* comes to in a thread of its own."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


def in_thread(function: Callable[[], T], name: str = "worker") -> T:
    """What *function* returns in a thread that has ended by then."""
    result: list[T] = []
    thread = threading.Thread(target=lambda: result.append(function()), name=name, daemon=True)
    thread.start()
    thread.join(_WITHIN)
    return result[0]
