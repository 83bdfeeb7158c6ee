"""The scripts as plain calls: what each is sent with. Durations are in seconds here, milliseconds from here on."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from time import monotonic

from aiolock._backend import Argument, Backend, Call
from aiolock._config import ENDED_MEMORY, Timing
from aiolock._core.hold import Hold, Remains
from aiolock._keys import LockKeys, card_key, mark_key
from aiolock._scripts import CARD, MARK, NONE, READ_CARD, READ_MARK, Claim, Script, Want
from aiolock._types import milliseconds

_MOST_TOGETHER = 32  # Locks, or permits, that one script renews, for whose time the server does nothing else.
_MEMORY = str(milliseconds(ENDED_MEMORY))
_TURN = 2000  # Milliseconds for which one who waits may keep others from overtaking, unless it asks again.
_MOST_FORGETTABLE = 1024  # Names whose last clean ends are kept in mind, so that the server need not.
_MOST_ENDS = 128  # Of one name.
_FORGOTTEN_AT_ONCE = 16  # By one command.
_QUIET = ":quiet"  # Behind the channel: nobody listens there, and who may publish on the one may on the other.
_REMEMBERED = ENDED_MEMORY / 2  # Seconds for which the server surely remembers what was counted, from when it was sent.


class Commands:
    """Sends the scripts of one client."""

    def __init__(self, client: str, backend: Backend, timing: Timing) -> None:
        self._client = client
        self._ids = count(1)
        self.backend: Backend = backend  # The only way to Redis: who wraps it has all that is sent.
        self._timing = timing
        self._retention = str(milliseconds(timing.token_retention))  # Text: it is not to be made so for each command.
        # By lock, ended acquisitions that the server may forget: the next end of another one says so.
        self._forgettable: OrderedDict[str, list[str]] = OrderedDict()

    def claim(self, want: Want, owner: str) -> Claim:
        """A new acquisition, of an id that no other has or will have."""
        number, every, record = next(self._ids), want.keys.all, want.keys.record
        if record is not None:
            every = (*every, f"{record[0]}{owner}{record[1]}")
        if want.scripts.reentrant:
            return Claim(want, owner, f"{self._client}:{number}", owner, every)
        return Claim(want, owner, id := f"{owner}#{number}", f"#{id}", every)

    def acquire(
        self, claim: Claim, lease: float, *, step: int = 1, holds: int = 1, waits: bool = True, arrived: int = 0
    ) -> Call:
        """
        Become the owner's first hold, or one more of those that an owner may have several of.

        Where there is a line, the server said when it *arrived* there, unless it has not been asked yet.
        """
        keys, scripts, amount, terms, _ = claim.want
        if scripts.release is NONE:
            return self.send(scripts.acquire, (keys.lock,), ())
        arguments: tuple[Argument, ...]
        if scripts.reentrant:
            arguments = (claim.owner, claim.id, step, holds, round(lease * 1000), self._retention, _MEMORY)
        else:
            length = round(lease * 1000) if scripts.expires else _MEMORY
            arguments = (claim.id, length, self._retention, *amount, *terms)
        if scripts.line:
            arguments = (*arguments, int(waits), arrived)
        if scripts.turns:
            arguments = (*arguments, _TURN if waits else 0)
        if scripts.acquire.publishes:
            arguments = (*arguments, keys.channel)
        return self.send(scripts.acquire, claim.keys, arguments)

    def acquire_again(self, hold: Hold, lease: float) -> Call:
        """Tell the server that the owner of *hold* has as many holds as it has leases now."""
        hold.step += 1
        return self.acquire(hold.claim, lease, step=hold.step, holds=len(hold.leases), waits=False)

    def release(self, hold: Hold, left: int) -> Call:
        """Tell the server that the owner of *hold* has so many holds *left*."""
        if not left and hold.remains is not None and hold.remains.until > monotonic():
            return self._release_later(hold, hold.remains)
        hold.step += 1
        return self._release(hold.claim, hold.step, left, hold.expires + ENDED_MEMORY)

    def may_forget(self, keys: LockKeys, id: str) -> None:
        """
        The server need not remember the end of the acquisition, or of the change, that has this *id*.

        It does so for commands that come late: an acquire, which must be granted nothing, and a second copy of a
        release or a change, which is to be answered like the first. None can come if each was sent only once, and what
        changed the hold count has been answered. The next end of the same name says so.
        """
        ends = self._forgettable.setdefault(keys.entry, [])
        ends.append(id)
        if len(ends) > _MOST_ENDS:
            del ends[0]
        if len(self._forgettable) > _MOST_FORGETTABLE:
            self._forgettable.popitem(last=False)

    def give_up(self, claim: Claim, lease: float, *, quietly: bool = False) -> None:
        """
        Free what an acquire of unknown outcome was granted, and see to it that it is granted nothing any more.

        *quietly* where another holds the lock all the same, so that nobody need be told, the caller neither.
        """
        if claim.want.scripts.release is not NONE:
            until = monotonic() + ENDED_MEMORY + lease
            _ = self._release(claim, 2, 0, until, granted=False, suffix=_QUIET if quietly else "")

    def renew(self, leases: Sequence[tuple[Hold, float]], patience: float) -> Call:
        """Let each hold live as many seconds from now, all by one script; nothing queues before it."""
        keys: list[str] = []
        arguments: list[Argument] = [self._retention, _MEMORY]
        for hold, lease in leases:
            want = hold.claim.want
            keys += hold.claim.keys
            hold.renewal += 1
            numbered = (hold.renewal,) if want.scripts.reentrant else ()
            arguments += (hold.claim.id, *numbered, milliseconds(lease), *want.amount)
        script = leases[0][0].claim.want.scripts.renew
        return self.send(script, tuple(keys), tuple(arguments), patience=patience)

    def together(self, holds: Iterable[Hold]) -> Iterator[list[Hold]]:
        """
        *holds*, by which may be renewed by one script.

        Those of the same primitive, if one server has all; but who got no answer last time goes alone, lest it be the
        one that keeps the others from theirs.
        """
        groups: dict[Script, list[Hold]] = {}
        sizes = Counter[Script]()
        for hold in holds:
            if hold.unanswered or self.backend.apart:
                yield [hold]
                continue
            want = hold.claim.want
            renew = want.scripts.renew
            groups.setdefault(renew, []).append(hold)
            sizes[renew] += sum(want.amount) or 1
            if sizes[renew] >= _MOST_TOGETHER:
                sizes[renew] = 0
                yield groups.pop(renew)
        yield from groups.values()

    def force_release(self, want: Want, request: str | None = None) -> Call:
        """Free the lock whoever holds it; *request* is unique, and the same when it is sent again."""
        request = request or f"{self._client}:{next(self._ids)}"
        arguments = (request, self._retention, _MEMORY, want.keys.channel)
        return self.send(want.scripts.force_release, want.keys.all, arguments)

    def change(self, script: Script, keys: LockKeys, how: tuple[Argument, ...], *, frees: bool = False) -> Call:
        """Let a *script* of one primitive's own change it, which is tried as a release is when it *frees* something."""
        request = f"{self._client}:{next(self._ids)}"
        arguments = (request, self._retention, _MEMORY, self._take_forgettable(keys), *how)
        patience = self._timing.release_timeout if frees else self._timing.command_timeout
        until = monotonic() + _REMEMBERED if frees else 0.0
        return self.send(script, keys.all, arguments, patience=patience, until=until)

    def write_card(self, ttl: float, facts: tuple[Argument, ...]) -> None:
        """Say who this client is, for *ttl* seconds."""
        _ = self.send(CARD, (card_key(self._client),), (milliseconds(ttl), *facts))

    def read_card(self, client: str) -> Call:
        """Ask who *client* is."""
        return self.send(READ_CARD, (card_key(client),), ())

    def leave_mark(self, hold: Hold, mark: str, ttl: float) -> None:
        """Leave *mark* beside the lock, for *ttl* seconds; 0 takes it away. Nobody waits for the answer."""
        _ = self.send(MARK, (mark_key(hold.keys),), (hold.claim.id, mark, milliseconds(ttl)))

    def read_mark(self, keys: LockKeys) -> Call:
        """Ask for the mark that was left beside a lock."""
        return self.send(READ_MARK, (mark_key(keys),), ())

    def _take_forgettable(self, keys: LockKeys) -> str:
        """Ends that the server may forget, with spaces between them."""
        ends = self._forgettable.pop(keys.entry, [])
        if len(ends) > _FORGOTTEN_AT_ONCE:
            self._forgettable[keys.entry] = ends[_FORGOTTEN_AT_ONCE:]
        return " ".join(ends[:_FORGOTTEN_AT_ONCE])

    # A release is tried as long as there can be something to free: until the lease is over, and that of an acquire or
    # a renewal that arrives as late as any command may.
    def _release(
        self, claim: Claim, step: int, left: int, until: float, *, granted: bool = True, suffix: str = ""
    ) -> Call:
        keys, scripts, amount, *_ = claim.want
        forgettable = "" if left else self._take_forgettable(keys)
        who: tuple[Argument, ...] = (claim.owner, claim.id, step, left) if scripts.reentrant else (claim.id,)
        if not scripts.expires:
            who, until = (claim.id, int(granted)), min(until, monotonic() + _REMEMBERED)
        arguments = (*who, self._retention, _MEMORY, forgettable, *amount, keys.channel + suffix)
        return self.send(scripts.release, claim.keys, arguments, patience=self._timing.release_timeout, until=until)

    def _release_later(self, hold: Hold, remains: Remains) -> Call:
        """Give *hold* back, and leave *remains* for what is left of their time: if it comes late, until later."""
        claim, stays = hold.claim, max(1, milliseconds(remains.until - monotonic()))
        memory = (max(int(self._retention), stays), _MEMORY, self._take_forgettable(hold.keys))
        arguments = (claim.id, *memory, stays, remains.field, remains.value, hold.keys.channel)
        until, patience = hold.expires + ENDED_MEMORY, self._timing.release_timeout
        return self.send(claim.want.scripts.release_later, claim.keys, arguments, patience=patience, until=until)

    def send(
        self,
        script: Script,
        keys: tuple[str, ...],
        args: tuple[Argument, ...],
        *,
        patience: float | None = None,
        until: float = 0.0,
    ) -> Call:
        """Send a *script*; its caller hears of a failure after *patience* seconds, but it may be tried *until* then."""
        patience = self._timing.command_timeout if patience is None else patience
        call = Call(script, keys, args, monotonic() + patience, until)
        self.backend.submit(call)
        return call
