"""The scripts as plain calls: what each is sent with. Durations are in seconds here, milliseconds from here on."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic

from aiolock._backend import Backend
from aiolock._call import Argument, Call
from aiolock._config import ENDED_MEMORY, Timing
from aiolock._lease import Hold
from aiolock._scripts import FORCE_RELEASE, Script
from aiolock._types import Claim, LockKeys, milliseconds

_MOST_TOGETHER = 32  # Renewals by one script, for whose time the server does nothing else.
_MEMORY = milliseconds(ENDED_MEMORY)
_MOST_FORGETTABLE = 1024  # Names whose last clean acquisition is kept in mind, so that the server need not.


class Commands:
    """Sends the scripts of locks."""

    def __init__(self, backend: Backend, timing: Timing) -> None:
        self._backend = backend
        self._timing = timing
        self._retention = milliseconds(timing.token_retention)
        # By lock, an ended acquisition that the server may forget: the next end of another one says so.
        self._forgettable: OrderedDict[str, str] = OrderedDict()

    def acquire(self, claim: Claim, lease: float) -> Call:
        """Become the owner's first hold."""
        return self._acquire(claim, 1, 1, lease)

    def acquire_again(self, hold: Hold, lease: float) -> Call:
        """Tell the server that the owner of *hold* has as many holds as it has leases now."""
        return self._acquire(hold.claim, hold.next_step(), len(hold.leases), lease)

    def release(self, hold: Hold) -> Call:
        """Tell the server that the owner of *hold* has as many holds as it has leases left."""
        return self._release(hold.claim, hold.next_step(), len(hold.leases), hold.expires + ENDED_MEMORY)

    def freed(self, hold: Hold, release: Call) -> None:
        """
        *release* gave the last lease of *hold* back.

        The server remembers the end for commands that come late: an acquire, which must be granted nothing, and a
        second copy of the release, which is to be answered like the first. Neither can come if each was sent only once.
        """
        if hold.sent_once and not release.repeated:
            self._forgettable[hold.keys.lock] = hold.claim.id
            if len(self._forgettable) > _MOST_FORGETTABLE:
                self._forgettable.popitem(last=False)

    def end(self, hold: Hold) -> None:
        """Tell the server that *hold* is over, whatever leases it has; nobody waits for the answer."""
        _ = self._release(hold.claim, hold.next_step(), 0, hold.expires + ENDED_MEMORY)

    def withdraw(self, call: Call) -> bool:
        """Take back an acquire that has not left yet; ``False`` if it has."""
        return self._backend.withdraw(call)

    def give_up(self, claim: Claim, lease: float) -> None:
        """Free what an acquire of unknown outcome was granted, and see to it that it is granted nothing any more."""
        _ = self._release(claim, 2, 0, monotonic() + ENDED_MEMORY + lease)

    def renew(self, leases: Sequence[tuple[Hold, float]], patience: float) -> Call:
        """Let each hold live as many seconds from now, all by one script; nothing queues before it."""
        keys: list[str] = []
        arguments: list[Argument] = [self._retention, _MEMORY]
        for hold, lease in leases:
            keys += hold.keys.both
            arguments += (hold.claim.id, hold.next_renewal(), milliseconds(lease))
        script = leases[0][0].claim.scripts.renew
        return self._backend.submit(script, tuple(keys), *arguments, patience=patience, urgent=True)

    def together(self, holds: Iterable[Hold]) -> Iterator[list[Hold]]:
        """
        *holds*, by which may be renewed by one script.

        Those of the same primitive, if one server has all; but who got no answer last time goes alone, lest it be the
        one that keeps the others from theirs.
        """
        groups: dict[Script, list[Hold]] = {}
        for hold in holds:
            if hold.unanswered or self._backend.apart:
                yield [hold]
                continue
            group = groups.setdefault(hold.claim.scripts.renew, [])
            group.append(hold)
            if len(group) == _MOST_TOGETHER:
                yield groups.pop(hold.claim.scripts.renew)
        yield from groups.values()

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
        forgettable = "" if left else self._forgettable.pop(claim.keys.lock, "")
        how = (self._retention, _MEMORY, forgettable, claim.keys.channel)
        arguments = (claim.owner, claim.id, step, left, *how)
        patience = self._timing.release_timeout
        return self._backend.submit(claim.scripts.release, claim.keys.both, *arguments, patience=patience, until=until)
