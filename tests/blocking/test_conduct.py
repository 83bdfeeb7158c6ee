"""The functions of threads run without their lock, or not at all, or get an old result."""

import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import redis as synchronous

from aiolock import BackendError, Bypassed, LockConfig, LockEvent
from aiolock._keys import LockKeys, old_key
from aiolock.blocking import LockClient
from tests.blocking.threads import begin, until


def count(runs: list[int]) -> str:
    runs.append(len(runs) + 1)
    return f"token {runs[-1]}"


# While the lock is busy.


def test_a_call_is_skipped_while_the_lock_is_busy(client: LockClient, elsewhere: LockClient) -> None:
    runs: list[int] = []
    one = client.synchronized("orders", busy="skip")(partial(count, runs))
    several = client.synchronized("orders", "others", busy="skip")(partial(count, runs))
    counted = client.synchronized("seats", of=lambda locks, name: locks.counting_semaphore(name, 1), busy="skip")(
        partial(count, runs)
    )
    with elsewhere.lock("orders"), elsewhere.counting_semaphore("seats", 1):
        assert [one(), several(), counted()] == [None] * 3
    assert [one(), several(), counted()] == ["token 1", "token 2", "token 3"]
    assert client.statistics().held == 0


# While Redis fails.


@pytest.fixture
def nowhere() -> Iterator[tuple[LockClient, list[LockEvent]]]:
    """A client of a server that is not there."""
    events: list[LockEvent] = []
    with socket.socket() as taken:
        # The socket does not listen, so every connection is refused.
        taken.bind(("127.0.0.1", 0))
        config = LockConfig(command_timeout=0.2, release_timeout=0.2, on_event=events.append)
        with LockClient.from_url(f"redis://127.0.0.1:{taken.getsockname()[1]}", config=config) as client:
            yield client, events


def test_a_function_runs_without_its_lock_while_redis_fails(nowhere: tuple[LockClient, list[LockEvent]]) -> None:
    client, events = nowhere
    runs: list[int] = []
    with pytest.raises(BackendError):
        client.synchronized("orders")(partial(count, runs))()
    assert client.synchronized("orders", on_unavailable="run")(partial(count, runs))() == "token 1"
    assert client.once("invoice", keep=60, on_unavailable="run").run(partial(count, runs)) == "token 2"
    with client.once("invoice", keep=60, on_unavailable="run") as turn:
        assert (bool(turn), turn.bypassed, turn.lease, turn.done) == (True, True, None, False)
    assert turn.done
    assert [event.name for event in events if isinstance(event, Bypassed)] == ["orders", "invoice", "invoice"]


# Results.


def test_a_result_says_for_how_long_it_is_kept(client: LockClient, database: "synchronous.Redis") -> None:
    runs: list[int] = []
    assert client.once("oauth", keep=lambda token: 100 * len(token)).run(partial(count, runs)) == "token 1"
    assert 690 < database.pttl("aiolock_once:{oauth}") / 1000 <= 700
    with pytest.raises(TypeError, match="keep of once 'bad'"):
        client.once("bad", keep=lambda _: None).run(partial(count, runs))  # type: ignore[arg-type,return-value]
    assert client.statistics().held == 0
    assert client.once("bad", keep=60).run(partial(count, runs)) == "token 3"


def test_one_caller_refreshes_a_result_and_the_others_get_the_old_one(
    client: LockClient, elsewhere: LockClient, database: "synchronous.Redis"
) -> None:
    runs: list[int] = []
    once, begun, may_end = client.once("oauth", keep=60, stale=60), threading.Event(), threading.Event()
    assert once.run(partial(count, runs)) == "token 1"
    assert database.exists(old_key(LockKeys.of_once("oauth", "")))
    database.delete("aiolock_once:{oauth}")

    def refresh() -> str:
        begun.set()
        may_end.wait(30)
        return count(runs)

    refreshing = begin(partial(once.run, refresh))
    begun.wait(30)
    for each in (client, elsewhere):
        with each.once("oauth", keep=60, stale=60) as turn:
            assert (bool(turn), turn.stale, turn.result) == (False, True, "token 1")
    may_end.set()
    assert refreshing.result() == "token 2"
    until(lambda: client.statistics().held == 0)
