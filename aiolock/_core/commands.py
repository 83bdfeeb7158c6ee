"""The scripts as methods with plain arguments. Durations are in seconds here, and in milliseconds on the wire."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from time import monotonic

from aiolock._backend import Argument, Backend, Call, Delivery
from aiolock._config import ENDED_MEMORY, Timing
from aiolock._core.held import Held, Remains, Renewal
from aiolock._errors import NotALockError
from aiolock._keys import LockKeys
from aiolock._scripts import FORCE_RELEASE, NONE, PING, Claim, Script, Want
from aiolock._scripts.replies import A, Acquired, Changed, NotALock, Renewed
from aiolock._types import milliseconds

_PING = "aiolock-ping"
_MEMORY = str(milliseconds(ENDED_MEMORY))
# Milliseconds after its last try for which others may not overtake a waiter for a read or write lock, as in turns.lua.
_TURN = 2000
# Names for which this client remembers ended acquisitions that the server may forget.
_MOST_FORGETTABLE = 1024
# Such acquisitions of one name.
_MOST_ENDS = 128
# Such acquisitions that one command names.
_FORGOTTEN_AT_ONCE = 16
# The end of a channel without listeners; permissions for the normal channel cover it.
_QUIET = ":quiet"
# Seconds from a grant within which a clean release may follow. Together with the longest waits for the answers to the
# grant and to the release, this is less than the time for which servers keep marks and tokens.
_YOUNG = 20.0
# Microseconds of an age; see `freed`.
_AGE = 64_000_000
# More acquisitions than a client makes in an age.
_NUMBERS = 1 << 24
# Seconds after its sending for which the server surely remembers a change of a counter.
_REMEMBERED = ENDED_MEMORY / 2


class Commands:
    """Sends the scripts of one client; the ids of its requests begin with the *unique* part of the client's id."""

    def __init__(self, unique: str, backend: Backend, timing: Timing) -> None:
        self._unique = unique
        self._ids = count(1)
        # The only way to Redis: a wrapper of the backend sees every command.
        self.backend: Backend = backend
        self._own_backend = backend
        self._timing = timing
        # As text, to save a conversion for each command. One second more: only the first grant of a second prolongs it.
        self._retention = str(milliseconds(timing.token_retention + 1))
        # By lock, the ids of ended acquisitions that the server may forget; the next release of the lock sends them.
        self._forgettable: OrderedDict[str, list[str]] = OrderedDict()
        # The keys of locks with a clean release that has no answer yet.
        self._clean: set[tuple[str, ...]] = set()
        self._mark = f"freed {unique}"

    @property
    def has_faults(self) -> bool:
        """Whether a test makes commands fail; the thread of `max_stall`, which has its own connections, rests then."""
        return self.backend is not self._own_backend

    def claim(self, want: Want, owner: str) -> Claim:
        """A new acquisition, with an id that no other acquisition ever has."""
        number, keys = next(self._ids), want.keys
        every = keys.all if keys.record is None else keys.of_owner(owner)
        if want.scripts.reentrant:
            return Claim(want, owner, f"{self._unique}:{number}", owner, every, number)
        return Claim(want, owner, id := f"{owner}#{number}", f"#{id}", every, number)

    def acquire(
        self, claim: Claim, lease: float, *, step: int = 1, holds: int = 1, waits: bool = True, arrived: int = 0
    ) -> Call[Acquired]:
        """
        Acquire: set the owner's hold count to *holds*, as its change number *step*.

        If the server keeps a line, *arrived* is the time of arrival from its earlier refusal, or 0 in the first try.
        """
        want = claim.want
        keys, scripts, amount = want.keys, want.scripts, want.amount
        initial = "" if want.initial is None else want.initial
        owner, id, length, kept = claim.owner, claim.id, round(lease * 1000), self._retention
        arguments: tuple[Argument, ...]
        match scripts.form:
            case "lock":
                arguments = (owner, id, step, holds, length, kept, _MEMORY)
            case "fair lock":
                arguments = (owner, id, step, holds, length, kept, _MEMORY, int(waits), arrived)
            case "half":
                arguments = (owner, id, step, holds, length, kept, _MEMORY, _TURN if waits else 0, keys.channel)
            case "permits":
                arguments = (id, length, kept, *amount, initial, int(waits), arrived, keys.channel)
            case "count":
                arguments = (id, _MEMORY, kept, *amount, initial, keys.channel)
            case "question":
                return self.send(scripts.acquire, (keys.lock,), ())
        return self.send(scripts.acquire, claim.keys, arguments)

    def detach(self, claim: Claim, detached: Claim, keep: float) -> Call[Acquired]:
        """Give the lock or the permits of the acquisition *claim* to the acquisition *detached*, for *keep* seconds."""
        keys, scripts, amount = claim.want.keys, claim.want.scripts, claim.want.amount
        memory = (self._retention, _MEMORY, self._take_forgettable(keys))
        arguments: tuple[Argument, ...] = (claim.id, detached.id, milliseconds(keep), *memory, *amount, keys.channel)
        return self.send(scripts.detach, claim.keys, arguments)

    def adopt(self, claim: Claim, detached: Claim, lease: float) -> Call[Acquired]:
        """Acquire the lock or the permits that the acquisition *detached* has."""
        keys, scripts, amount = claim.want.keys, claim.want.scripts, claim.want.amount
        who: tuple[Argument, ...] = (claim.id,)
        if scripts.form in ("lock", "fair lock"):
            # As in an acquire, this is step 1, with hold count 1.
            who = (claim.owner, claim.id, 1, 1)
        memory = (milliseconds(lease), self._retention, _MEMORY)
        arguments: tuple[Argument, ...] = (*who, *memory, detached.id, *amount, keys.channel)
        return self.send(scripts.adopt, claim.keys, arguments)

    def may_forget(self, keys: LockKeys, id: str) -> None:
        """
        Note that the server may forget the end of the acquisition, or of the change, with this *id*.

        The server remembers ends because of late commands: a late acquire must be granted nothing, and a second copy of
        a release or a change must be answered like the first. No command can be late if each was sent only once, and
        all changes of the hold count have been answered. The next release of the same name sends the id to the server.
        """
        # Ids are sent with spaces between them, and the id of a permit may contain spaces from its owner's name.
        if id.split() != [id]:
            return
        ends = self._forgettable.setdefault(keys.entry, [])
        ends.append(id)
        if len(ends) > _MOST_ENDS:
            del ends[0]
        if len(self._forgettable) > _MOST_FORGETTABLE:
            self._forgettable.popitem(last=False)

    def give_up(self, claim: Claim, lease: float, *, undoes: Delivery | None = None, quietly: bool = False) -> None:
        """
        Give up an acquire whose outcome is unknown: free its grant, and make sure that the server grants nothing later.

        *undoes* is the delivery of the acquire, if the acquire was sent only once. With *quietly*, no waiter gets a
        message, because another acquisition holds the lock anyway.
        """
        if claim.want.scripts.release is not NONE:
            until = monotonic() + ENDED_MEMORY + lease
            suffix = _QUIET if quietly else ""
            # The acquire is step 1.
            _ = self.release(claim, 2, 0, until, granted=False, suffix=suffix, undoes=undoes)

    def renew(self, renewals: Sequence[Renewal], patience: float) -> Call[list[Renewed]]:
        """Send all *renewals*, which must be of one primitive, in one script, ahead of ordinary calls."""
        keys: list[str] = []
        arguments: list[Argument] = [self._retention, _MEMORY]
        for claim, number, seconds in renewals:
            keys += claim.keys
            numbered = ("" if number is None else number,) if claim.want.scripts.reentrant else ()
            arguments += (claim.id, *numbered, milliseconds(seconds), *claim.want.amount)
        script = renewals[0].claim.want.scripts.renew
        return self.send(script, tuple(keys), tuple(arguments), patience=patience)

    def force_release(self, want: Want, request: str | None = None, *, token: int | None = None) -> Call[Changed]:
        """
        Free the lock from any holder, or, for a lock with one holder at a time, only from the holder with that *token*.

        *request* is a unique id; give the same one to send the same request again.
        """
        script = want.scripts.force_release
        request = request or f"{self._unique}:{next(self._ids)}"
        holder = ("" if token is None else token,) if script is FORCE_RELEASE else ()
        return self.send(script, want.keys.all, (request, self._retention, _MEMORY, *holder, want.keys.channel))

    def change(
        self, script: Script[Changed], keys: LockKeys, how: tuple[Argument, ...], *, frees: bool = False
    ) -> Call[Changed]:
        """Change a primitive by *script*; a script that *frees* something is tried for as long as a release."""
        request = f"{self._unique}:{next(self._ids)}"
        arguments = (request, self._retention, _MEMORY, self._take_forgettable(keys), *how)
        patience = self._timing.release_timeout if frees else self._timing.command_timeout
        until = monotonic() + _REMEMBERED if frees else 0.0
        return self.send(script, keys.all, arguments, patience=patience, until=until)

    def _take_forgettable(self, keys: LockKeys) -> str:
        """The ids of ended acquisitions that the server may forget, separated by spaces; removes them here."""
        ends = self._forgettable.pop(keys.entry, [])
        if len(ends) > _FORGOTTEN_AT_ONCE:
            self._forgettable[keys.entry] = ends[_FORGOTTEN_AT_ONCE:]
        return " ".join(ends[:_FORGOTTEN_AT_ONCE])

    def release(
        self,
        claim: Claim,
        step: int,
        holds_left: int,
        until: float,
        *,
        granted: bool = True,
        suffix: str = "",
        undoes: Delivery | None = None,
    ) -> Call[Changed]:
        """
        Set the owner's hold count to *holds_left*, as its change number *step*.

        The release is tried *until* there can be nothing to free any more: until the lease would be over even if the
        latest possible acquire or renewal had arrived. *undoes* is the delivery of the acquire.
        """
        keys, scripts, amount = claim.want.keys, claim.want.scripts, claim.want.amount
        forgettable = "" if holds_left else self._take_forgettable(keys)
        who: tuple[Argument, ...] = (claim.owner, claim.id, step, holds_left)
        if scripts.form == "permits":
            who = (claim.id,)
        elif scripts.form == "count":
            who, until = (claim.id, int(granted)), min(until, monotonic() + _REMEMBERED)
        arguments = (*who, self._retention, _MEMORY, forgettable, *amount, keys.channel + suffix)
        patience = self._timing.release_timeout
        return self.send(scripts.release, claim.keys, arguments, patience=patience, until=until, undoes=undoes)

    def release_clean(self, hold: Held, until: float) -> Call[Changed] | None:
        """
        Release *hold* so that the server need not remember its id; `None` if another command of it may arrive late.

        Instead, the server has one mark for this client and name, by which a second copy of the release learns what the
        first one did. So the result is also `None` while an earlier clean release of this name has neither an
        answer nor failed.
        """
        claim = hold.claim
        keys, scripts = claim.want.keys, claim.want.scripts
        # Whether another change of the hold count, besides this release, may still arrive.
        may_be_late = hold.open_changes > 1 or hold.delivery is not None
        if scripts.release_clean is NONE or may_be_late or claim.keys in self._clean:
            return None
        if monotonic() >= min(hold.confirmed_at, hold.since) + _YOUNG:
            return None
        number = freed(hold.token, claim.number)
        arguments = (claim.id, number, self._mark, self._retention, _MEMORY, keys.channel)
        patience = self._timing.release_timeout
        self._clean.add(claim.keys)
        script, ended = scripts.release_clean, self._clean_ended
        return self.send(script, claim.keys, arguments, patience=patience, until=until, ended=ended)

    def _clean_ended(self, release: Call[Changed]) -> None:
        self._clean.discard(release.keys)

    def release_later(
        self, claim: Claim, token: int, remains: Remains, until: float, *, undoes: Delivery | None = None
    ) -> Call[Changed]:
        """Release the lock, and leave *remains* in its place for the rest of their time."""
        stays = longest = max(1, milliseconds(remains.until - monotonic()))
        keys, old = claim.keys, ""
        if remains.old is not None:
            key, ends = remains.old
            keys, longest = (*keys, key), max(stays, milliseconds(ends - monotonic()))
            old = str(longest)
        memory = (max(int(self._retention), longest), _MEMORY, self._take_forgettable(claim.want.keys))
        late = token if remains.late else ""
        what = (stays, remains.field, remains.value, late, old, claim.want.keys.channel)
        patience, script = self._timing.release_timeout, claim.want.scripts.release_later
        return self.send(script, keys, (claim.id, *memory, *what), patience=patience, until=until, undoes=undoes)

    async def ping(self, prefix: str) -> None:
        """Ask the server whether it accepts commands like those of locks."""
        await self.send(PING, (LockKeys.of(_PING, prefix).lock,), ())

    async def ask(self, script: Script[A | NotALock], keys: LockKeys, number: int, *arguments: Argument) -> A:
        """The answer to a *script* that only reads, and uses the first *number* of a primitive's *keys*."""
        answer = await self.send(script, keys.all[:number], arguments)
        if isinstance(answer, NotALock):
            raise NotALockError(keys.name)
        return answer

    def send(
        self,
        script: Script[A],
        keys: tuple[str, ...],
        args: tuple[Argument, ...],
        *,
        patience: float | None = None,
        until: float = 0.0,
        undoes: Delivery | None = None,
        ended: Callable[[Call[A]], object] | None = None,
    ) -> Call[A]:
        """
        Send a *script*. The caller gets an error after *patience* seconds; the call is sent again *until* that time, if
        it is later.

        *ended* is called when the call has ended.
        """
        patience = self._timing.command_timeout if patience is None else patience
        call = Call(script, keys, args, monotonic() + patience, until)
        call.undoes = undoes
        if ended is not None:
            call.when_ended(ended)
        self.backend.submit(call)
        return call


def freed(token: int, number: int) -> int:
    """
    The number of the clean release of acquisition *number* with that *token*: its age, and its number in that age.

    No other clean release of the client has it.
    """
    return token // _AGE * _NUMBERS + number % _NUMBERS
