"""
A server of a cluster: its view of the slots, and its redirections for other servers' slots.

As Redis 7 does: the owner of a slot that is moving serves a script whose keys are all there, and answers ASK if none is
there, or TRYAGAIN; the server that it moves to serves clients that have said ASKING, if all keys have arrived.
"""

from collections.abc import Sequence
from typing import Any

from redis.crc import key_slot

from tests.simulation.redis_data import COMMANDS as DATA_COMMANDS
from tests.simulation.redis_data import RefusedError, Status
from tests.simulation.redis_lua import ERROR, NO_VALUE
from tests.simulation.server import NOT_HERE, WRITES, Server, Session, encoded, script_name
from tests.simulation.world import World

SLOTS = 16384
# Commands whose arguments are all keys; of other commands, only the first one is.
_OF_KEYS = (b"DEL", b"EXISTS")
# A script may be cut short after these writes: they remove expired members, or let a key live.
_TIDIES_UP = (b"ZREM", b"ZREMRANGEBYSCORE", b"PEXPIRE")
# A reader's release goes on, because it asks for the records of others by `pcall`; an acquire of permits has only put
# expired permits back.
_MAY_BE_CUT = ("read_write/release", "permit/acquire")


class View:
    """The owners of slots, as one server knows them: each shard has its slots, except those that have moved."""

    def __init__(self, primaries: "list[Node]") -> None:
        # Each entry has an epoch, so that older news change nothing.
        self._primaries = [(0, node) for node in primaries]
        self._moved: dict[int, tuple[int, int]] = {}

    def learn_primary(self, shard: int, node: "Node", epoch: int) -> None:
        if epoch > self._primaries[shard][0]:
            self._primaries[shard] = epoch, node

    def learn_move(self, slot: int, shard: int, epoch: int) -> None:
        if epoch > self._moved.get(slot, (0, 0))[0]:
            self._moved[slot] = epoch, shard

    def learn_moves(self, other: "View") -> None:
        """Learn of every moved slot that *other* knows."""
        for slot, (epoch, shard) in other._moved.items():
            self.learn_move(slot, shard, epoch)

    def shard(self, slot: int) -> int:
        return self._moved[slot][1] if slot in self._moved else slot * len(self._primaries) // SLOTS

    def owner(self, slot: int) -> "Node":
        return self._primaries[self.shard(slot)][1]

    def ranges(self) -> "list[tuple[int, int, Node]]":
        """The first and the last slot of each range, and its owner."""
        count = len(self._primaries)
        firsts = {-(-SLOTS * shard // count) for shard in range(count)} | {0}
        firsts |= {each for slot in self._moved for each in (slot, slot + 1)} - {SLOTS}
        ordered = sorted(firsts)
        ends = [*ordered[1:], SLOTS]
        return [(first, end - 1, self.owner(first)) for first, end in zip(ordered, ends, strict=True)]


class Node(Server):
    mode = b"cluster"
    view: View
    # All servers of the cluster, this one among them.
    nodes: "Sequence[Node]"

    def __init__(self, world: World, name: str, *, is_sharded: bool) -> None:
        super().__init__(world, name)
        # Whether messages stay with the servers of their slot, as from Redis 7 on.
        self._is_sharded = is_sharded
        self.is_cluster_down = False
        # Slots that are being moved from here, or to here, and the server at the other end.
        self.migrating: dict[int, Node] = {}
        self.importing: dict[int, Node] = {}
        # Whether the slot of the script that runs moves away, or here.
        self._moves = ""
        # The script that runs, and whether it has written anything that must not stay without its other writes.
        self._running, self._has_changed = b"", False

    def become_replica(self) -> None:
        """Keep all connections: a client that asks for keys is redirected."""
        self.is_replica = True
        self.leave_channels(lambda slot: True)

    # Scripts.

    def _answer_script(self, session: Session, name: bytes, args: list[bytes]) -> bytes:
        try:
            self._check_slot(session, args[2 : 2 + int(args[1])])
        except RefusedError as error:
            if self.world.lines is not None:
                self.world.trace(self.name, f"{args[2].decode()}: {error}")
            return b"-%s\r\n" % str(error).encode()
        return super()._answer_script(session, name, args)

    def run_script(self, source: bytes, keys: int, args: list[bytes]) -> bytes:
        slot = key_slot(args[0])
        self._moves = "away" if slot in self.migrating else "here" if slot in self.importing else ""
        self._running, self._has_changed = source, False
        return super().run_script(source, keys, args)

    def from_script(self, name: bytes, args: Sequence[bytes]) -> Any:
        """Refuse a command with a key that is missing while its slot moves; only the new server lets one key pass."""
        if self._moves and (name := name.upper()) in DATA_COMMANDS:
            keys = args if name in _OF_KEYS else args[:1]
            if (self._moves == "away" or len(keys) > 1) and any(self.data.find(key) is None for key in keys):
                self._judge_cut(name, keys)
                return NO_VALUE, ERROR, NOT_HERE
            self._has_changed = self._has_changed or (name in WRITES and name not in _TIDIES_UP)
        return super().from_script(name, args)

    def _judge_cut(self, name: bytes, keys: Sequence[bytes]) -> None:
        """The server cuts the running script short: that is a violation if half of its writes stay."""
        script = script_name(self._running)
        if self._has_changed and script not in _MAY_BE_CUT:
            self.world.violation("cut", f"{self.name}: {script} has written, and is cut short at {name!r} of {keys!r}")

    def _check_slot(self, session: Session, keys: list[bytes]) -> None:
        """Whether the script's *keys* are to be found here."""
        asked, session.is_asking = session.is_asking, False
        if self.is_cluster_down:
            raise RefusedError("CLUSTERDOWN The cluster is down")
        slots = dict.fromkeys(map(key_slot, keys))
        if len(slots) > 1:
            raise RefusedError("CROSSSLOT Keys in request don't hash to the same slot")
        (slot,) = slots
        owner, missing = self.view.owner(slot), [key for key in keys if self.data.find(key) is None]
        if owner is self:
            self._check_migrating(slot, keys, missing)
        elif slot not in self.importing or not asked:
            raise RefusedError(f"MOVED {slot} {owner.address}")
        elif missing and len(keys) > 1:
            raise RefusedError("TRYAGAIN Multiple keys request during rehashing of slot")

    def _check_migrating(self, slot: int, keys: list[bytes], missing: list[bytes]) -> None:
        if slot in self.migrating and missing:
            if len(missing) < len(keys):
                raise RefusedError("TRYAGAIN Multiple keys request during rehashing of slot")
            raise RefusedError(f"ASK {slot} {self.migrating[slot].address}")

    def do_asking(self, session: Session) -> Status:
        session.is_asking = True
        return Status(b"OK")

    # Messages.

    def _publish(self, channel: bytes, message: bytes) -> int:
        if self._is_sharded:
            return self._deliver(b"smessage", channel, message)
        for node in self.nodes:
            if node is not self:
                self.world.after(0.001, node._deliver, b"message", channel, message)
        return self._deliver(b"message", channel, message)

    def _deliver(self, kind: bytes, channel: bytes, message: bytes) -> int:
        listeners = list(self._subscribers.get(channel, ()))
        for session in listeners:
            session.link.reply(encoded([kind, channel, message]))
        return len(listeners)

    def do_pubsub(self, session: Session, what: bytes, *args: bytes) -> list[Any]:
        assert what == b"SHARDNUMSUB"
        if not self._is_sharded:
            raise RefusedError("ERR Unknown subcommand or wrong number of arguments for 'SHARDNUMSUB'")
        return []

    def do_ssubscribe(self, session: Session, channel: bytes) -> list[Any]:
        slot = key_slot(channel)
        if self.view.owner(slot) is not self:
            raise RefusedError(f"MOVED {slot} {self.view.owner(slot).address}")
        return [b"ssubscribe", *self.do_subscribe(session, channel)[1:]]

    def do_sunsubscribe(self, session: Session, channel: bytes) -> list[Any]:
        return [b"sunsubscribe", *self.do_unsubscribe(session, channel)[1:]]

    def leave_channels(self, chosen: Any) -> None:
        """Slots are gone: their listeners are told."""
        for channel in [each for each in self._subscribers if self._is_sharded and chosen(key_slot(each))]:
            for session in list(self._subscribers[channel]):
                session.link.reply(encoded(self.do_sunsubscribe(session, channel)))

    # Its view.

    def do_cluster(self, session: Session, what: bytes) -> list[Any]:
        assert what == b"SLOTS"
        return [[first, last, owner.card, owner.partner.card] for first, last, owner in self.view.ranges()]

    # The other server of the pair.
    partner: "Node"

    @property
    def card(self) -> list[Any]:
        return [self.name.encode(), 6379, b"%040d" % int(self.name[1:])]
