"""Every path of every script, walked on a lock that nobody else has: also those that only failures lead to."""

from collections.abc import Awaitable
from typing import Any
from uuid import uuid4

from aiolock import AsyncRLock, Lease, LeaseLostError, LockClient, LossReason, NotALockError
from aiolock._cli.doctor.permissions import known_of
from aiolock._cli.doctor.probe import Probe
from aiolock._core.hold import Hold
from aiolock._keys import LockKeys
from aiolock._scripts import CARD, GRANTED, LOCK, LOST, READ_CARD, STALE, Claim, Script, Want

_LEASE = 10.0  # Seconds: longer than all that is tried with it may take, and soon over if it cannot be given back.
_MILLISECONDS = str(round(_LEASE * 1000))


class WrongAnswerError(Exception):
    """The server did something else than Redis does."""


class Walk:
    """
    *ours* and *theirs* stand for two processes; *probe*, connected to the server that has the lock, for the rest.

    *place* says in words where the walk is.
    """

    def __init__(self, ours: LockClient, theirs: LockClient, probe: Probe, keys: LockKeys) -> None:
        self.place: str = ""
        self._ours = ours
        self._theirs = theirs.lock(keys.name, owner="theirs")
        self._probe = probe
        self._keys = keys

    async def go(self) -> None:
        """Walk; an error of aiolock's, of redis-py's, or `WrongAnswerError` says what is wrong."""
        await self._hold()
        await self._lose()
        await self._meet_strangers()
        await self._come_late()
        await self._show_the_card()

    async def _hold(self) -> None:
        lock = self._begin("a free lock")
        self._expect(not await lock.locked())
        lease = await self._taken(lock)
        self.place = "a lock that another holds"
        self._expect(await self._theirs.try_lock() is None)
        self._expect(await self._theirs.holder() is not None)
        self.place = "a nested hold"
        inner = await self._taken(lock)
        await inner.release()
        self.place = "a renewal"
        for _ in range(2):  # Once by its source and once by its digest.
            await lease.renew()
        self.place = "a release"
        await lease.release()
        self.place = "a release whose forerunner may be forgotten"
        await (await self._taken(lock)).release()

    async def _lose(self) -> None:
        lock = self._begin("a lock that is freed by force")
        lease = await self._taken(lock)
        self._expect(await self._theirs.force_release())
        await self._lost(lease.release(), "forced")
        self._expect(not await self._theirs.force_release())
        for act in (Lease.renew, Lease.release):
            lock = self._begin("a lock that is gone")
            lease = await self._taken(lock)
            await self._probe.ask("DEL", self._keys.lock)
            await self._lost(act(lease), "expired")
        lock = self._begin("a nested hold of a lock that is gone")
        await self._taken(lock)
        await self._probe.ask("DEL", self._keys.lock)
        await self._lost(lock.acquire(), "expired")

    async def _meet_strangers(self) -> None:
        lock = self._begin("a lock that a Java service took")
        lease = await self._taken(lock)
        await self._plant(f"{uuid4()}:1", "1")
        await self._lost(lease.renew(), "taken")
        self._expect(await self._theirs.try_lock() is None)
        self._expect(await self._theirs.force_release())
        lock = self._begin("a key that is no lock")
        await self._plant("some", "1", "other", "1")
        try:
            await lock.try_lock()
        except NotALockError:
            return
        raise WrongAnswerError("it was granted")

    async def _come_late(self) -> None:
        """What arrives twice, or after its caller gave up."""
        await self._probe.ask("DEL", self._keys.lock)
        self.place = "commands that come again"
        session = self._ours._sessions.open()
        commands, claim = session.commands, self._claim()
        granted = await self._answered(commands.acquire(claim, _LEASE), GRANTED)
        await self._answered(commands.acquire(claim, _LEASE), GRANTED)
        for _ in range(2):  # Each counts its renewals from the first, so that the second is one that comes again.
            [renewed] = await commands.renew([(Hold(claim, granted[1], session.timing), _LEASE)], self._patience)
            self._expect(renewed[0] == GRANTED)
        for _ in range(2):
            await self._answered(commands.release(Hold(claim, granted[1], session.timing), 0), GRANTED)
        for request in [str(uuid4())] * 2:
            await self._answered(commands.force_release(Want(self._keys, LOCK), request), GRANTED)
        await self._keep_for_a_while()
        self.place = "an acquire that comes late"
        await self._answered(commands.acquire(claim, _LEASE), STALE)
        claim = self._claim()
        commands.give_up(claim, _LEASE)
        await self._answered(commands.acquire(claim, _LEASE), STALE)

    async def _keep_for_a_while(self) -> None:
        """A release after which the lock is kept, and one that comes again or too late."""
        self.place = "a lock that is kept after its release"
        session = self._ours._sessions.open()
        ours = self._claim()
        await self._answered(session.commands.acquire(ours, _LEASE), GRANTED)
        for claim, status in ((ours, GRANTED), (ours, GRANTED), (self._claim(), LOST)):
            hold = Hold(claim, 0, session.timing)
            hold.keep(_LEASE, session.client)
            await self._answered(session.commands.release(hold, 0), status)
        self._expect(await self._theirs.try_lock() is None)
        self._expect(await self._theirs.force_release())

    async def _show_the_card(self) -> None:
        self.place = "a client's card"
        key = known_of(self._keys)[-1]
        await self._run(CARD, key, _MILLISECONDS, "host", "1", "name", "0")
        self._expect(await self._run(READ_CARD, key) == [b"host", b"1", b"name"])
        await self._run(CARD, key, "0", "host", "1", "name", "0")

    def _begin(self, place: str) -> AsyncRLock:
        """The lock, for an owner who never had it."""
        self.place = place
        return self._ours.lock(self._keys.name, owner=str(uuid4()))

    def _claim(self) -> Claim:
        owner = f"{uuid4()}:1"
        return Claim(Want(self._keys, LOCK), owner, str(uuid4()), owner, self._keys.all)

    @property
    def _patience(self) -> float:
        return self._ours._sessions.open().timing.command_timeout

    async def _taken(self, lock: AsyncRLock) -> Lease:
        lease = await lock.try_lock(lease=_LEASE)
        if lease is None:
            raise WrongAnswerError("it was refused, though nobody has it")
        return lease

    async def _lost(self, act: Awaitable[object], reason: LossReason) -> None:
        try:
            await act
        except LeaseLostError as error:
            self._expect(error.reason == reason)
        else:
            raise WrongAnswerError("its loss was not told")

    async def _plant(self, *fields: str) -> None:
        """Put such a hash where the lock is."""
        await self._probe.ask("DEL", self._keys.lock)
        await self._probe.ask("HSET", self._keys.lock, *fields)
        await self._probe.ask("PEXPIRE", self._keys.lock, _MILLISECONDS)

    async def _run(self, script: Script, key: str, *arguments: str) -> Any:
        return await self._probe.ask("EVAL", script.source, "1", key, *arguments)

    async def _answered(self, call: Awaitable[list[Any]], status: int) -> list[Any]:
        reply = await call
        self._expect(reply[0] == status)
        return reply

    def _expect(self, as_it_should: bool) -> None:
        if not as_it_should:
            raise WrongAnswerError("the server did something else than Redis would")
