"""
The course of waits.

    wake-up   no task waits for a free lock for longer than the documentation says (P6)
    wait      a wait lasts no longer than its limit
    line      the first in line for a fair lock gets it first, while nothing is wrong
"""

from dataclasses import dataclass

from tests.simulation.faults import Faults, slowness
from tests.simulation.process import Process
from tests.simulation.script_calls import GRANTED, REFUSED, LockCall, Ran, asked_for
from tests.simulation.world import World

# Seconds within which a free lock is taken, while nothing is wrong.
_SOON = 1.5
# Seconds until the caller of a command is told that it failed.
_TOLD = 5.0
# Seconds without a sign of life after which a fair lock may pass over a client: a little less than its script says.
_SILENCE = 0.69


@dataclass
class _Place:
    """A place in the line for a fair lock."""

    since: float
    # The client gave no sign of life. Each of its tasks comes back as it asks again, as documented.
    may_be_gone: bool = False


class Waits:
    def __init__(self, world: World, faults: Faults, most_latency: float) -> None:
        self.world, self.faults, self._most_latency = world, faults, most_latency
        # Seconds for a message and the acquire that follows it; and seconds to connect, to ask and to get the answer.
        self._prompt = 0.03 + 4 * most_latency
        self._slack = 0.3 + 12 * most_latency
        self._waiting: dict[object, tuple[Process, str, float]] = {}
        # The time of the last question for each lock; and for each free lock the number of its grants, and the time at
        # which it became free.
        self._tried: dict[str, float] = {}
        self._free: dict[str, tuple[int, float]] = {}
        # The acquisitions that stand in line for each fair lock; and the last sign of life of each client.
        self._lines: dict[bytes, dict[bytes, _Place]] = {}
        self._alive: dict[tuple[bytes, bytes], float] = {}

    # Reports of the acts.

    def begin(self, process: Process, name: str) -> object:
        key = object()
        self._waiting[key] = (process, name, self.world.now)
        return key

    def end(self, key: object) -> None:
        del self._waiting[key]

    def gave_up(self, process: Process, name: str, wait: float | None, since: float) -> None:
        """A wait has ended without a lock."""
        took = (self.world.now - since) * process.rate
        if self._is_wrong(process, took, wait, since):
            self.world.violation("wait", f"{process.name} {name}: gave up after {took:.3f} s of {wait}")

    def _is_wrong(self, process: Process, took: float, wait: float | None, since: float) -> bool:
        if wait is None or took < wait - 0.001:
            return True
        disturbed = self.faults.disturbed(since, self.world.now, 1.0)
        if took > wait + self._slack and not (disturbed or self._waits_behind(since)):
            return True
        was_awake = process.froze_last < since
        return took > wait + _TOLD + self._slack and was_awake and not self._is_still_disturbed(since)

    def _is_still_disturbed(self, since: float) -> bool:
        """Commands of this seed may take long to be answered: the paths are slow."""
        disturbed = self.faults.planned("slow", "cut") and self.faults.disturbed(since, self.world.now, 1.0)
        return disturbed or self._waits_behind(since)

    def _waits_behind(self, since: float) -> bool:
        """Whether a command may wait behind one that was sent on a slow path, which keeps the order."""
        slow = [fault for fault in self.faults.plan if fault.kind == "slow" and fault.at <= self.world.now]
        return any(since <= fault.at + fault.lasts + self._most_latency * slowness(fault) for fault in slow)

    def still_waiting(self) -> list[str]:
        return [f"{process.name} waits for {name} since {since:.2f}" for process, name, since in self._waiting.values()]

    # Reports of the servers.

    def script_ran(self, ran: Ran, freed: list[bytes]) -> None:
        if name := asked_for(ran.script, ran.args):
            self._tried[name] = self.world.now
        for call in ran.lock_calls:
            if not call.is_release:
                self._tried[call.key.decode()] = self.world.now
            if call.is_fair:
                self._check_line(call)
        for key in freed:
            self.world.after(self._prompt, self._check_tried, key.decode(), self.world.now)

    def _check_tried(self, name: str, freed: float) -> None:
        """A lock was freed a moment ago: has any waiter tried to get it?"""
        # A later waiter may have been on the way to be refused, or to listen.
        early = freed - 4 * self._prompt
        waits = [
            process.name
            for process, each, since in self._waiting.values()
            if each == name and since < early and not process.killed
        ]
        if waits and self._tried.get(name, 0.0) < freed and not self.faults.disturbed(freed, self.world.now):
            self.world.violation("wake-up", f"{name} was freed at {freed:.3f}, but none of {waits} tries to get it")

    def look(self, grants: dict[str, int]) -> None:
        """Is there a free lock that has waiters?"""
        for name in dict.fromkeys(name for _, name, _ in self._waiting.values() if name.startswith("lock")):
            self._look_at(name, grants.get(name, 0))

    def _look_at(self, name: str, count: int) -> None:
        server, now = self.faults.topology.truth(name), self.world.now
        assert server is not None
        if server.data.find(name.encode()) is not None:
            self._free.pop(name, None)
            return
        grants, since = self._free.setdefault(name, (count, now))
        if grants != count:
            self._free[name] = (count, now)
            return
        waits = [began for process, each, began in self._waiting.values() if each == name and not process.killed]
        if waits and now >= max(since, min(waits)) + _SOON and not self.faults.disturbed(since, now):
            self.world.violation("wake-up", f"{name} is free since {since:.2f}, and {len(waits)} wait for it")
            self._free[name] = (count, now + 1000)

    def _check_line(self, call: LockCall) -> None:
        line = self._lines.setdefault(call.key, {})
        self._pass_over(call.key, line)
        if call.is_release:
            line.pop(call.acquisition, None)
        elif call.status == GRANTED:
            own = line.pop(call.acquisition, None)
            if call.holds == 1:
                self._judge_order(call, self.world.now if own is None else own.since, line)
        elif call.stands_in_line and call.status == REFUSED:
            line.setdefault(call.acquisition, _Place(self.world.now)).may_be_gone = False
            self._alive[call.key, _client_of(call.acquisition)] = self.world.now

    def _pass_over(self, key: bytes, line: dict[bytes, _Place]) -> None:
        """At each script of the lock, the server may pass over the clients that gave no sign of life."""
        for acquisition, place in line.items():
            if self.world.now - self._alive[key, _client_of(acquisition)] > _SILENCE:
                place.may_be_gone = True

    def _judge_order(self, call: LockCall, since: float, line: dict[bytes, _Place]) -> None:
        """The lock is granted to a waiter that came at the time *since*: did another one come before?"""
        passed = [
            acquisition
            for acquisition, place in line.items()
            if place.since < since - 0.001 and not place.may_be_gone and self.faults.fleet.is_in_use(acquisition)
        ]
        # The order is that of the server's clock.
        calm = not self.faults.planned("clock_back") and not self.faults.disturbed(since, self.world.now)
        if passed and calm:
            self.world.violation("line", f"{call.key!r} is granted to {call.acquisition!r} before {passed[:3]}")


def _client_of(acquisition: bytes) -> bytes:
    return acquisition.rpartition(b":")[0]
