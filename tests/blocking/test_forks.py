"""A fork: a client that was used is refused in the child; one that was not used works in both processes."""

import os
import time
import traceback
from collections.abc import Callable

import pytest

import aiolock
from aiolock._embedded_server import Server
from aiolock.blocking import LockClient

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")


def in_child(child: Callable[[], object]) -> str:
    """The result of the function in a fork of this process, or its error, as text."""
    readable, writable = os.pipe()
    if os.fork() == 0:
        try:
            told = repr(child())
        except BaseException:
            told = traceback.format_exc()
        os.write(writable, told.encode())
        # The child cleans nothing up: its open files belong to the parent, too.
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        told = pipe.read()
    os.wait()
    return told


def test_a_client_that_was_used_is_refused_in_a_child_and_works_on_in_the_parent(
    client: LockClient, elsewhere: LockClient
) -> None:
    lock = client.lock("orders")
    lease = lock.acquire()

    def child() -> list[str]:
        refused = []
        for use in (client.ping, lock.acquire, lease.release, lease.check, lock.__enter__, client.close):
            with pytest.raises(aiolock.ClientClosedError, match="another process") as caught:
                use()
            refused.append(caught.value.reason)
        return [*refused, repr(client.statistics().held)]

    assert in_child(child) == repr(["other process"] * 6 + ["1"])
    lease.check()
    assert elsewhere.lock("orders").try_lock() is None
    lease.release()


def test_a_child_is_told_of_no_loss_of_its_parents_lock(client: LockClient) -> None:
    """Nothing renews the child's copy of a lease, whose time is over soon."""
    lease = client.lock("orders").acquire(lease=0.3)

    def child() -> str:
        while lease.remaining > 0:
            time.sleep(0.05)
        with pytest.raises(aiolock.ClientClosedError) as caught:
            lease.release()
        return caught.value.reason

    assert in_child(child) == repr("other process")


def test_a_child_leaves_the_blocks_of_its_parent_without_a_word(client: LockClient) -> None:
    lock = client.lock("orders")
    with lock as lease:
        for block in (lock, client):
            told = in_child(lambda: block.__exit__(None, None, None))  # noqa: B023
            assert told == "None"
        assert lock.held()
        lease.check()


@pytest.mark.usefixtures("database")
def test_a_client_that_was_not_used_works_in_both(server: Server) -> None:
    with LockClient.from_url(server.url) as locks:
        lock = locks.lock("orders")

        def child() -> bool:
            with locks, lock.hold(wait=0):
                return lock.held()

        assert in_child(child) == "True"
        with lock.hold(wait=0):
            assert "another process before a fork" in in_child(lock.hold_count)


@pytest.mark.usefixtures("database")
def test_a_fork_while_another_thread_begins_the_loop_does_not_hang_the_child(server: Server) -> None:
    with LockClient.from_url(server.url) as locks:
        # A thread that begins the loop takes this lock, too.
        with locks._runner._beginning:
            told = in_child(lambda: locks.lock("orders").try_lock() is not None)
        assert told == "True"
