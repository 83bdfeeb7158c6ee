"""
Who waits for a name in this client: a FIFO of places, of which only the head bothers the server.

Rules:
1. The queue watches the unlock channel while it has places. One message wakes one place, the head. Who asked the
   server first, and was refused, goes before those who came meanwhile.
2. A wake-up is never lost: a place that leaves without having used one passes it to the next head.
3. A release sends the head's acquire along in the same tick; what it then hears of its own message is no news.
   After a number of these in a row it does not, and other processes that wait go first.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import Context
from time import monotonic
from typing import Protocol

from aiolock._call import Call
from aiolock._errors import BackendError
from aiolock._notifier import Watcher
from aiolock._scripts import GRANTED
from aiolock._types import LockKeys

MOST_HAND_OFFS = 16  # In a row; at the next release other processes that wait go first.
_STEP_ASIDE = 0.005  # Seconds that others are let go first: enough for a message and an acquire.
_ECHO = 1.0  # Seconds within which the message of an own release is expected back.
_SLACK = 0.002  # Seconds after the end of a lease at which a probe finds the key gone for sure.


class Want(Protocol):
    """What a place waits for."""

    @property
    def owner(self) -> str:
        """Who waits."""

    def submit(self) -> Call:
        """Send the acquire."""


class Place:
    """A place in the queue, held by one task."""

    # Invariant: the task awaits its turn (`_awaits`), or it is `trying`, with a call of its own or the one handed to
    # it (`_call`, until it is taken); `woken` says that something happened which the last try cannot have seen.

    __slots__ = ("_awaits", "_call", "_ends", "_error", "in_a_row", "trying", "want", "woken")

    def __init__(self, want: Want, ends: float | None) -> None:
        self.want: Want = want
        self.woken: asyncio.Event = asyncio.Event()
        self.in_a_row: int = 0  # Which hand-off in a row the attempt is; 0 when it is an attempt of the place's own.
        self.trying: bool = False  # A wake-up was taken, and what it is good for is not known yet.
        self._ends = ends  # When the wait is over, on the monotonic clock.
        self._awaits = False
        self._call: Call | None = None
        self._error: Exception | None = None

    def parked(self) -> Coroutine[object, object, object]:
        """Wait until trying could help, or the wait is over; then see to `begin`."""
        self._awaits = True
        return self.woken.wait() if self._ends is None else self._parked_until(self._ends)

    async def _parked_until(self, ends: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, ends - monotonic())):
                await self.woken.wait()

    def begin(self) -> bool:
        """Begin to try; ``False`` when the wait is over."""
        self._awaits = False
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
        """Try on behalf of the task, unless it is about to try itself."""
        if self._awaits and not self.woken.is_set():
            self._call = self.want.submit()
            self.in_a_row = in_a_row
        self.woken.set()
        return self._call is not None

    def settle(self, granted: bool) -> None:
        """The attempt has its answer; a grant uses up whatever woke the place meanwhile, too."""
        self.trying = False
        if granted:
            self.woken.clear()

    def fail(self, error: Exception) -> None:
        """End the wait with *error*."""
        self._error = error
        self.woken.set()


class Queue:
    """The places of one name."""

    # Invariant: the channel is watched, and the queue is in its registry, exactly while it has places.

    def __init__(self, channel: str, notifier: Watcher, emptied: Callable[[], object]) -> None:
        self._channel = channel
        self._notifier = notifier
        self._emptied = emptied
        self._loop = asyncio.get_running_loop()
        self._places: OrderedDict[Place, None] = OrderedDict()
        self._probe: asyncio.TimerHandle | None = None  # Wakes the head when the lease of the holder is over.
        self._echoes: deque[tuple[float, Call]] = deque()  # Own releases, and until when to expect their messages.
        self._sits_out = 0  # Messages after which others are let go first: this process had a long run.
        # Wakes the head once they had their chance. Not the probe: a refusal that is older than the message, and
        # arrives after it, puts that off.
        self._turn: asyncio.TimerHandle | None = None
        self.hand_offs: int = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def head(self) -> Place | None:
        return next(iter(self._places), None)

    def join(self, place: Place, first: bool) -> None:
        self._places[place] = None
        if first:
            self._places.move_to_end(place, last=False)
        if len(self._places) == 1:
            self._notifier.watch(self._channel, self._signal)

    def leave(self, place: Place) -> None:
        del self._places[place]
        if not self._places:
            self._close()
        elif place.trying or place.woken.is_set():  # It is the head, or was when it was woken.
            self.wake()

    def wake(self) -> None:
        """Let the head try."""
        if (head := self.head) is not None:
            head.woken.set()

    def wake_owner(self, owner: str) -> None:
        """A named owner got the lock: whoever waits for it as the same owner needs no turn."""
        for place in self._places:
            if place.want.owner == owner:
                place.woken.set()

    def probe_in(self, seconds: float) -> None:
        """Let the head try in so many seconds, when whoever has the lock has it no longer, unless a message comes."""
        if self._probe is not None:
            self._probe.cancel()
        self._probe = self._loop.call_later(seconds + _SLACK, self.wake, context=Context())

    def granted(self, left: float) -> None:
        """This client has the lock, for *left* seconds unless that changes: nobody else need try."""
        self._cancel_turn()
        self.probe_in(left)

    def hand_off(self, release: Call, in_a_row: int) -> None:
        """The lock is being released: send the head's acquire along; called in the tick of *release*."""
        head = self.head
        if head is None:
            return
        if in_a_row >= MOST_HAND_OFFS:
            self._expect_echo(release)
            release.when_ended(self._step_aside)
        elif head.hand(in_a_row + 1):
            self._expect_echo(release)
            self.hand_offs += 1

    def _expect_echo(self, release: Call) -> None:
        if self._notifier.confirmed(self._channel):
            self._echoes.append((monotonic() + _ECHO, release))

    def _step_aside(self, release: Call) -> None:
        """Let other processes that wait have as long a run each; *release* says how many subscribers heard of it."""
        receivers = release.reply[1] if release.reply[:1] == [GRANTED] else 0
        others = max(0, receivers - int(self._notifier.confirmed(self._channel)))
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
        """Whether a message is that of an own release, which has not failed as far as we know."""
        while self._echoes:
            until, release = self._echoes.popleft()
            if monotonic() < until and not (release.ended and release.reply[:1] != [GRANTED]):
                return True
        return False

    def _close(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        self._cancel_turn()
        self._notifier.unwatch(self._channel)
        self._emptied()


class Queues:
    """The queues of one client, by lock; a lock that nobody waits for has none."""

    def __init__(self, notifier: Watcher) -> None:
        self._notifier = notifier
        self._queues: dict[str, Queue] = {}

    def __iter__(self) -> Iterator[Queue]:
        return iter(list(self._queues.values()))

    def get(self, keys: LockKeys) -> Queue | None:
        return self._queues.get(keys.lock)

    def join(self, keys: LockKeys, place: Place, left: float | None, *, first: bool) -> None:
        """
        Take *place* in the queue, *first* if it came before all others.

        The holder has *left* seconds; ``None`` when that is yet to be learned, by an acquire that is on its way.
        """
        queue = self._queues.get(keys.lock)
        if queue is None:
            queue = Queue(keys.channel, self._notifier, lambda: self._queues.pop(keys.lock))
            self._queues[keys.lock] = queue
            if left is not None:
                queue.probe_in(left)
        queue.join(place, first)

    def leave(self, keys: LockKeys, place: Place) -> None:
        """Give *place* up; it was granted, or its wait is over."""
        self._queues[keys.lock].leave(place)

    def look_again(self, keys: LockKeys) -> None:
        """The lock may be free, though no release said so: it was lost, or a hand-off came to nothing."""
        if (queue := self._queues.get(keys.lock)) is not None:
            queue.look_again()

    def hand_off(self, keys: LockKeys, release: Call, in_a_row: int) -> None:
        """The lock is being released, after so many local hand-offs in a row."""
        if (queue := self._queues.get(keys.lock)) is not None:
            queue.hand_off(release, in_a_row)

    def fail(self, keys: LockKeys, error: BackendError) -> None:
        """The server does not answer: every wait for the lock ends with what *error* says."""
        if (queue := self._queues.get(keys.lock)) is not None:
            queue.fail(error.copy)

    def probe_in(self, keys: LockKeys, seconds: float) -> None:
        """The lock was granted or refused: its holder has so many seconds."""
        if (queue := self._queues.get(keys.lock)) is not None:
            queue.probe_in(seconds)
