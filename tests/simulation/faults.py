"""The effect of each fault. A kind of fault is a method of `Faults`, and its number in the profiles."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from tests.simulation.fork import may_fork, use_in_child
from tests.simulation.network import Link, Path
from tests.simulation.process import Process
from tests.simulation.profiles import Fault
from tests.simulation.redis_data import Snapshot
from tests.simulation.server import REFUSES_ALL, REFUSES_WRITES, Server
from tests.simulation.shutdown import WAYS
from tests.simulation.world import NEVER

if TYPE_CHECKING:
    from tests.simulation.fleet import Fleet
    from tests.simulation.topologies.base import Topology

_REFUSALS = (*REFUSES_ALL, *REFUSES_WRITES)
# Refusals after which the library gives up at once, as it should: after a refused release, the lease ends the lock.
_FINAL_REFUSALS = ("NOAUTH",)

# Faults without any effect for users.
HARMLESS = ("lose_sentinel", "fork")
# Faults that cost no held lock.
COSTS_NO_LOCK = (*HARMLESS, "lose_sentinels", "cut_from_sentinels", "slot_moves", "flush_scripts")

# Seconds for which a fault may still be felt: a waiter is told of an outage, a lease ends, a connection is given up.
FELT = 14.0
# Seconds for faults after which the next connection, or the next try, works as usual.
_FELT = {
    **{"reset": 1.0, "lose_reply": 5.0, "flush_scripts": 0.2, "freeze": 2.0, "freeze_within": 2.0, "stall": 2.0},
    **{"no_new_connections": 2.0},
    **{"slot_moves": 1.0, "slot_splits": 3.0, "cut_from_sentinels": 2.0, "lose_sentinels": 2.0},
}
# Seconds from one step of a clock that drifts to the next.
_DRIFTS_EACH = 0.05
_ALL_SLOTS = (range(REDIS_CLUSTER_HASH_SLOTS),)
# Faults by which servers lose data.
LOSES_DATA = ("failover", "restart_empty", "primary_dies", "primary_replaced", "slot_torn")


def _refusal_of(fault: Fault) -> str:
    return _REFUSALS[int(fault.detail * len(_REFUSALS))]


def slowness(fault: Fault) -> float:
    """The factor by which a slow path delays what is sent on it."""
    return 1 + 200 * fault.detail


class Faults:
    def __init__(self, topology: "Topology", fleet: "Fleet", plan: list[Fault]) -> None:
        self.world, self.network, self.topology, self.fleet = topology.world, topology.network, topology, fleet
        topology.faults = self
        self.plan = plan
        self.struck: dict[str, int] = {}
        # The times until which servers forgot grants, each with the slots of the names.
        self._lost: list[tuple[float, Sequence[range]]] = []
        # The time until which clients may use a primary that was replaced, although replicas have to confirm grants.
        self.replaced_until = 0.0
        # Whether a server has refused anything so that it was not asked again.
        self.refused_for_good = False
        # The process, the server, or the connections between them that a fault struck; and the time of its last
        # effects.
        self._struck: list[tuple[str | None, str | None, float]] = []
        self._snapshots: dict[Fault, Snapshot] = {}
        for fault in plan:
            # A replica that lags behind has the data that the server had a moment before.
            if fault.kind == "failover":
                self.world.at(max(0.0, fault.at - 0.3 * fault.detail**2), self._take_snapshot, fault)
            self.world.at(fault.at, self._strike, fault)

    def planned(self, *kinds: str) -> bool:
        """Whether the seed has a fault of any of the *kinds*."""
        return any(fault.kind in kinds for fault in self.plan)

    @property
    def may_refuse_for_good(self) -> bool:
        """Whether the seed has a refusal after which a server is not asked again."""
        return any(fault.kind == "refuse" and _refusal_of(fault) in _FINAL_REFUSALS for fault in self.plan)

    def disturbed(
        self,
        since: float,
        until: float,
        tail: float = FELT,
        *,
        but: Fault | None = None,
        harmless: tuple[str, ...] = HARMLESS,
    ) -> bool:
        """
        Whether a fault struck in that time, or at most *tail* seconds before, so that it may still have effects; *but*
        that fault, and kinds that are *harmless*, do not count.
        """
        # A process freezes within a turn later than planned, if it has little to do.
        froze_last = max((process.froze_last for process in self.fleet.members), default=0.0)
        return since <= froze_last + min(tail, _FELT["freeze"]) or any(
            fault.at <= until and since <= fault.at + fault.lasts + min(tail, _FELT.get(fault.kind, FELT))
            for fault in self.plan
            if fault is not but and fault.kind not in harmless
        )

    def lose_data(self, until: float, *, slots: Sequence[range] = _ALL_SLOTS, though_confirmed: bool = False) -> None:
        """
        Servers may forget their grants of names in the *slots* until that time, as documented. If replicas have to
        confirm grants, the servers forget them only in a fault that loses grants *though* they are *confirmed*.
        """
        self.replaced_until = max(self.replaced_until, until)
        if though_confirmed or self.fleet.settings.replicas is None:
            self._lost.append((until, slots))

    def lost_until(self, name: str) -> float:
        """The time until which grants of that name may have been forgotten."""
        slot = key_slot(name.encode())
        return max((until for until, slots in self._lost if any(slot in each for each in slots)), default=-NEVER)

    def reached(self, process: Process, server: Server | None, since: float) -> bool:
        """Whether a fault since then struck the process, the server (without one: any server) or their connections."""
        return any(
            struck in (None, process.name) and (server is None or at in (None, server.name)) and until >= since
            for struck, at, until in self._struck
        )

    def _note(self, fault: Fault, process: Process | None, server: Server | None) -> None:
        """Note that the fault strikes the process, the server or, if both are given, the connections between them."""
        until = self.world.now + fault.lasts + _FELT.get(fault.kind, FELT)
        self._struck.append((process.name if process else None, server.name if server else None, until))

    def _strike(self, fault: Fault) -> None:
        # All processes are dead, and the next ones have not started yet.
        if not self.world.processes:
            return
        self.world.trace("fault", str(fault))
        self.struck[fault.kind] = self.struck.get(fault.kind, 0) + 1
        strike: Callable[[Fault], None] = getattr(self, fault.kind, None) or getattr(self.topology, fault.kind)
        if fault.kind not in vars(Faults) and fault.kind not in HARMLESS:
            self._note(fault, None, None)
        strike(fault)

    # The targets of faults.

    def _any_server(self, fault: Fault) -> Server:
        servers = self.topology.truths or self.topology.servers
        return servers[fault.target % len(servers)]

    def _any_process(self, fault: Fault) -> Process:
        process = self.world.processes[fault.target % len(self.world.processes)]
        assert isinstance(process, Process)
        return process

    def _server(self, fault: Fault) -> Server:
        server = self._any_server(fault)
        self._note(fault, None, server)
        return server

    def _process(self, fault: Fault) -> Process:
        process = self._any_process(fault)
        self._note(fault, process, None)
        return process

    def _link(self, fault: Fault) -> Link | None:
        links = [link for link in self.network.links if not link.is_half_open and not link.process.killed]
        # In three of four cases the fault strikes a connection that is in use.
        if fault.target % 4:
            links = sorted(links, key=lambda link: -link.wrote_at)[:3]
        if not links:
            return None
        link = links[fault.target % len(links)]
        self._note(fault, link.process, link.server)
        return link

    def _path(self, fault: Fault) -> Path:
        process, server = self._any_process(fault), self._any_server(fault)
        self._note(fault, process, server)
        return self.network.path(process.name, server.name)

    # The network.

    def reset(self, fault: Fault) -> None:
        if link := self._link(fault):
            link.reset(forget=fault.detail < 0.5)

    def lose_reply(self, fault: Fault) -> None:
        if link := self._link(fault):
            link.replies_left = int(fault.detail * 4)

    def half_open(self, fault: Fault) -> None:
        if link := self._link(fault):
            link.is_half_open = True

    def late(self, fault: Fault) -> None:
        """Data arrive much later. The process gives up the connection, or learns that the connection broke."""
        if link := self._link(fault):
            link.hold(fault.lasts * (4 if fault.detail < 0.9 else 12))
            if fault.detail < 0.8:
                self.world.after(0.1 * fault.detail, self._reset_late, link)

    def _reset_late(self, link: Link) -> None:
        link.reset(forget=False)

    def cut(self, fault: Fault) -> None:
        self._path(fault).cut_until = self.world.now + fault.lasts

    def slow(self, fault: Fault) -> None:
        path = self._path(fault)
        path.slow = slowness(fault)
        self.world.after(fault.lasts, setattr, path, "slow", 1.0)

    def no_new_connections(self, fault: Fault) -> None:
        """Name resolution fails, or no file descriptor is left: open connections live on."""
        self._path(fault).refuses_until = self.world.now + fault.lasts

    # The servers.

    def restart(self, fault: Fault) -> None:
        self._restart(fault, None)

    def restart_empty(self, fault: Fault) -> None:
        self._restart(fault, ({}, {}))

    def failover(self, fault: Fault) -> None:
        """The replica becomes the primary. Where replicas are simulated, it has what they confirmed."""
        server = self._server(fault)
        if server.replica is None:
            self._restart(fault, self._snapshots[fault])
        elif server.is_up:
            server.crash()
            self.world.after(fault.lasts, server.restart, server.replica.data)

    def _take_snapshot(self, fault: Fault) -> None:
        self._snapshots[fault] = self._any_server(fault).data.snapshot()

    def _restart(self, fault: Fault, snapshot: Snapshot | None) -> None:
        server = self._server(fault)
        if server.is_up:
            server.crash()
            self.world.after(fault.lasts, self._come_up, fault, server, snapshot)

    def _come_up(self, fault: Fault, server: Server, snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            self.lose_data(self.world.now)
        server.restart(snapshot)

    def hold_up_replica(self, fault: Fault) -> None:
        if (replica := self._server(fault).replica) is not None:
            replica.held_up_until = self.world.now + fault.lasts

    def stall(self, fault: Fault) -> None:
        self._server(fault).stall(fault.lasts)

    def refuse(self, fault: Fault) -> None:
        server = self._server(fault)
        if server.refusal is None:
            server.refusal = _refusal_of(fault)
            self.refused_for_good |= server.refusal in _FINAL_REFUSALS
            self.world.trace(server.name, f"refuses: {server.refusal}")
            self.world.after(fault.lasts, setattr, server, "refusal", None)

    def flush_scripts(self, fault: Fault) -> None:
        self._server(fault).known_scripts.clear()

    def clock_back(self, fault: Fault) -> None:
        """The server's clock steps back, by 10 milliseconds to 10 seconds."""
        self._server(fault).wall -= 10 ** (3 * fault.detail - 2)

    def clock_on(self, fault: Fault) -> None:
        """The server's clock steps on, by less than the margin of a lease."""
        self._server(fault).wall += 0.004 * fault.detail

    def clock_drifts(self, fault: Fault) -> None:
        """The server's clock goes faster or slower, by a thousandth at most."""
        server, rate = self._server(fault), 0.001 * (2 * fault.detail - 1)
        for number in range(int(fault.lasts / _DRIFTS_EACH)):
            self.world.after(number * _DRIFTS_EACH, self._move_clock, server, rate * _DRIFTS_EACH)

    def _move_clock(self, server: Server, seconds: float) -> None:
        server.wall += seconds

    # The processes.

    def freeze(self, fault: Fault) -> None:
        self._process(fault).freeze(fault.lasts)

    def freeze_within(self, fault: Fault) -> None:
        self._process(fault).arm_freeze(int(fault.detail * 40), fault.lasts)

    def shut_down(self, fault: Fault) -> None:
        process = self._process(fault)
        member = self.fleet.members[process]
        if not process.in_turn and not member.is_shutting_down:
            way = WAYS[int(fault.detail * len(WAYS))]
            process.call_soon(way, member, context=process.root)
        self.world.after(fault.lasts, self.fleet.start)

    def fork(self, fault: Fault) -> None:
        """A process forks, and the child lets the event loop run on; its clients, which are copies, do nothing."""
        process = self._any_process(fault)
        if may_fork(process):
            for words in use_in_child(process, cancels=fault.detail < 0.5):
                self.world.violation("fork", f"a child of {process.name} {words}")

    def kill(self, fault: Fault) -> None:
        process = self._process(fault)
        # A process that froze within a turn is killed when it goes on.
        if process.in_turn:
            self.world.after(0.1, self.kill, fault)
            return
        self.fleet.kill(process)
        self.world.after(fault.lasts, self.fleet.start)
