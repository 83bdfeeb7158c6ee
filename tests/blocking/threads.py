"""A test begins threads, waits for their results, and for what it sees of them."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
_WITHIN = 30.0


def until(predicate: Callable[[], object]) -> None:
    """Return as soon as the predicate holds."""
    ends = time.monotonic() + _WITHIN
    while not predicate():
        assert time.monotonic() < ends, "not in time"
        time.sleep(0.001)


def begin(function: Callable[[], T], name: str = "worker") -> "Future[T]":
    """Begin *function* in a new thread; the future gets its result."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return result


def in_thread(function: Callable[[], T], name: str = "worker") -> T:
    """The result of *function*, which runs in a new thread; that thread has ended."""
    result: list[T] = []
    thread = threading.Thread(target=lambda: result.append(function()), name=name, daemon=True)
    thread.start()
    thread.join(_WITHIN)
    return result[0]
