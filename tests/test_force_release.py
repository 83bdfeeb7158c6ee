"""A release by force, beside acquires of the same client: each holder learns the truth about its own grant."""

import asyncio
from functools import partial
from time import monotonic

import pytest

from aiolock import LeaseLostError, LockClient
from aiolock._backend import Backend, Call
from aiolock._scripts import FORCE_RELEASE
from aiolock.testing import Fault, around

NAME = "orders"
SOON = 5.0


class AnsweredLater(Fault):
    """The server executes the first call of a script at once, and the client gets the answer later."""

    def __init__(self, name: str, backend: Backend) -> None:
        super().__init__(backend)
        self.executed = asyncio.Event()
        self._name = name
        self._asked: Call | None = None
        self._first: Call

    def submit(self, call: Call) -> None:
        if call.script.name != self._name or self._asked is not None:
            super().submit(call)
            return
        self._asked = call
        self._first = Call(call.script, call.keys, call.args, call.deadline, call.resend_until)
        self._first.when_ended(lambda _: self.executed.set())
        super().submit(self._first)

    def answer(self, *, again: bool = False) -> None:
        """Give the client the answer, or, if the call was sent *again*, the same answer to the second copy."""
        assert self._asked is not None
        self._asked.sent = monotonic() if again else self._first.sent
        self._asked.end(self._first.answer)


async def test_a_grant_after_the_lock_was_freed_is_kept(locks: LockClient, other: LockClient) -> None:
    lost = await other.lock(NAME).acquire()
    with around(locks, partial(AnsweredLater, FORCE_RELEASE.name)) as later:
        forcing = asyncio.create_task(locks.lock(NAME).force_release())
        await later.executed.wait()
        held = await locks.lock(NAME, owner="next").acquire()
        later.answer(again=True)
        assert await forcing
        await held.renew()
        held.check()
        await held.release()
    assert not await other.lock(NAME).locked()
    with pytest.raises(LeaseLostError):
        await lost.release()


async def test_a_grant_just_before_the_lock_was_freed_is_lost_at_once(locks: LockClient) -> None:
    lease, freed = await asyncio.gather(locks.lock(NAME, owner="me").acquire(), locks.lock(NAME).force_release())
    assert freed
    async with asyncio.timeout(SOON):
        assert await lease.lost == "forced"


@pytest.mark.parametrize("lease", [None, 60])
async def test_a_grant_that_is_heard_of_after_the_lock_was_freed_is_lost_at_once(
    locks: LockClient, lease: float | None
) -> None:
    """As with `LockConfig.replicas`, which have to acknowledge the grant."""
    with around(locks, partial(AnsweredLater, "acquire")) as later:
        acquiring = asyncio.create_task(locks.lock(NAME, owner="me").acquire(lease=lease))
        await later.executed.wait()
        assert await locks.lock(NAME).force_release()
        later.answer()
        held = await acquiring
        async with asyncio.timeout(SOON):
            assert await held.lost == "forced"


async def test_an_older_grant_that_is_heard_of_later_takes_nothing_from_a_newer_one(
    locks: LockClient, other: LockClient
) -> None:
    with around(locks, partial(AnsweredLater, "acquire")) as later:
        first = asyncio.create_task(locks.lock(NAME, owner="first").try_lock())
        await later.executed.wait()
        assert await other.lock(NAME).force_release()
        held = await locks.lock(NAME, owner="second").acquire()
        later.answer()
        assert await first is None
        held.check()
        await held.release()
    assert not await other.lock(NAME).locked()
