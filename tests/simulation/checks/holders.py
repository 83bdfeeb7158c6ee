"""
The belief of holders, compared with each other and with the server.

    exclusion     when a lock is granted, no earlier holder believes to hold it (P1, P3)
    acts          a holder that acts after `check()` has the lock on the server at that moment (P3)
    untold        a holder that believes in its lock has it there; one whose lock was forgotten is told soon (P3)
    late cancel   the body of a lost lock was cancelled before the next grant (P3)
    count         the server's hold count is the holder's (P2, P5)
    fencing       tokens grow per name (P11)
    stale         a server that was replaced grants nothing to clients that can know it
    at least      a lock that is kept for a while is granted to nobody else
    ticket        a detached hold has the token of its holder; one of all tasks that try to adopt it gets it, with a
                  greater token
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.simulation.checks.counted import Counted
from tests.simulation.faults import Faults
from tests.simulation.process import Process
from tests.simulation.profiles import LEASES
from tests.simulation.script_calls import GRANTED, FamilyCall, LockCall
from tests.simulation.server import Server
from tests.simulation.world import NEVER, World

_DETACHED = b":detached:"


class _Grant(NamedTuple):
    """The state of a lock on its server."""

    acquisition: bytes
    token: int


@dataclass(eq=False)
class Held:
    """A holder that was granted something, and has not begun to release it."""

    process: Process
    name: str
    is_shared: bool
    lease: Any
    since: float
    # The body was cancelled, or the lease said that it is lost.
    was_told: bool = False
    is_scoped: bool = False

    @property
    def lasts(self) -> float:
        """The seconds after which the hold ends by itself, if nothing renews it."""
        is_watched = getattr(self.lease, "watched", False)
        return float(self.lease.lease) if is_watched else max(LEASES)

    def believes(self) -> bool:
        """Whether the holder believes to have the lock, by its own clock."""
        world, process = self.process.world, self.process
        running, armed = world.running, process.disarm()
        world.running = process
        try:
            return not (self.was_told or self.lease.lost.is_set())
        finally:
            world.running = running
            process.rearm(armed)

    def __str__(self) -> str:
        return f"{self.process.name} with token {self.lease.token}, since {self.since:.3f}"


class Holders:
    def __init__(self, world: World, faults: Faults, capacity: dict[str, int]) -> None:
        self.world, self.faults, self.topology = world, faults, faults.topology
        self.capacity = capacity
        self.counted = Counted(world, faults)
        self.held: list[Held] = []
        # The last time at which a server had other data than before.
        self._started_over = -NEVER
        # The time at which a lock was last freed by force, by name.
        self.forced: dict[str, float] = {}
        # Grants by the server, per name.
        self.grants: dict[str, int] = {}
        # The time of each grant on the server, by name and token: a frozen process hears of it later.
        self._granted_at: dict[tuple[str, int], float] = {}
        # The time until which a lock is kept, and the time after which it was granted for that.
        self._kept: dict[str, tuple[float, float]] = {}
        self._told: dict[str, list[tuple[int, bool]]] = {}
        self._tokens: dict[str, int] = {}
        self._acquisitions: dict[bytes, _Grant] = {}

    # Reports of the acts.

    def took(self, process: Process, name: str, lease: Any, *, shared: bool = False) -> Held:
        held = Held(process, name, shared, lease, self.world.now)
        self.world.trace(process.name, f"has {name}, token {lease.token}")
        self._check_told_token(name, lease.token, shared=shared)
        others = [
            each
            for each in self.held
            if each.name == name and not each.process.killed and each.lease.token != lease.token and each.believes()
        ]
        if name in self.capacity:
            self._check_capacity(held, others)
        else:
            for each in others:
                if not (shared and each.is_shared) and held.believes() and not self._is_excused(held, each):
                    self.world.violation("exclusion", f"{name}: {held}, but {each} believes to have it")
        self.held.append(held)
        return held

    def _check_capacity(self, held: Held, others: list[Held]) -> None:
        is_counted = held.name == "sem"
        most = self.capacity[held.name] + (self.counted.on_top if is_counted else 0)
        # The time of a ticket may be over when its holder gets it.
        if len(others) >= most and held.believes() and (is_counted or not self._is_excused(held, *others)):
            self.world.violation("exclusion", f"{held.name}: {held}, beside {'; '.join(map(str, others))}")

    def gives_back(self, held: Held) -> None:
        if held in self.held:
            self.held.remove(held)
            self.world.trace(held.process.name, f"gives {held.name} back, token {held.lease.token}")

    def forget(self, process: Process) -> None:
        """The process was killed."""
        self.held = [held for held in self.held if held.process is not process]

    def keep(self, name: str, since: float, until: float) -> None:
        """The lock, granted after the time *since*, is granted to nobody else before the time *until*."""
        self._kept[name] = max(self._kept.get(name, (0.0, 0.0)), (until, since))

    def acts(self, held: Held) -> None:
        """The holder acts under the lock, just after `check()` said that it is held."""
        server = self.topology.truth(held.name)
        if server is None or held.is_shared or held.name in self.capacity or self._is_excused(held):
            return
        server.tick()
        value = server.data.find(held.name.encode())
        token = value.get(b"aiolock:token") if isinstance(value, dict) else None
        if value is None:
            self.world.violation("acts", f"{held.name}: {held} acts, but the server has no such lock")
        elif token is not None and held.name.startswith("lock") and int(token) != held.lease.token:
            self.world.violation("acts", f"{held.name}: {held} acts, but the server has token {token!r}")

    def adopted(self, detached: Held, times: int, token: int) -> None:
        """The *detached* hold was adopted, for the *times*-th time, now with that *token*."""
        if times > 1 and self.faults.lost_until(detached.name) < detached.since:
            self.world.violation("ticket", f"{detached.name}: {detached} was adopted {times} times")
        if token <= detached.lease.token:
            self.world.violation("ticket", f"{detached.name}: {detached} was adopted with token {token}")

    # Reports of the servers.

    def look_for_grants(self, server: Server) -> None:
        """A script has run: was a lock granted?"""
        for key in server.data.touched:
            value = server.data.values.get(key)
            if value is None:
                self._acquisitions.pop(key, None)
            elif isinstance(value, dict) and b"aiolock:acquisition" in value:
                before, now = self._acquisitions.get(key), _granted_in(value)
                self._acquisitions[key] = now
                if before != now and _DETACHED not in now.acquisition:
                    self._granted(_name_of(key), now.token)
                elif before != now and (before is None or before.token != now.token):
                    self.world.violation("ticket", f"{key!r}: {before} was detached as {now}")

    def note_grant(self, call: FamilyCall | None) -> None:
        """Note the time at which a read-write lock or permits were granted, if *call* has done that."""
        if call is not None and call.token:
            self._granted_at.setdefault((_name_of(call.key), call.token), self.world.now)

    def _granted(self, name: str, token: int) -> None:
        self.grants[name] = self.grants.get(name, 0) + 1
        self._granted_at[name, token] = self.world.now
        kept_until, since = self._kept.get(name, (0.0, 0.0))
        if self.world.now < kept_until - 0.01 and self.gone_at(name) < since:
            self.world.violation("at least", f"{name} is granted (token {token}), but kept until {kept_until:.3f}")
        last = self._tokens.get(name, 0)
        if token <= last:
            self.world.violation("fencing", f"{name}: the server grants token {token} after {last}")
        self._tokens[name] = max(token, last)
        for held in self.held:
            if held.name == name and not held.process.killed and held.lease.token != token:
                self._check_loser(held, token)

    def _check_loser(self, held: Held, token: int) -> None:
        """The lock of *held* is granted to another holder, with *token*."""
        if self._is_excused(held):
            return
        if held.believes():
            self.world.violation("exclusion", f"{held.name} is granted (token {token}), but {held} believes to have it")
        elif held.is_scoped and not held.was_told and not self._froze_lately(held.process):
            self.world.violation("late cancel", f"{held.name} is granted (token {token}), but the body of {held} runs")

    def judge_stale(self, server: Server, calls: list[LockCall]) -> None:
        """A replaced primary has run a script. It may grant locks until clients have heard of the new primary."""
        granted = [call for call in calls if not call.is_release and call.status == GRANTED]
        for call in granted:
            if token := server.data.values.get(call.key, {}).get(b"aiolock:token"):
                self._granted_at.setdefault((_name_of(call.key), int(token)), self.world.now)
            # If replicas have to confirm a grant, this grant counts for nothing.
            counts = self.faults.fleet.settings.replicas is None
            if counts and self.world.now > self.faults.lost_until(_name_of(call.key)):
                self.world.violation("stale", f"{server.name}, which was replaced, grants {call}")

    def start_over(self) -> None:
        """A server has other data than it had."""
        self._started_over = self.world.now
        found = {key: server.data.find(key) for server in self.topology.truths for key in list(server.data.values)}
        self._acquisitions = {
            key: _granted_in(value)
            for key, value in found.items()
            if type(value) is dict and b"aiolock:acquisition" in value
        }

    def compare(self) -> None:
        """Each holder that believes in its lock has it on the server, with the same hold count."""
        for held in self.held:
            if not held.name.startswith("lock") or held.process.killed or not held.believes() or self._is_excused(held):
                continue
            server = self.topology.truth(held.name)
            assert server is not None
            value = server.data.find(held.name.encode())
            if not isinstance(value, dict) or value.get(b"aiolock:token") != b"%d" % held.lease.token:
                self.world.violation("untold", f"{held.name}: {held} believes to have it; the server has {value!r}")
                continue
            self._check_count(held, value)

    def _check_count(self, held: Held, value: dict[bytes, bytes]) -> None:
        from tests.support.inside import count_of

        counted = count_of(held.lease)
        member = self.faults.fleet.members[held.process]
        if counted is None or member.pending():
            return
        owner, count, step = counted
        if int(value[owner.encode()]) != count and not self._forgot_change(held, value, step):
            self.world.violation("count", f"{held.name}: {held} holds it {count} times; the server has {value!r}")

    def _forgot_change(self, held: Held, value: dict[bytes, bytes], step: int) -> bool:
        """Whether the server has lost the change of the count that was number *step*; the next one tells it."""
        granted = self._granted_at.get((held.name, held.lease.token), held.since)
        # No replica confirms the release of a nested hold.
        lost = max(self.gone_at(held.name), self.faults.replaced_until, self._started_over)
        return int(value.get(b"aiolock:step", b"1")) < step and granted <= lost

    # Tokens.

    def _check_told_token(self, name: str, token: int, *, shared: bool) -> None:
        # A holder that goes on after an inner hold is told nothing new.
        if name in self.capacity or (token, shared) in self._told.get(name, ()):
            return
        # Readers may hear of their grants in any order; of two holders that exclude each other, the later one has the
        # greater token.
        last = max((each for each, other in self._told.get(name, ()) if not (shared and other)), default=0)
        # A lock that is freed by force is granted to the next holder before the first one has heard of its own grant.
        # The same happens after a loss of the data that had the grant.
        was_lost = self._granted_at.get((name, token), self.world.now) <= self.gone_at(name)
        if token < last and not was_lost:
            self.world.violation("fencing", f"{name}: token {token} after {last}")
        self._told.setdefault(name, []).append((token, shared))

    # Documented limits.

    def gone_at(self, name: str) -> float:
        """The last time at which the lock may have been lost by its server, or was freed by force."""
        return max(self.faults.lost_until(name), self.forced.get(name, -NEVER))

    def _is_excused(self, *held: Held) -> bool:
        """
        Whether one server forgot its grants, or was told to free them: as documented, the holder is told soon, but
        not before the next grant.
        """
        if not self.topology.truths:
            return False
        gone = self.gone_at(held[0].name)
        # A grant may have been on its way when the server forgot.
        granted = [min(each.since, self._granted_at.get((each.name, each.lease.token), each.since)) for each in held]
        return min(granted) <= gone + 0.3 and self.world.now <= gone + max(each.lasts for each in held)

    def _froze_lately(self, process: Process) -> bool:
        return process.in_turn or self.world.now < max(process.froze_last, process.frozen_until) + 0.1


def _granted_in(lock: dict[bytes, bytes]) -> _Grant:
    return _Grant(lock[b"aiolock:acquisition"], int(lock[b"aiolock:token"]))


def _name_of(key: bytes) -> str:
    """The name of the lock for its holders; the key of a body that runs once is longer."""
    return key.decode().removeprefix("aiolock_once:{").removesuffix("}")
