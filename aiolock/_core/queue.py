"""
What one client knows of one lock name, and who waits for it: a FIFO of places, of which only the head bothers the
server.

Rules:
1. The queue watches the unlock channel while it has places. One message wakes one place, the head. Who asked the
   server first, and was refused, goes before those who came meanwhile.
2. A wake-up is never lost: a place that leaves without having used one passes it to the next head.
3. A release sends the head's acquire along in the same tick; what it then hears of its own message is no news.
   After a number of these in a row it does not, and other processes that wait go first.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from time import monotonic

from aiolock._backend import Call, Notifier
from aiolock._core.hold import Hold
from aiolock._core.scope import Scope
from aiolock._keys import LockKeys
from aiolock._scripts import GRANTED, ScriptSet

MOST_HAND_OFFS = 16  # In a row; at the next release other processes that wait go first.
_STEP_ASIDE = 0.005  # Seconds that others are let go first: enough for a message and an acquire.
_ECHO = 1.0  # Seconds within which the message of an own release is expected back.
_SLACK = 0.002  # Seconds after the end of a lease at which a probe finds the key gone for sure.
_LONGEST_PROBE = 30.0  # Seconds until the head asks in any case: Redisson may shorten a lease, and tells nobody.


class Place:
    """A place in the queue, held by one task."""

    # Invariant: the task awaits its turn, or it is `trying`, with a call of its own or the one handed to it (`_call`,
    # until it is taken); `woken` says that something happened which the last try cannot have seen.

    __slots__ = (
        "_call",
        "_ends",
        "_error",
        "_submit",
        "in_a_row",
        "owner",
        "served",
        "since",
        "trying",
        "woken",
    )

    def __init__(self, owner: str, submit: Callable[[], Call], ends: float | None) -> None:
        self.owner: str = owner  # Who waits.
        self.since: float = monotonic()
        self._submit = submit  # Sends the acquire.
        self.woken: asyncio.Event = asyncio.Event()
        self.in_a_row: int = 0  # Which hand-off in a row the attempt is; 0 when it is an attempt of the place's own.
        self.trying: bool = False  # A wake-up was taken, and what it is good for is not known yet.
        self.served: bool = False  # It was granted what it waits for.
        self._ends = ends  # When the wait is over, on the monotonic clock.
        self._call: Call | None = None
        self._error: Exception | None = None

    async def comes_up(self) -> bool:
        """Wait until trying could help, and begin to try; ``False`` when the wait is over."""
        if self._ends is None:
            await self.woken.wait()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._ends - monotonic())):
                    await self.woken.wait()
        if not self.woken.is_set():
            return False
        if self._error is not None:
            raise self._error
        self.woken.clear()
        self.trying = True
        return True

    def take(self) -> Call | None:
        """The attempt that a release sent along for this place, if any; it is the taker's now."""
        call, self._call = self._call, None
        self.in_a_row = self.in_a_row if call is not None else 0
        return call

    def hand(self, in_a_row: int) -> bool:
        """Try on behalf of the task; ``False`` if it is about to try already."""
        tries = not self.trying and not self.woken.is_set()
        if tries:
            self._call = self._submit()
            self.in_a_row = in_a_row
        self.woken.set()
        return tries

    def settle(self, granted: bool, *, exclusive: bool) -> None:
        """The attempt has its answer; an *exclusive* grant uses up whatever woke the place meanwhile, too."""
        self.trying = False
        self.served = granted
        if granted and exclusive:
            self.woken.clear()

    def fail(self, error: Exception) -> None:
        """End the wait with *error*."""
        self._error = error
        self.woken.set()


class Queue:
    """The places of one name."""

    # Invariant: it is made for its first place, and closed when the last one leaves; so long the channels are watched.

    def __init__(
        self, channels: Sequence[str], notifier: Notifier, scripts: ScriptSet, emptied: Callable[[], object]
    ) -> None:
        self.scripts: ScriptSet = scripts
        self._channels = channels  # On the last one messages of own releases arrive.
        self._notifier = notifier
        self._emptied = emptied
        self._loop = asyncio.get_running_loop()
        self._places: OrderedDict[Place, None] = OrderedDict()
        self._probe: asyncio.TimerHandle | None = None  # Wakes the head when the lease of the holder is over.
        self._echoes: deque[tuple[float, Call]] = deque()  # Own releases, and until when to expect their messages.
        self._sits_out = 0  # Messages after which others are let go first: this process had a long run.
        # Wakes the head once they had their chance. Not the probe: what is granted puts that off, though it may be
        # something else than the message told of.
        self._turn: asyncio.TimerHandle | None = None
        self.hand_offs: int = 0
        self.in_a_row: int = 0  # Which hand-off in a row the last grant was that is nobody's.
        for channel in channels:
            notifier.watch(channel, self._signal)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    @property
    def head(self) -> Place:
        return next(iter(self._places))

    def join(self, place: Place, first: bool) -> None:
        self._places[place] = None
        if first:
            self._places.move_to_end(place, last=False)

    def leave(self, place: Place) -> None:
        # Behind it may stand who wants less than it did.
        hid_others = not self.scripts.exclusive and place is self.head and not place.served
        del self._places[place]
        if not self._places:
            self._close()
        elif hid_others or place.trying or place.woken.is_set():  # It is the head, or was when it was woken.
            self.wake()

    def wake(self) -> None:
        """Let the head try, or all of them."""
        for place in self._places:
            place.woken.set()
            if self.scripts.wake == "one":
                return

    def has(self, owner: str) -> bool:
        """Whether *owner* waits."""
        return any(place.owner == owner for place in self._places)

    def wake_owner(self, owner: str) -> None:
        """A named owner got the lock: whoever waits for it as the same owner needs no turn."""
        for place in self._places:
            if place.owner == owner:
                place.woken.set()

    def probe_in(self, seconds: float) -> None:
        """
        Let the head try in so many seconds, when whoever has the lock has it no longer, unless a message comes.

        Never later than it would anyway: of two who were refused, one may have to come again before the other need.
        """
        at = self._loop.time() + min(seconds, _LONGEST_PROBE) + _SLACK
        if self._probe is None or at < self._probe.when():
            self._cancel_probe()
            self._probe = self._loop.call_at(at, self._look, context=Context())

    def _look(self) -> None:
        self._probe = None
        self.wake()

    def _cancel_probe(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        self._probe = None

    def granted(self, left: float) -> None:
        """It was granted to this client: nobody else need try for *left* seconds, unless a message comes."""
        if self.scripts.exclusive:  # Else the lock that a later message told of may be another.
            self._cancel_turn()
            self._cancel_probe()
        if left > 0:
            self.probe_in(left)
        else:
            self.wake()

    def hand_off(self, release: Call, in_a_row: int) -> None:
        """The lock is being released: send the head's acquire along; called in the tick of *release*."""
        if in_a_row >= MOST_HAND_OFFS and not self.scripts.line:  # In a line the server says whose turn it is.
            self._expect_echo(release)
            release.when_ended(self._step_aside)
        elif self.head.hand(in_a_row + 1):
            self._expect_echo(release)
            self.hand_offs += 1

    def _expect_echo(self, release: Call) -> None:
        if self._notifier.confirmed(self._channels[-1]):
            self._echoes.append((monotonic() + _ECHO, release))

    def _step_aside(self, release: Call) -> None:
        """Let other processes that wait have as long a run each; *release* says how many subscribers heard of it."""
        receivers = release.reply[1] if release.reply[:1] == [GRANTED] else 0
        others = max(0, receivers - int(self._notifier.confirmed(self._channels[-1])))
        self._sits_out = others * MOST_HAND_OFFS
        self._look_after_others()

    def _look_after_others(self) -> None:
        """The lock is free: let the head try, after the others if it is their turn."""
        if self._sits_out > 0:
            self._sits_out -= 1
            self._cancel_turn()
            self._turn = self._loop.call_later(_STEP_ASIDE, self.wake, context=Context())
        else:
            self.wake()

    def _cancel_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()

    def look_again(self) -> None:
        """The lock may be free, and no release of ours is known to have said so: whatever message comes is news."""
        self._echoes.clear()
        self.wake()

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """End every wait with an error of its own."""
        for place in self._places:
            place.fail(make_error())

    def _signal(self, message: bool) -> None:
        if not message:
            self.look_again()
        elif not self._is_echo():
            self._look_after_others()

    def _is_echo(self) -> bool:
        """Whether a message is that of an own release, which has told somebody as far as we know."""
        while self._echoes:
            until, release = self._echoes.popleft()
            if monotonic() < until and not (release.ended and (release.reply[:1] != [GRANTED] or not release.reply[1])):
                return True
        return False

    def _close(self) -> None:
        self._cancel_probe()
        self._cancel_turn()
        for channel in self._channels:
            self._notifier.unwatch(channel, self._signal)
        self._emptied()


class Entry:
    """What one client knows of one name: who has the lock, who asks and who waits for it, what runs under it."""

    # Invariant: a name has an entry exactly while there is any of these.

    __slots__ = ("_entries", "asked", "crowded", "holds", "keys", "leads", "queue", "scopes")

    def __init__(self, keys: LockKeys, entries: "Entries") -> None:
        self.keys: LockKeys = keys
        self._entries = entries
        self.holds: dict[str, Hold] = {}  # Live ones, by their key; of an exclusive lock one at most.
        self.asked: int = 0  # Acquires that ask for it ahead of the queue; who comes meanwhile takes a place.
        self.queue: Queue | None = None
        self.leads: bool = True  # Who waits here may be next; else, by the server that keeps a line, another client is.
        self.scopes: list[Scope] = []  # Blocks, from enter to exit, whatever becomes of their task and of the lock.
        self.crowded: int = 32  # Of so many, those are forgotten that nobody will leave.

    @property
    def hold(self) -> Hold | None:
        """The live hold of whoever got it first."""
        return next(iter(self.holds.values()), None)

    def join(self, place: Place, scripts: ScriptSet, left: float | None, *, first: bool) -> Queue:
        """
        Take *place* in the queue, *first* if it came before all others.

        The holder has *left* seconds; ``None`` when that is yet to be learned, by an acquire that is on its way.
        """
        if self.queue is None:
            own = (self.keys.channel_of(self._entries.client),) if scripts.line else ()
            channels = (self.keys.channel, *own)
            self.queue = Queue(channels, self._entries.notifier, scripts, self._emptied)
            if left is not None:
                self.queue.probe_in(left)
        self.queue.join(place, first)
        return self.queue

    def look_again(self) -> None:
        """The lock may be free, though no release said so: it was lost, or a hand-off came to nothing."""
        if self.queue is not None:
            self.queue.look_again()

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """End every wait for the lock with an error of its own."""
        if self.queue is not None:
            self.queue.fail(make_error)

    def settle(self) -> None:
        """Something of it is over: forget it if that was the last."""
        if self.queue is None and not (self.holds or self.asked or self.scopes):
            del self._entries[self.keys.entry]

    def _emptied(self) -> None:
        self.queue = None
        self.settle()


class Entries(dict[str, Entry]):
    """The names that one client has to do with, by what tells them apart."""

    def __init__(self, client: str, notifier: Notifier) -> None:
        super().__init__()
        self.client: str = client
        self.notifier: Notifier = notifier

    def of(self, keys: LockKeys) -> Entry:
        """The entry of a name, which whoever asks has something to put into."""
        entry = self.get(keys.entry)
        if entry is None:
            entry = self[keys.entry] = Entry(keys, self)
        return entry

    def all(self) -> list[Entry]:
        """Every entry, as of now."""
        return list(self.values())

    def holds(self) -> list[Hold]:
        """Every live hold, as of now."""
        return [hold for entry in self.values() for hold in entry.holds.values()]
