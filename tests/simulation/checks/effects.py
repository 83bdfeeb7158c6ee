"""
The effect of each script on each server; the belief of clients plays no part.

    ghost     an acquisition that was given back, given up or handed over is never granted again, however late its
              command (P5)
    freed     a release frees only the lock of its own acquisition (P5)
    untold    a clean release says that it freed the lock only if it did, then or when it was first executed (P3)
    renewed   a renewal prolongs only the lock of its own acquisition (P5)
    late      a change of a hold that others have overtaken changes nothing (P5)
    mode      a read-write lock is in the mode of a writer only while it has one (P1)
    twice     a call that changes a count changes it once, however often it is sent; one that was refused the change of
              a latch never changes it (P5)
    residue   every key has a TTL, but those that Redisson keeps for ever (P9)
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from tests.simulation.script_calls import GRANTED, REFUSED, LockCall, Ran, counted_call
from tests.simulation.server import Server
from tests.simulation.world import NEVER, World

# Keys of semaphores and latches have no TTL in Redisson's layout. The last is the mark of a quorum's server.
_KEPT_FOR_EVER = (b"sem", b"permits", b"{permits}", b"latch", b"aiolock_quorum")
_LATCH = b"latch"
_COUNTERS = (b"sem", b"permits", _LATCH)
# Fields of a lock that number the changes of its hold.
_NUMBERS = (b"aiolock:step", b"aiolock:renewal")

K = TypeVar("K")
V = TypeVar("V")


class _Hold(NamedTuple):
    """The acquisition that holds a lock, or the mode of a read-write lock."""

    acquisition: bytes
    # The numbers of the hold's changes.
    numbers: list[int]
    # Milliseconds by the server's clock.
    until: float


class Effects:
    def __init__(self, world: World) -> None:
        self.world = world
        # The holds, by server and lock.
        self._holding: dict[str, dict[bytes, _Hold]] = {}
        # The acquisitions that were given back or given up on each server, with the time.
        self._ended: dict[str, dict[bytes, float]] = {}
        # The acquisitions whose lock a clean release freed, on any server.
        self._freed: set[bytes] = set()
        # The counts of each server, and the calls that have changed one.
        self._counts: dict[str, dict[bytes, int | None]] = {}
        self._counted: dict[str, dict[tuple[str, bytes], float]] = {}

    def forget(self, server: Server) -> set[bytes]:
        """The server came back with other data; returns the acquisitions whose ends it may have forgotten."""
        for known in (self._holding, self._counts, self._counted):
            known.pop(server.name, None)
        return set(self._ended.pop(server.name, ()))

    def move(self, key: bytes, source: Server, target: Server) -> None:
        """The key has moved; and what ended there has ended here."""
        _move_key(self._holding, key, source, target)
        holding = self._holding.get(target.name, {})
        if key in holding:
            holding[key] = holding[key]._replace(until=target.data.expires.get(key, NEVER))
        _move_key(self._counts, key, source, target)
        _copy(self._ended, source, target)
        _copy(self._counted, source, target)

    def judge(self, server: Server, ran: Ran) -> list[bytes]:
        """A script has run; returns the locks that it freed, and the counts of which it gave something back."""
        for key, acquisition in ran.renewed:
            if (server.data.values.get(key) or {}).get(b"aiolock:acquisition") != acquisition:
                self.world.violation("renewed", f"{server.name}: {key!r} is renewed for {acquisition!r}")
        freed = [key for key in server.data.touched if self._judge_key(server, key, ran.lock_calls)]
        if ran.hand_over is not None:
            self._ended.setdefault(server.name, {}).setdefault(ran.hand_over.replaced, self.world.now)
        for call in ran.lock_calls if ran.is_clean else ():
            if call.is_release:
                self._judge_clean(server, call)
        counts = [key for key in _COUNTERS if key in server.data.touched]
        freed += [key for key in counts if self._judge_count(server, key, ran.script, ran.args)]
        self._note_refusal(server, ran)
        for call in ran.lock_calls:
            if call.is_release and call.holds == 0:
                self._ended.setdefault(server.name, {}).setdefault(call.acquisition, self.world.now)
        return freed

    def _judge_key(self, server: Server, key: bytes, calls: Sequence[LockCall]) -> bool:
        """Whether the lock *key* was freed by the script; a lock that had expired was not."""
        holding = self._holding.setdefault(server.name, {})
        value = server.data.values.get(key)
        if value is not None and key not in server.data.expires and not key.startswith(_KEPT_FOR_EVER):
            self.world.violation("residue", f"{server.name}: key {key!r} has no TTL")
        before, fields = holding.pop(key, None), value if type(value) is dict else {}
        lost = None if before is None or before.until > server.data.clock() else before
        before = None if lost is not None else before
        now = fields.get(b"aiolock:acquisition") or fields.get(b"mode")
        releases = [call.acquisition for call in calls if call.is_release and call.key == key]
        told = [call.acquisition for call in calls if call.is_release and call.status == GRANTED]
        if lost is not None and now is not None and lost.acquisition in told:
            self.world.violation("untold", f"{server.name}: {lost.acquisition!r} hands {key!r} off, which it had lost")
        if before is not None and releases and before.acquisition not in (*releases, now):
            self.world.violation("freed", f"{server.name}: {key!r} of {before.acquisition!r} is freed for {releases!r}")
        if now is not None:
            numbers = [int(fields.get(number, 0)) for number in _NUMBERS]
            holding[key] = _Hold(now, numbers, server.data.expires.get(key, NEVER))
            self._judge_holder(server, key, before, holding[key])
            self._judge_mode(server, key, fields)
            return False
        return before is not None

    def _judge_clean(self, server: Server, call: LockCall) -> None:
        if call.status == GRANTED and call.key in server.data.touched:
            self._freed.add(call.acquisition)
        elif call.status == GRANTED and call.acquisition not in self._freed:
            words = f"{server.name}: {call.acquisition!r} lost {call.key!r}, and is told that it freed that"
            self.world.violation("untold", words)

    def _judge_holder(self, server: Server, key: bytes, before: _Hold | None, now: _Hold) -> None:
        ended = self._ended.setdefault(server.name, {})
        acquisition, numbers = now.acquisition, now.numbers
        if before is None or before.acquisition != acquisition:
            if acquisition in ended:
                when = ended[acquisition]
                words = f"{server.name}: {key!r} is granted to {acquisition!r}, which ended at {when:.3f}"
                self.world.violation("ghost", words)
        elif any(is_now < was for was, is_now in zip(before.numbers, numbers, strict=True)):
            words = (
                f"{server.name}: {key!r} of {acquisition!r} had step and renewal {before.numbers}, and has {numbers}"
            )
            self.world.violation("late", words)

    def _judge_mode(self, server: Server, key: bytes, fields: dict[bytes, bytes]) -> None:
        if fields.get(b"mode") == b"write" and not any(field.endswith(b":write") for field in fields):
            self.world.violation("mode", f"{server.name}: {key!r} has no writer: {fields!r}")

    def _judge_count(self, server: Server, key: bytes, script: str, args: list[bytes]) -> bool:
        """Whether the script gave back some of what *key* counts, or opened the latch."""
        counts, counted = self._counts.setdefault(server.name, {}), self._counted.setdefault(server.name, {})
        value = server.data.values.get(key)
        before, now = counts.get(key), None if value is None else int(value)
        counts[key] = now
        if before == now:
            return False
        call = counted_call(script, args)
        if call is not None and call in counted:
            self.world.violation("twice", f"{server.name}: {call} changes {key!r}, and ran at {counted[call]:.3f}")
        elif call is not None:
            counted[call] = self.world.now
        if key == _LATCH:
            return now is None
        return script.endswith("release") and now is not None and now > max(0, before or 0)

    def _note_refusal(self, server: Server, ran: Ran) -> None:
        """Note that a call was refused the change of a latch: its caller was told so, and no copy may change it."""
        call, family = counted_call(ran.script, ran.args), ran.family_call
        if call is not None and family is not None and family.key == _LATCH and family.status == REFUSED:
            self._counted.setdefault(server.name, {}).setdefault(call, self.world.now)


def _move_key(known: dict[str, dict[bytes, V]], key: bytes, source: Server, target: Server) -> None:
    of_source = known.get(source.name, {})
    if key in of_source:
        known.setdefault(target.name, {})[key] = of_source.pop(key)


def _copy(known: dict[str, dict[K, V]], source: Server, target: Server) -> None:
    known.setdefault(target.name, {}).update(known.get(source.name, {}))
