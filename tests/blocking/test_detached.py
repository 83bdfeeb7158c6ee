"""Tickets of threads, beyond the contract of every primitive."""

import pytest

from aiolock import NotHeldError
from aiolock.blocking import LockClient
from tests.blocking.threads import in_thread


def test_a_thread_adopts_a_lock_that_another_thread_detached(client: LockClient) -> None:
    """The thread that detached the lock has ended before another thread adopts it."""
    lock = client.lock("it")

    def request() -> str:
        with lock as lease:
            return lease.detach(60)

    ticket = in_thread(request)
    assert lock.locked()
    with client.adopt(ticket) as lease:
        lease.check()
    assert not lock.locked()


def test_a_lease_that_was_detached_is_given_back(client: LockClient) -> None:
    lease = client.lock("it").acquire()
    ticket = lease.detach(60)
    assert lease.given_back
    with pytest.raises(NotHeldError):
        lease.release()
    client.adopt(ticket, name="it", kind="lock", lease=5, owner="job").release()


def test_a_text_that_is_no_ticket_is_refused(client: LockClient) -> None:
    with pytest.raises(ValueError, match="not a ticket"):
        client.adopt("x")
