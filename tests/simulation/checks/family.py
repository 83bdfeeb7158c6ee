"""
The effect of each script of the lock's family on each server; the belief of clients plays no part.

    beside     a writer has the lock alone, but for its own reading; readers are no writers (P1)
    granted    only the call of an acquisition makes a hold, and a new one has a greater token (P1, P11)
    ghost      an acquisition that was given back, given up or handed over is never granted again (P5)
    taken      a hold ends by its own release, by its hand-over, by force or by its time, and by nothing else (P1)
    shortened  a hold is never shortened, and a read-write lock lives at least as long as its holds (P2)
    renewed    a renewal that is acknowledged says how long the hold has left (P3)
    sum        permits that are there and permits that are acquired are always as many (P1, P5)
    latch      a count goes down by what was counted; a wait ends only at zero (P5, P6)
    ticket     a detached hold is there, with the token of its holder (P11)
    left       the remains of a release stay for their time: the outcome of a body, or a lock that is kept
"""

from dataclasses import dataclass, field

from tests.simulation.checks.holds import Hold, left_behind, permits_of, readers_and_writers
from tests.simulation.script_calls import GRANTED, FamilyCall, Ran
from tests.simulation.server import Server
from tests.simulation.world import World

_PERMITS, _SEMAPHORE, _LATCH = b"permits", b"sem", b"latch"


@dataclass
class _Known:
    """The state of one server after the last script."""

    # The server came back with other data, at which no check has looked yet.
    has_older_data: bool = False
    holds: dict[bytes, dict[bytes, Hold]] = field(default_factory=dict)
    # Acquisitions that were given back or given up, and when.
    ended: dict[bytes, float] = field(default_factory=dict)
    # The last token, and the acquisition that has it.
    tokens: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    counts: dict[bytes, int | None] = field(default_factory=dict)
    # Acquisitions that took permits of the counting semaphore, and how many.
    taken: dict[bytes, int] = field(default_factory=dict)
    left: dict[bytes, tuple[dict[bytes, bytes], int]] = field(default_factory=dict)


class Family:
    def __init__(self, world: World, capacity: dict[str, int]) -> None:
        self.world, self.capacity = world, capacity
        self._known: dict[str, _Known] = {}
        # The time since which the latch is closed, by server.
        self._closed: dict[str, float] = {}

    def forget(self, server: Server) -> set[bytes]:
        """The server came back with other data; returns the acquisitions whose ends it may have forgotten."""
        ended = self._known.get(server.name, _Known()).ended
        known = self._known[server.name] = _Known(has_older_data=True)
        self._closed.pop(server.name, None)
        known.holds = {key: readers_and_writers(server.data, key) for key in server.data.values if _mode(server, key)}
        known.holds[_PERMITS] = permits_of(server.data, _PERMITS)
        return set(ended)

    def move(self, source: Server, target: Server) -> None:
        """A key has moved from one server to another; what has ended on one of them has ended on both."""
        known = [self._known.get(server.name, _Known()).ended for server in (source, target)]
        for server in (source, target):
            self.forget(server)
            self._known[server.name].ended = known[0] | known[1]

    def judge(self, server: Server, ran: Ran) -> None:
        """A script has run."""
        known = self._known.get(server.name)
        if known is None:
            known = self._known[server.name] = _Known()
        call = ran.family_call
        for key in {**known.holds, **{key: {} for key in server.data.touched if _mode(server, key)}}:
            if key != _PERMITS:
                self._judge_readers(server, known, key, ran)
        self._judge_permits(server, known, ran)
        if call is not None and call.key == _SEMAPHORE:
            self._judge_semaphore(server, known, call)
        if call is not None and call.key == _LATCH:
            self._judge_latch(server, known, call)
        self._judge_renewals(server, known, ran)
        self._judge_left(server, known, ran.script)
        if call is not None and call.ends:
            known.ended.setdefault(call.acquisition, self.world.now)
        if ran.hand_over is not None:
            known.ended.setdefault(ran.hand_over.replaced, self.world.now)

    def _violation(self, kind: str, server: Server, words: str) -> None:
        self.world.violation(kind, f"{server.name}: {words}")

    # Holds.

    def _judge_readers(self, server: Server, known: _Known, key: bytes, ran: Ran) -> None:
        fields: dict[bytes, bytes] = server.data.values[key] if _mode(server, key) else {}
        mode, owners = fields.get(b"mode"), [each for each in fields if each != b"mode"]
        writers = [each.removesuffix(b":write") for each in owners if each.endswith(b":write")]
        strangers = [each for each in owners if each.removesuffix(b":write") not in writers]
        if (writers and (mode != b"write" or len(writers) > 1 or strangers)) or (mode == b"write" and not writers):
            self._violation("beside", server, f"{key!r} has {fields!r}")
        now = readers_and_writers(server.data, key)
        longest = max((hold.until for hold in now.values()), default=0)
        if server.data.expires.get(key, longest) < longest:
            self._violation("shortened", server, f"{key!r} lives shorter than its holds {now!r}")
        # An expired record was removed before it was written again: its hold does not go on.
        clock, before = server.data.clock(), known.holds.get(key, {}).items()
        known.holds[key] = {field: hold for field, hold in before if hold.until > clock or hold == now.get(field)}
        self._judge_holds(server, known, key, now, ran)

    def _judge_permits(self, server: Server, known: _Known, ran: Ran) -> None:
        call = ran.family_call
        now = permits_of(server.data, _PERMITS)
        if not now and call is None and not known.holds.get(_PERMITS):
            return
        count = server.data.values.get(_PERMITS)
        total = self.capacity[_PERMITS.decode()]
        # If only one of the keys has moved to the server, no script runs.
        is_whole = call is not None and call.key == _PERMITS
        if is_whole and count is not None and int(count) + len(now) != total:
            self._violation("sum", server, f"{int(count)} permits are there and {len(now)} acquired of {total}")
        self._judge_holds(server, known, _PERMITS, now, ran)

    def _judge_holds(self, server: Server, known: _Known, key: bytes, now: dict[bytes, Hold], ran: Ran) -> None:
        before, known.holds[key] = known.holds.get(key, {}), now
        for place in {**before, **now}:
            was, is_now = before.get(place), now.get(place)
            if was is not None and (is_now is None or is_now.acquisition != was.acquisition):
                self._judge_end(server, known, key, was, ran)
            if is_now is not None and (was is None or was.acquisition != is_now.acquisition):
                self._judge_grant(server, known, key, is_now, ran)
            elif was is not None and is_now is not None and is_now.is_earlier_than(was):
                self._violation("shortened", server, f"{key!r}: {was} has become {is_now}")

    def _judge_end(self, server: Server, known: _Known, key: bytes, was: Hold, ran: Ran) -> None:
        call = ran.family_call
        if ran.hand_over is not None and ran.hand_over.replaced == was.acquisition:
            tokens = {each.token for each in known.holds[key].values() if each.acquisition == ran.hand_over.acquisition}
            if _detaches(ran) and tokens != {was.token}:
                self._violation("ticket", server, f"{key!r}: {was} is detached with tokens {tokens}")
            return
        released = call is not None and (call.is_by_hand or (call.ends and call.acquisition == was.acquisition))
        if was.until > server.data.clock() and not released:
            self._violation("taken", server, f"{key!r}: {was} has ended by {call}")

    def _judge_grant(self, server: Server, known: _Known, key: bytes, hold: Hold, ran: Ran) -> None:
        call = ran.family_call
        if call is None or call.acquisition != hold.acquisition or call.status != GRANTED or call.is_release:
            self._violation("granted", server, f"{key!r}: {hold} is granted by {call}")
        if hold.acquisition in known.ended:
            when = known.ended[hold.acquisition]
            self._violation("ghost", server, f"{key!r} is granted to {hold}, which ended at {when:.3f}")
        token = hold.token or (0 if call is None else call.token)
        last, of = known.tokens.get(key, (0, b""))
        # A detached hold has the token of its holder. Several permits of one acquisition have one token.
        if token <= last and hold.acquisition != of and not _detaches(ran):
            self._violation("granted", server, f"{key!r}: {hold} has token {token} after {last}")
        known.tokens[key] = max((token, hold.acquisition), (last, of))

    def _judge_renewals(self, server: Server, known: _Known, ran: Ran) -> None:
        """Each acknowledged renewal belongs to an existing hold, which has the acknowledged time."""
        for key, acquisition, left in ran.renewals:
            holds, until = known.holds.get(key, {}).values(), server.data.clock() + left
            if (acquisition, until) not in [(hold.acquisition, hold.until) for hold in holds]:
                self._violation("renewed", server, f"{key!r}: {acquisition!r} is told {left} ms, of {list(holds)}")

    # Counts.

    def _count(self, server: Server, known: _Known, key: bytes) -> tuple[int | None, int | None]:
        """The number of *key* before the script, and its number now."""
        value, before = server.data.values.get(key), known.counts.get(key)
        known.counts[key] = now = None if value is None else int(value)
        return before, now

    def _judge_semaphore(self, server: Server, known: _Known, call: FamilyCall) -> None:
        is_known = _SEMAPHORE in known.counts
        before, now = self._count(server, known, _SEMAPHORE)
        total = self.capacity[_SEMAPHORE.decode()] if before is None else before + sum(known.taken.values())
        stranger = call.ends and call.acquisition not in known.taken
        # The server granted this before it came back, and is asked again.
        if known.has_older_data and call.status == GRANTED and now == before and call.acquisition not in known.taken:
            total += 0 if call.is_release else call.number
        if call.ends:
            known.taken.pop(call.acquisition, None)
        elif call.status == GRANTED and not call.is_by_hand:
            known.taken.setdefault(call.acquisition, call.number)
        if not is_known or now is None or call.is_by_hand:
            return
        # The permits that come back belong to takers that the server had forgotten, or knows from its older data.
        may_be = call.is_sure or known.has_older_data
        forgotten = call.number if stranger and may_be and now != before else 0
        if now < 0 or now + sum(known.taken.values()) != total + forgotten:
            self._violation("sum", server, f"{before} permits became {now} by {call}, with {known.taken} of {total}")

    def _judge_latch(self, server: Server, known: _Known, call: FamilyCall) -> None:
        is_known = _LATCH in known.counts
        before, now = self._count(server, known, _LATCH)
        if now is None:
            self._closed.pop(server.name, None)
        else:
            self._closed.setdefault(server.name, self.world.now)
        was_done = call.acquisition in known.ended
        if call.status == GRANTED and not call.is_wait:
            known.ended.setdefault(call.acquisition, self.world.now)
        if not is_known:
            return
        if call.is_wait:
            is_right = before == now and (call.status == GRANTED) == (now is None)
        elif was_done or call.status != GRANTED:
            is_right = before == now
        elif call.is_release:
            left = 0 if before is None else before - call.number
            is_right = now == (left if left > 0 else None)
        else:
            is_right = before is None and now == call.number
        if not is_right:
            self._violation("latch", server, f"{before} became {now} by {call}")

    def opened(self, process: str, server: Server | None, since: float, replaced_until: float) -> None:
        """
        A wait for the latch ended, as if the latch were open; it has begun at the time *since*.

        Until a certain time a primary that was replaced may have answered: it is a documented limit.
        """
        if server is not None and since > max(replaced_until, self._closed.get(server.name, self.world.now)):
            closed = self._closed[server.name]
            self.world.violation("latch", f"{process} waited from {since:.3f}; closed since {closed:.3f}")

    # Remains of releases.

    def _judge_left(self, server: Server, known: _Known, script: str) -> None:
        for key in server.data.touched:
            before, now = known.left.pop(key, None), left_behind(server.data, key)
            if now is not None:
                known.left[key] = now
            if before is None or before[1] <= server.data.clock() or before == now:
                continue
            # The result of a later run replaces an old result.
            is_replaced = key.startswith(b"aiolock_once_old:") and script == "lock/release_later" and now is not None
            if not is_replaced:
                self._violation("left", server, f"{key!r} had {before}, and has {now} by {script}")


def _detaches(ran: Ran) -> bool:
    return ran.script.endswith("/detach")


def _mode(server: Server, key: bytes) -> bytes | None:
    """The mode of a read-write lock; ``None`` for any other key."""
    value = server.data.values.get(key)
    return value.get(b"mode") if type(value) is dict else None
