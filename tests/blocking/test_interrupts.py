"""An interrupt (Ctrl-C, the soft limit of Celery) at any step leaves no lock held that no caller got."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import redis as synchronous
from redis.asyncio import Redis

from aiolock import ClientClosedError, LockConfig
from aiolock._embedded_server import Server
from aiolock.blocking import CountingSemaphore, Lease, LockClient
from tests.blocking.threads import begin, until
from tests.support.trees import PACKAGE
from tests.support.uncollected import uncollected

_FOLDER = str(PACKAGE / "_blocking")
_MOST_STEPS = 400


class SoftLimitError(Exception):
    """An error like that of Celery, which the handler of a signal raises."""


def raise_limit(number: int, frame: object) -> None:
    raise SoftLimitError


@pytest.fixture
def soft_limit() -> Iterator[Callable[[], None]]:
    """A function that interrupts the main thread by a signal."""
    before = signal.signal(signal.SIGUSR1, raise_limit)
    main = threading.main_thread().ident
    assert main is not None
    yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


Enter = Callable[[LockClient], Callable[[], object]]
WAITS: dict[str, Enter] = {
    "acquire": lambda locks: locks.lock("orders").acquire,
    "try_lock": lambda locks: lambda: locks.lock("orders").try_lock(wait=None),
    "with lock": lambda locks: locks.lock("orders").__enter__,
    "with hold": lambda locks: locks.lock("orders").hold(wait=60).__enter__,
    "with multi": lambda locks: locks.multi("orders", "a").__enter__,
    "with fair_lock": lambda locks: locks.fair_lock("orders").__enter__,
    "with leader": lambda locks: locks.leader("orders").__enter__,
    "for term in leader": lambda locks: lambda: next(iter(locks.leader("orders"))),
}


@pytest.mark.parametrize("enter", WAITS.values(), ids=WAITS)
def test_a_wait_that_is_interrupted_leaves_nothing_behind(
    client: LockClient,
    elsewhere: LockClient,
    database: "synchronous.Redis",
    soft_limit: Callable[[], None],
    enter: Enter,
) -> None:
    def interrupt() -> None:
        until(lambda: client.statistics().parked)
        soft_limit()

    with elsewhere.lock("orders"):
        interrupting = begin(interrupt)
        with pytest.raises(SoftLimitError):
            enter(client)()
        interrupting.result()
    until(lambda: not database.exists("orders", "a"))
    assert client.statistics().parked == 0
    with client.lock("orders").hold(wait=0):
        pass


def may_be_interrupted(frame: FrameType, event: str, within: str) -> bool:
    """
    Whether Python may raise an interrupt at this *event*.

    Python raises none between a `with` and its body, nor where the outermost function returns.
    """
    if event == "return":
        return frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(within)
    return event == "line" and not getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupted_at(
    step: int, act: Callable[[], object], within: str = _FOLDER, handle: Callable[[], object] = interrupt
) -> bool:
    """Call *act*, and *handle* at its *step*-th line or return in the folder *within*; False: it has fewer."""
    left = step

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(within):
            return None
        left -= may_be_interrupted(frame, event, within)
        if left == 0:
            sys.settrace(None)
            handle()
        return trace

    tracing = sys.gettrace()
    # Python ignores an interrupt in a destructor, which the garbage collector may call at any step.
    with uncollected():
        sys.settrace(trace)
        try:
            _ = act()
        except (KeyboardInterrupt, ClientClosedError):
            return True
        finally:
            sys.settrace(tracing)
    return left <= 0


TAKES: dict[str, Enter] = {
    "acquire": WAITS["acquire"],
    "with lock": WAITS["with lock"],
    "with multi": WAITS["with multi"],
    "with once": lambda locks: locks.once("orders", keep=60, failures="release").__enter__,
    "with remembered once": lambda locks: locks.once("orders", keep=3600, failures="remember").__enter__,
    "try_lead": lambda locks: locks.leader("orders").try_lead,
    "permit": lambda locks: locks.semaphore("orders", 1).acquire,
}


@pytest.mark.parametrize("enter", TAKES.values(), ids=TAKES)
def test_an_interrupt_at_any_step_leaves_nothing_held(client: LockClient, enter: Enter) -> None:
    client.ping()
    for step in range(1, _MOST_STEPS):
        was_interrupted = interrupted_at(step, enter(client))
        if not was_interrupted:
            break
        until(lambda: client.statistics().held == 0)
    assert 5 < step < _MOST_STEPS
    assert client.statistics().held >= 1


_PYTHON = str(Path(threading.__file__).parent)


def test_the_loop_goes_on_after_an_interrupt_at_any_step_of_python_itself(client: LockClient) -> None:
    client.ping()
    for step in range(1, _MOST_STEPS):
        was_interrupted = interrupted_at(step, client.lock("orders").locked, within=_PYTHON)
        begin(client.ping).result(30)
        if not was_interrupted:
            break
    assert 5 < step < _MOST_STEPS


@pytest.mark.usefixtures("database")
def test_a_thread_may_begin_after_an_interrupt_at_any_step_of_python_itself(
    server: Server,
) -> None:
    for step in range(1, _MOST_STEPS):
        with LockClient.from_url(server.url) as fresh:
            # Python itself can fail if an interrupt comes as it starts a thread.
            begin(fresh.ping).result(30)
            was_interrupted = interrupted_at(step, fresh.ping, within=_PYTHON)
            begin(fresh.ping).result(30)
        if not was_interrupted:
            break
    assert 5 < step < _MOST_STEPS


def test_an_interrupt_of_the_first_wait_leaves_no_thread_behind(server: Server) -> None:
    before = threading.active_count()
    for step in range(1, _MOST_STEPS):
        with LockClient.from_url(server.url) as fresh:
            was_interrupted = interrupted_at(step, fresh.ping, within=str(PACKAGE / "_blocking/outcome.py"))
            fresh.ping()
        until(lambda: threading.active_count() <= before)
        if not was_interrupted:
            break
    assert 5 < step < _MOST_STEPS


# Python may interrupt a function as it begins, before its `try`, where its code cannot help.
_LINES_BEFORE_TRY = 2


def test_a_block_that_ends_is_left_despite_an_interrupt_at_any_step(client: LockClient) -> None:
    lock = client.lock("orders")
    for step in range(1 + _LINES_BEFORE_TRY, _MOST_STEPS):
        block = lock.hold()
        block.__enter__()
        if not interrupted_at(step, lambda: block.__exit__(None, None, None)):  # noqa: B023
            break
        until(lambda: client.statistics().held == 0)
    assert 5 < step < _MOST_STEPS
    assert client.statistics().held == 0


def first_call(locks: LockClient) -> Callable[[], object]:
    # The event loop begins before, so that an interrupt leaves none half made.
    begin(locks.ping).result(30)
    return locks.lock("orders").locked


MADE: dict[str, Enter] = {
    "a block": lambda locks: locks.semaphore("orders", 1).hold,
    "a client": lambda locks: partial(LockClient, Redis(), config=LockConfig()),
    "the deputy of a thread": first_call,
}


@pytest.mark.usefixtures("database")
@pytest.mark.filterwarnings("ignore:.*was never entered")
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_no_destructor_fails_after_an_interrupt_at_any_step_as_an_object_is_made(
    server: Server, make: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    for step in range(1, _MOST_STEPS):
        with LockClient.from_url(server.url) as fresh:
            if not interrupted_at(step, make(fresh), within=str(PACKAGE)):
                break
    assert 5 < step < _MOST_STEPS
    assert not failed


@pytest.mark.parametrize(
    "verb", [CountingSemaphore.acquire, CountingSemaphore.try_acquire, CountingSemaphore.__enter__]
)
def test_an_interrupt_at_any_step_loses_no_permit(
    client: LockClient, verb: Callable[[CountingSemaphore], object]
) -> None:
    semaphore = client.counting_semaphore("orders", 1)
    client.ping()
    for step in range(1, _MOST_STEPS):
        if not interrupted_at(step, lambda: verb(semaphore)):
            break
        until(lambda: semaphore.available() == 1)
    assert 5 < step < _MOST_STEPS
    assert semaphore.available() == 0


@pytest.mark.parametrize("is_fresh", [True, False], ids=["first use", "later use"])
@pytest.mark.parametrize("within", [str(PACKAGE), _PYTHON], ids=["aiolock", "Python"])
def test_a_client_ends_when_a_signal_handler_closes_it_at_any_step(
    server: Server, database: "synchronous.Redis", within: str, is_fresh: bool
) -> None:
    def closed_at(step: int) -> bool:
        with LockClient.from_url(server.url) as locks:
            lock = locks.lock("orders")
            if not is_fresh:
                locks.ping()
            return interrupted_at(step, lock.acquire, within, locks.close)

    for step in range(1, _MOST_STEPS):
        if not begin(partial(closed_at, step)).result(30):
            break
        assert not database.exists("orders")
    assert 5 < step < _MOST_STEPS


def test_a_client_stays_whole_when_a_signal_handler_uses_it_at_any_step(server: Server) -> None:
    def used_at(step: int) -> bool:
        with LockClient.from_url(server.url) as locks:

            def use() -> None:
                with suppress(RuntimeError):
                    used.append(locks.lock("another").acquire())

            used: list[Lease] = []
            was_used = interrupted_at(step, locks.lock("orders").acquire, str(PACKAGE), use)
            assert locks.lock("orders").held()
            for lease in used:
                lease.release()
            return was_used

    for step in range(1, _MOST_STEPS):
        if not begin(partial(used_at, step)).result(30):
            break
    assert 5 < step < _MOST_STEPS
