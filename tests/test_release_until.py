"""A release is tried for as long as the server may keep the lock, by commands without an answer, too."""

from collections.abc import Awaitable, Callable
from time import monotonic

import pytest

from aiolock import BackendError, Lease, LockClient
from aiolock.testing import around, failing_commands
from tests.support.calls import Seen

NAME = "orders"
LONG = 600.0


UNANSWERED: dict[str, Callable[[LockClient, Lease], Awaitable[object]]] = {
    "renewal": lambda locks, lease: lease.renew(LONG),
    "nested acquire": lambda locks, lease: locks.lock(NAME).acquire(lease=LONG),
}
ENDS: dict[str, Callable[[Lease], Awaitable[object]]] = {
    "release": lambda lease: lease.release(),
    "detach that fails": lambda lease: lease.detach(5),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("unanswered", UNANSWERED.values(), ids=UNANSWERED)
async def test_a_release_outlasts_a_command_without_an_answer(
    locks: LockClient,
    unanswered: Callable[[LockClient, Lease], Awaitable[object]],
    end: Callable[[Lease], Awaitable[object]],
) -> None:
    started = monotonic()
    with around(locks, Seen) as seen:
        lease = await locks.lock(NAME).acquire(lease=5)
        with failing_commands(locks), pytest.raises(BackendError):
            await unanswered(locks, lease)
        with failing_commands(locks), pytest.raises(BackendError):
            await end(lease)
    releases = [call.resend_until for call in seen.calls if call.script.name == "release"]
    assert max(releases) > started + LONG
