"""
The waiters of one client for one lock name: a FIFO of places, of which only the head asks the server.

Rules:
1. The queue watches the unlock channel while it has places. A message or a probe wakes one place, the head, which asks
   for all. An acquire that was refused before its place goes ahead of tasks that came meanwhile.
2. A wake-up is never lost: a place that leaves without using it, or that was refused while another place became the
   head, passes it to the head. A grant that leaves permits wakes the first places for which these are enough.
3. A release and the head's acquire are sent together: a hand-off. If one command makes both, no message is published;
   else the message of that release is ignored. After a number of hand-offs in a row (`in_a_row`) the acquire is not
   sent along, and waiters in other processes go first.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from itertools import islice
from time import monotonic

from aiolock._backend import Call, Notifier
from aiolock._core.place import Place
from aiolock._scripts import RELEASE_CLEAN, ScriptSet
from aiolock._scripts.replies import Applied, Granted

# Hand-offs in a row; after these, waiters in other processes go first.
MOST_HAND_OFFS = 16
# Places that get an error, or the answer to another place's call, in one turn of the loop.
_MOST_TOLD = 128
# Seconds for which others go first: enough for a message and an acquire.
STEP_ASIDE = 0.005
# Seconds within which the message of a release of this client is expected.
_ECHO = 1.0
# Seconds after the end of a lease at which a probe surely finds no key.
_SLACK = 0.002
# The places that one grant wakes at most, if several acquires may be granted.
_MOST_WOKEN = 64
# Seconds after which the head asks in any case: Redisson may shorten a lease without a message.
_LONGEST_PROBE = 30.0


class Queue:
    """
    The places of one name.

    Messages of this client's releases arrive on the last of the *channels*. For primitives without holds, `in_a_row`
    has the hand-offs in a row up to the last grant.
    """

    # Invariant: a queue is made for its first place, and closed when the last one leaves, or when all fail. Meanwhile
    # it watches its channels. `_free` is the number of permits that the last grant left, until places are woken for
    # them: if several grants come in one turn, only the last number is right.

    def __init__(
        self,
        name: str,
        channels: Sequence[str],
        notifier: Notifier,
        scripts: ScriptSet,
        emptied: Callable[[], object],
    ) -> None:
        self.name: str = name
        self.scripts: ScriptSet = scripts
        self._channels = channels
        self._notifier, self._emptied = notifier, emptied
        self._loop = asyncio.get_running_loop()
        self._places: OrderedDict[Place, None] = OrderedDict()
        self._probe: asyncio.TimerHandle | None = None
        # Releases of this client, and the time until which to expect their messages.
        self._echoes: deque[tuple[float, Call]] = deque()
        self._sits_out = 0
        self._free: int | None = None
        # Wakes the head after others had their turn. The probe would not do: a grant of another permit cancels it.
        self._turn: asyncio.TimerHandle | None = None
        # While no place has sent the number of permits, an acquire that does goes first.
        self.lacks_number: bool = True
        self.hand_offs: int = 0
        self.in_a_row: int = 0
        for channel in channels:
            notifier.watch(channel, self._signal)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places)

    @property
    def head(self) -> Place:
        return next(iter(self._places))

    def is_head(self, place: Place) -> bool:
        """Whether *place* is the first one."""
        return next(iter(self._places), None) is place

    def join(self, place: Place, first: bool) -> None:
        self._places[place] = None
        place.record.waits_for = self.name
        if first:
            self._places.move_to_end(place, last=False)

    def may_try(self, place: Place, *, has_it: bool) -> bool:
        """
        Whether *place*, which was woken, may try: with a line, only the head, or a place whose owner *has_it*.

        An adoption, or a hold of the same owner, may wake other places than the head.
        """
        return not self.scripts.line or self.is_head(place) or has_it

    def note_answer(self, place: Place, *, first: bool, granted: bool, has_turn: bool) -> None:
        """
        Note the answer to the try of *place*, which was *first* when it began.

        If the server keeps a turn for *place*, it becomes the head. If another place, whose turn it may be, has gone
        ahead meanwhile, that one gets the wake-up.
        """
        place.note_answer(granted, exclusive=self.scripts.exclusive)
        if granted:
            return
        if has_turn and place in self._places:
            self._places.move_to_end(place, last=False)
        elif first and not self.is_head(place):
            self.wake()

    def leave(self, place: Place) -> None:
        place.record.waits_for = None
        # `fail` has removed it.
        if place not in self._places:
            return
        # As the head, it may have kept waiters for fewer permits from trying.
        hid_others = not self.scripts.exclusive and place is self.head and not place.served
        del self._places[place]
        if not self._places:
            self._close()
        # It is the head, or was the head when it was woken: pass the wake-up on. The release that handed the lock to it
        # may run after the next try, so its message is no echo.
        elif hid_others or place.trying or place.woken.is_set():
            self.look_again()

    def wake(self) -> None:
        """Let the head try."""
        for place in islice(self._places, 1):
            place.woken.set()

    def _wake_for_free(self) -> None:
        """Let the head try, and the places behind it that can have their permits, too, if the last grant left these."""
        free, self._free = self._free, None
        if free is None:
            return
        self.wake()
        for place in islice(self._places, _MOST_WOKEN):
            free -= place.number
            if free < 0:
                return
            place.woken.set()

    def answered(self, call: Call) -> None:
        """Pass the answer to *call*, which took nothing, to each place that waited when it was sent."""
        self._some(deque(place for place in self._places if place.since <= call.sent), lambda place: place.answer(call))

    def has(self, owner: str) -> bool:
        """Whether *owner* waits."""
        return any(place.owner == owner for place in self._places)

    def wake_owner(self, owner: str) -> None:
        """Wake the places of a named owner that has just got the lock: a nested hold needs no turn."""
        for place in self._places:
            if place.owner == owner:
                place.woken.set()

    def probe_in(self, seconds: float) -> None:
        """
        Let the head try in *seconds*, at the end of the present holder's lease, unless a message comes before.

        Each refusal has its own time, and the earliest counts: a probe is never moved to a later time.
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

    def granted(self, answer: Granted) -> None:
        """Note a grant to this client: let others try if that could help."""
        # For a semaphore, a pending turn or probe may be about another permit.
        if self.scripts.exclusive:
            self._cancel_turn()
            self._cancel_probe()
        left = answer.left if self.scripts.exclusive else answer.others_after
        self._free = None if left > 0 else answer.free
        if left > 0:
            self.probe_in(left)
        else:
            # In the next turn, because the place that was granted has not left yet.
            self._loop.call_soon(self._wake_for_free, context=Context())

    def hand_off(self, release: Call, in_a_row: int) -> None:
        """Send the head's acquire right behind *release*, which was submitted in this turn of the loop."""
        # With a line, the server decides about turns.
        if in_a_row >= MOST_HAND_OFFS and not self.scripts.line:
            self._expect_echo(release)
            release.when_ended(self._step_aside)
        elif self.head.hand(in_a_row + 1):
            self._expect_echo(release)
            self.hand_offs += 1

    def _expect_echo(self, release: Call) -> None:
        if self._notifier.confirmed(self._channels[-1]):
            self._forget_silent()
            self._echoes.append((monotonic() + _ECHO, release))

    def _step_aside(self, release: Call) -> None:
        """
        Let each other client have a run of the same length: the others go first at the messages of that run.

        The answer to *release* has the number of clients.
        """
        # A client that hands a plain lock off publishes one message, at the end of its run. On a cluster it publishes
        # more: there this client asks again sooner, and is refused until that run is over.
        messages = 1 if self.scripts.release_clean is RELEASE_CLEAN else MOST_HAND_OFFS
        self._sits_out = others_told(release, self._notifier, self._channels[-1]) * messages
        self._look_after_others()

    def _look_after_others(self) -> None:
        """Let the head try, because the lock is free; but after the other clients, if it is their turn."""
        if self._sits_out > 0:
            self._sits_out -= 1
            self._cancel_turn()
            self._turn = self._loop.call_later(STEP_ASIDE, self.wake, context=Context())
        else:
            self.wake()

    def _cancel_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()

    def look_again(self) -> None:
        """Wake the head, because the lock may be free without a release of ours; ignore no messages from now on."""
        self._echoes.clear()
        self.wake()

    def fail(self, make_error: Callable[[], Exception]) -> None:
        """End every wait with an error from *make_error*, and close the queue; later acquires use a new queue."""
        if self._places:
            places = deque(self._places)
            self._places.clear()
            self._close()
            self._some(places, lambda place: place.fail(make_error()))

    def _some(self, places: deque[Place], tell: Callable[[Place], None]) -> None:
        """Tell some places in each turn of the loop: thousands of woken tasks at once would hold up everything else."""
        for _ in range(min(len(places), _MOST_TOLD)):
            tell(places.popleft())
        if places:
            self._loop.call_soon(self._some, places, tell, context=Context())

    def _signal(self, message: bool) -> None:
        if not message:
            self.look_again()
        elif not self._is_echo():
            self._look_after_others()

    def _is_echo(self) -> bool:
        """Whether the message is that of a release of this client after which the head's acquire was sent."""
        self._forget_silent()
        if self._echoes:
            self._echoes.popleft()
            return True
        return False

    def _forget_silent(self) -> None:
        """Forget the earliest releases whose messages are late, or that told nobody, like those in a hand-off."""
        while self._echoes:
            until, release = self._echoes[0]
            if monotonic() < until and not (release.ended and _told_nobody(release)):
                return
            self._echoes.popleft()

    def _close(self) -> None:
        self._cancel_probe()
        self._cancel_turn()
        for channel in self._channels:
            self._notifier.unwatch(channel, self._signal)
        self._emptied()


def others_told(release: Call, notifier: Notifier, channel: str) -> int:
    """The number of other clients that got the message of *release* on *channel*."""
    receivers = release.answer.number if isinstance(release.answer, Applied) else 0
    return max(0, receivers - int(notifier.confirmed(channel)))


def _told_nobody(release: Call) -> bool:
    return not (isinstance(release.answer, Applied) and release.answer.number)
