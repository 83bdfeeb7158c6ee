"""The scripts as plain calls: what each is sent with. Durations are in seconds here, milliseconds from here on."""

from time import monotonic

from aiolock._backend import Backend
from aiolock._call import Call
from aiolock._config import ENDED_MEMORY, Timing
from aiolock._lease import Hold
from aiolock._scripts import FORCE_RELEASE
from aiolock._types import Claim, LockKeys, milliseconds

_MEMORY = milliseconds(ENDED_MEMORY)


class Commands:
    """Sends the scripts of locks."""

    def __init__(self, backend: Backend, timing: Timing) -> None:
        self._backend = backend
        self._timing = timing
        self._retention = milliseconds(timing.token_retention)

    def acquire(self, claim: Claim, lease: float) -> Call:
        """Become the owner's first hold."""
        return self._acquire(claim, 1, 1, lease)

    def acquire_again(self, hold: Hold, lease: float) -> Call:
        """Tell the server that the owner of *hold* has as many holds as it has leases now."""
        return self._acquire(hold.claim, hold.next_step(), len(hold.leases), lease)

    def release(self, hold: Hold) -> Call:
        """Tell the server that the owner of *hold* has as many holds as it has leases left."""
        return self._release(hold.claim, hold.next_step(), len(hold.leases), hold.expires + ENDED_MEMORY)

    def end(self, hold: Hold) -> None:
        """Tell the server that *hold* is over, whatever leases it has; nobody waits for the answer."""
        _ = self._release(hold.claim, hold.next_step(), 0, hold.expires + ENDED_MEMORY)

    def withdraw(self, call: Call) -> bool:
        """Take back an acquire that has not left yet; ``False`` if it has."""
        return self._backend.withdraw(call)

    def give_up(self, claim: Claim, lease: float) -> None:
        """Free what an acquire of unknown outcome was granted, and see to it that it is granted nothing any more."""
        _ = self._release(claim, 2, 0, monotonic() + ENDED_MEMORY + lease)

    def renew(self, hold: Hold, lease: float, patience: float) -> Call:
        """Let *hold* live *lease* seconds from now; nothing queues before it. Patience ends with the hold."""
        claim = hold.claim
        arguments = (claim.id, hold.next_renewal(), milliseconds(lease), self._retention, _MEMORY)
        patience = min(patience, hold.deadline - monotonic())
        return self._backend.submit(claim.scripts.renew, claim.keys.both, *arguments, patience=patience, urgent=True)

    def force_release(self, keys: LockKeys, request: str) -> Call:
        """Free the lock whoever holds it; *request* is unique."""
        arguments = (request, self._retention, _MEMORY, keys.channel)
        return self._backend.submit(FORCE_RELEASE, keys.both, *arguments)

    def _acquire(self, claim: Claim, step: int, holds: int, lease: float) -> Call:
        arguments = (claim.owner, claim.id, step, holds, milliseconds(lease), self._retention, _MEMORY)
        return self._backend.submit(claim.scripts.acquire, claim.keys.both, *arguments)

    # A release is tried as long as there can be something to free: until the lease is over, and that of an acquire or
    # a renewal that arrives as late as any command may.
    def _release(self, claim: Claim, step: int, left: int, until: float) -> Call:
        arguments = (claim.owner, claim.id, step, left, self._retention, _MEMORY, claim.keys.channel)
        patience = self._timing.release_timeout
        return self._backend.submit(claim.scripts.release, claim.keys.both, *arguments, patience=patience, until=until)
