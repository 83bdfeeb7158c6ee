"""Every path of every script, walked on a lock that nobody else uses, including the paths for failures."""

from collections.abc import Awaitable
from time import monotonic
from uuid import uuid4

from aiolock import AsyncRLock, Lease, LeaseLostError, LockClient, LossReason, NotALockError
from aiolock._cli.probe import Probe
from aiolock._core.held import Remains, Renewal
from aiolock._identity import KEPT
from aiolock._keys import LockKeys
from aiolock._scripts import LOCK, Claim, Want
from aiolock._scripts.replies import Applied, Granted, Lost, Stale

# All trials with it take less time, and it ends soon if it cannot be released.
_LEASE = 10.0
_MILLISECONDS = str(round(_LEASE * 1000))


class WrongAnswerError(Exception):
    """The server answered differently from Redis."""


class Walk:
    """
    *ours* and *theirs* stand for two processes; *probe*, connected to the server that has the lock, for all others.

    *place* names the current step of the walk.
    """

    def __init__(self, ours: LockClient, theirs: LockClient, probe: Probe, keys: LockKeys) -> None:
        self.place: str = ""
        self._ours = ours
        self._theirs = theirs.lock(keys.name, owner="theirs")
        self._probe = probe
        self._keys = keys

    async def go(self) -> None:
        """Walk; raises an error of aiolock or of redis-py, or `WrongAnswerError`, which say what is wrong."""
        await self._hold()
        await self._lose()
        await self._meet_strangers()
        await self._come_late()

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
        # The script is called by its source the first time, by its digest the second.
        for _ in range(2):
            await lease.renew()
        self.place = "a release"
        await lease.release()
        self.place = "a second release"
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
        await self._plant("HSET", f"{uuid4()}:1", "1")
        await self._lost(lease.renew(), "taken")
        self._expect(await self._theirs.try_lock() is None)
        self._expect(await self._theirs.force_release())
        for planted in (("HSET", "some", "1", "other", "1"), ("ZADD", "1", "some")):
            lock = self._begin("a key that is no lock")
            await self._plant(*planted)
            try:
                await lock.try_lock()
            except NotALockError:
                continue
            raise WrongAnswerError("it was granted")

    async def _come_late(self) -> None:
        """Commands that arrive twice, or after their caller gave up."""
        await self._probe.ask("DEL", self._keys.lock)
        self.place = "commands that come again"
        session = self._ours._sessions.open()
        commands, claim = session.commands, self._claim()
        for _ in range(2):
            await self._answered(commands.acquire(claim, _LEASE), Granted)
        for _ in range(2):
            [renewed] = await commands.renew([Renewal(claim, 1, _LEASE)], session.timing.command_timeout)
            self._expect(isinstance(renewed, Granted))
        for _ in range(2):
            await self._answered(commands.release(claim, 2, 0, until=0.0), Applied)
        for request in [str(uuid4())] * 2:
            await self._answered(commands.force_release(Want(self._keys, LOCK), request), Applied)
        await self._keep_for_a_while()
        self.place = "an acquire that comes late"
        await self._answered(commands.acquire(claim, _LEASE), Stale)
        claim = self._claim()
        commands.give_up(claim, _LEASE)
        await self._answered(commands.acquire(claim, _LEASE), Stale)

    async def _keep_for_a_while(self) -> None:
        """A release after which the lock is kept, and a release that comes again or too late."""
        self.place = "a lock that is kept after its release"
        session = self._ours._sessions.open()
        ours = self._claim()
        await self._answered(session.commands.acquire(ours, _LEASE), Granted)
        for claim, kind in ((ours, Applied), (ours, Applied), (self._claim(), Lost)):
            kept = Remains(f"{session.client}:{KEPT}", 1, monotonic() + _LEASE)
            await self._answered(session.commands.release_later(claim, 0, kept, until=0.0), kind)
        # The next end names this one, so that the server forgets it.
        session.commands.may_forget(self._keys, ours.id)
        self._expect(await self._theirs.try_lock() is None)
        self._expect(await self._theirs.force_release())

    def _begin(self, place: str) -> AsyncRLock:
        """The lock, for a new owner."""
        self.place = place
        return self._ours.lock(self._keys.name, owner=str(uuid4()))

    def _claim(self) -> Claim:
        owner = f"{uuid4()}:1"
        return Claim(Want(self._keys, LOCK), owner, str(uuid4()), owner, self._keys.all)

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
            raise WrongAnswerError("its loss was not reported")

    async def _plant(self, command: str, *values: str) -> None:
        """Put a value that is not a lock under the name of the lock: *command* makes it of *values*."""
        await self._probe.ask("DEL", self._keys.lock)
        await self._probe.ask(command, self._keys.lock, *values)
        await self._probe.ask("PEXPIRE", self._keys.lock, _MILLISECONDS)

    async def _answered(self, call: Awaitable[object], kind: type) -> None:
        self._expect(isinstance(await call, kind))

    def _expect(self, as_it_should: bool) -> None:
        if not as_it_should:
            raise WrongAnswerError("the server behaved differently from Redis")
