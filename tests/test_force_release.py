"""A release by force, beside acquires of the same client: each holder learns what is true of its own grant."""

import asyncio
from time import monotonic

import pytest

from aiolock import LeaseLostError, LockClient
from aiolock._backend import Backend, Call
from aiolock._scripts import FORCE_RELEASE
from aiolock.testing import Fault, around

NAME = "orders"
SOON = 5.0


class Repeated(Fault):
    """Executes a release by force at once, and answers it later, as the copy that was sent again would be answered."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.executed = asyncio.Event()
        self._asked: Call
        self._first: Call

    def submit(self, call: Call) -> None:
        if call.script is not FORCE_RELEASE:
            super().submit(call)
            return
        self._asked = call
        self._first = Call(call.script, call.keys, call.args, call.deadline, call.resend_until)
        self._first.when_ended(lambda _: self.executed.set())
        super().submit(self._first)

    def answer(self) -> None:
        self._asked.sent = monotonic()
        self._asked.end(self._first.answer)


async def test_a_grant_after_the_lock_was_freed_is_kept(locks: LockClient, other: LockClient) -> None:
    lost = await other.lock(NAME).acquire()
    with around(locks, Repeated) as repeated:
        forcing = asyncio.create_task(locks.lock(NAME).force_release())
        await repeated.executed.wait()
        held = await locks.lock(NAME, owner="next").acquire()
        repeated.answer()
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


class Late(Fault):
    """The server answers the first acquire at once, and the client hears that later."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.granted = asyncio.Event()
        self._asked: Call | None = None
        self._first: Call

    def submit(self, call: Call) -> None:
        if call.script.name != "acquire" or self._asked is not None:
            super().submit(call)
            return
        self._asked = call
        self._first = Call(call.script, call.keys, call.args, call.deadline, call.resend_until)
        self._first.when_ended(lambda _: self.granted.set())
        super().submit(self._first)

    def answer(self) -> None:
        assert self._asked is not None
        self._asked.sent = self._first.sent
        self._asked.end(self._first.answer)


async def test_an_older_grant_that_is_heard_of_later_takes_nothing_from_a_newer_one(
    locks: LockClient, other: LockClient
) -> None:
    with around(locks, Late) as late:
        first = asyncio.create_task(locks.lock(NAME, owner="first").try_lock())
        await late.granted.wait()
        assert await other.lock(NAME).force_release()
        held = await locks.lock(NAME, owner="second").acquire()
        late.answer()
        assert await first is None
        held.check()
        await held.release()
    assert not await other.lock(NAME).locked()
