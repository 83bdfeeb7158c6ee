"""
A cluster of two or three primaries, each with a replica.

Slots move while their keys are in use, key by key; primaries die or are cut off, and their replicas take their places.
Each server hears of that at its own time. A server that is cut off goes on granting until it hears.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

import aiolock
from tests.simulation.network import Network
from tests.simulation.profiles import FOR_CLUSTERS, Fault
from tests.simulation.server import Server
from tests.simulation.topologies.base import Replicas, Topology
from tests.simulation.topologies.cluster_node import Node, View
from tests.simulation.topologies.pair import Pair

# Names whose slots move.
_NAMES = ("lock-a", "lock-b", "lock-a", "lock-b", "rw", "permits", "sem", "latch", "once-1")


@dataclass
class Move:
    """A slot that moves from one shard to another."""

    slot: int
    source: int
    target: int
    # The primary of either shard was replaced meanwhile, so that a key may be there twice, or not at all.
    is_torn: bool = False


class Cluster(Topology):
    profiles = FOR_CLUSTERS
    replaces_primaries = True

    def __init__(self, network: Network, draw: Random, profile: str) -> None:
        super().__init__(network, draw, profile)
        self._random = self.world.generator("cluster")
        shards, is_sharded = self._random.choice((2, 3)), self._random.random() < 0.75
        names = [f"n{number + 1}" for number in range(2 * shards)]
        self._nodes: list[Node] = [self.add(Node(self.world, name, is_sharded=is_sharded)) for name in names]
        self.servers = [*self._nodes]
        self._pairs = [Pair(self._nodes[n], self._nodes[n + shards], self._random) for n in range(shards)]
        for number, node in enumerate(self._nodes):
            node.nodes = self._nodes
            node.partner = self._nodes[(number + shards) % len(self._nodes)]
            node.view = View(self._nodes[:shards])
        # The true owners of the slots, which not every server knows.
        self._view = View(self._nodes[:shards])
        self._epoch = 0
        self._move: Move | None = None

    @property
    def truths(self) -> Sequence[Server]:
        return [pair.primary for pair in self._pairs]

    def truth(self, name: str) -> Server | None:
        slot = key_slot(name.encode())
        owner, key = self._view.owner(slot), name.encode()
        # A key that has moved is at the other server already.
        there = owner.migrating.get(slot)
        has_moved = there is not None and key in there.data.values and key not in owner.data.values
        return there if has_moved else owner

    def replicas(self, draw: Random) -> Replicas:
        return draw.choice((None, None, 1, "all"))

    def client(self, config: aiolock.LockConfig) -> aiolock.LockClient:
        seeds = [ClusterNode(node.name, 6379) for node in self._random.sample(self._nodes, 2)]
        return aiolock.LockClient(RedisCluster(startup_nodes=seeds), config=config)

    def _pair(self, fault: Fault) -> Pair:
        return self._pairs[fault.target % len(self._pairs)]

    def _delay(self) -> float:
        """Seconds until a server hears of a change; now and then a server hears of it late."""
        return 0.3 * self._random.random() ** 2 + self._random.choice((0.0,) * 7 + (2.0,))

    # Primaries that change.

    def primary_dies(self, fault: Fault) -> None:
        """A primary dies; the others agree on that, and promote its replica, whose replica the old primary becomes."""
        pair = self._pair(fault)
        if pair.is_changing or not pair.primary.is_up:
            return
        pair.primary.crash()
        pair.is_changing = True
        self.world.after((0.3 + 0.7 * fault.detail) * fault.lasts, self._promote, pair, fault)
        self.world.after(fault.lasts, self._demote, pair)

    def primary_replaced(self, fault: Fault) -> None:
        """A primary is cut off from the others, but not from clients; it stops as it notices, and becomes a replica."""
        pair = self._pair(fault)
        if not pair.is_changing and pair.primary.is_up:
            old = pair.primary
            self._promote(pair, fault)
            self.world.after(fault.detail * fault.lasts, setattr, old, "is_cluster_down", True)
            self.world.after(fault.lasts, self._demote, pair)

    def _promote(self, pair: Pair, fault: Fault) -> None:
        old, new = pair.primary, pair.standby
        assert isinstance(old, Node)
        assert isinstance(new, Node)
        lost_moves, shard = pair.promote(), self._pairs.index(pair)
        slots = [range(first, last + 1) for first, last, owner in self._view.ranges() if owner is old]
        if self._move is not None and shard in (self._move.source, self._move.target):
            slots.append(range(self._move.slot, self._move.slot + 1))
        self.faults.lose_data(fault.at + fault.lasts, slots=slots, though_confirmed=lost_moves)
        # The primaries give no vote to a replica that claims a slot which has moved.
        new.view.learn_moves(self._view)
        self._go_on_moving(shard, old, new)
        self._epoch += 1
        for view in (self._view, new.view):
            view.learn_primary(shard, new, self._epoch)
        for node in self._nodes:
            if node is not old:
                self.world.after(self._delay(), node.view.learn_primary, shard, new, self._epoch)

    def _demote(self, pair: Pair) -> None:
        old, new = pair.standby, pair.primary
        assert isinstance(old, Node)
        assert isinstance(new, Node)
        old.view.learn_primary(self._pairs.index(pair), new, self._epoch)
        old.is_cluster_down = False
        old.migrating.clear()
        old.importing.clear()
        pair.demote()
        if not old.is_up:
            old.restart()

    # Slots that move.

    def slot_moves(self, fault: Fault) -> None:
        """The slot of a name moves to another primary, and its keys together."""
        self._move_slot(fault, 0.0)

    def slot_splits(self, fault: Fault) -> None:
        """A slot moves, each key at a time of its own."""
        self._move_slot(fault, 0.7 * fault.lasts)

    def slot_torn(self, fault: Fault) -> None:
        """A slot moves, each key at a time of its own, and the primary of one end dies or is replaced meanwhile."""
        self._move_slot(fault, 0.7 * fault.lasts)
        if self._move is not None:
            shard = (self._move.source, self._move.target)[fault.target // 2 % 2]
            change = replace(fault, at=fault.at + 0.3 * fault.lasts, target=shard, lasts=0.6 * fault.lasts)
            strike = self.primary_dies if fault.detail < 0.5 else self.primary_replaced
            self.world.at(change.at, strike, change)

    def _move_slot(self, fault: Fault, seconds: float) -> None:
        slot = key_slot(_NAMES[fault.target % len(_NAMES)].encode())
        shard = self._view.shard(slot)
        to = (shard + 1) % len(self._pairs)
        pairs = self._pairs[shard], self._pairs[to]
        if self._move is not None or any(pair.is_changing or not pair.primary.is_up for pair in pairs):
            return
        self._move = Move(slot, shard, to)
        source, target = self._ends(self._move)
        target.importing[slot] = source
        source.migrating[slot] = target
        self.world.after(0.2 * fault.lasts, self._move_keys, self._move, seconds)
        self.world.after(fault.lasts, self._settle, self._move)

    def _ends(self, move: Move) -> tuple[Node, Node]:
        """The servers that the slot moves from and to."""
        source, target = self._pairs[move.source].primary, self._pairs[move.target].primary
        assert isinstance(source, Node)
        assert isinstance(target, Node)
        return source, target

    def _go_on_moving(self, shard: int, old: Node, new: Node) -> None:
        """A replica takes over while a slot moves: it knows that, as from Valkey 8 on."""
        move = self._move
        if move is None or shard not in (move.source, move.target):
            return
        move.is_torn = True
        new.migrating, new.importing = dict(old.migrating), dict(old.importing)
        source, target = self._ends(move)
        if source.migrating:
            source.migrating[move.slot] = target

    def _move_keys(self, move: Move, seconds: float) -> None:
        for key in self._keys(move):
            self.world.after(seconds * self._random.random(), self._move_key, move, key)

    def _keys(self, move: Move) -> list[bytes]:
        """The keys of the slot that are still at its source."""
        return [key for key in self._ends(move)[0].data.values if key_slot(key) == move.slot]

    def _move_key(self, move: Move, key: bytes) -> None:
        """The key takes the place of a copy that a primary had when it was replaced."""
        source, target = self._ends(move)
        source.tick()
        if move is not self._move or not (source.is_up and target.is_up) or source.data.find(key) is None:
            return
        self.world.trace(source.name, f"{key.decode()} moves to {target.name}")
        target.tick()
        target.data.take(key, source.data)
        # A primary that was replaced a moment ago has no replica yet.
        if source.replica is not None:
            source.replica.write()
        if target.replica is not None:
            self._pairs[move.target].moved = target.replica.write()
        self.faults.fleet.checks.moved(key, source, target)

    def _settle(self, move: Move) -> None:
        """Move the rest of the keys at once; then the servers hear of the slot's new owner, which hears first."""
        source, target = self._ends(move)
        if not (source.is_up and target.is_up):
            self.world.after(0.1, self._settle, move)
            return
        for key in self._keys(move):
            self._move_key(move, key)
        if move.is_torn:
            self.faults.lose_data(self.world.now, slots=[range(move.slot, move.slot + 1)], though_confirmed=True)
        self._epoch += 1
        for view in (self._view, target.view):
            view.learn_move(move.slot, move.target, self._epoch)
        target.importing.pop(move.slot, None)
        self.world.after(0.01 * self._random.random(), self._leave, move, self._epoch)
        for node in self._nodes:
            self.world.after(0.02 + self._delay(), node.view.learn_move, move.slot, move.target, self._epoch)

    def _leave(self, move: Move, epoch: int) -> None:
        source, _ = self._ends(move)
        source.view.learn_move(move.slot, move.target, epoch)
        source.migrating.pop(move.slot, None)
        source.leave_channels(lambda each: each == move.slot)
        self._move = None

    def cluster_down(self, fault: Fault) -> None:
        """A part of the slots has no owner, so that no slot is served."""
        for node in self._nodes:
            node.is_cluster_down = True
            self.world.after(fault.lasts, setattr, node, "is_cluster_down", False)
