"""
A cluster: the owner of each slot, and the consequences of a change.

Rules:
1. A redirection (MOVED) counts at once for its slot. The client asks for all slots whenever a server is in doubt: when
   it cannot be reached, or has redirected a call. The client also asks now and then, to learn new addresses.
2. If a server does not own a slot any more, calls that wait for this server go to the new owner, and so do channels.
3. Calls to one server never wait for another server.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from itertools import compress
from operator import is_not

from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError

from aiolock._backend import Call, Client
from aiolock._config import Timing
from aiolock._redis.cluster.discovery import Address, Discovery, Slots
from aiolock._redis.error_replies import is_passing
from aiolock._redis.greeting import check_kind
from aiolock._redis.notifier import Notifier
from aiolock._redis.raw import ask
from aiolock._redis.server import Server
from aiolock._redis.steering import Steering
from aiolock._redis.topology import Topology

_SLOTS = 16384
# Seconds between two questions for the slots, while the client is used and no server is in doubt.
_REFRESH = 60.0
# Seconds between two questions for the slots, if a server is in doubt; without an answer the pause gets longer.
_PAUSE = 0.1
# Redirections of a call after which it rests for a moment, because the servers do not agree.
_MOST_HOPS = 8


class Node(Steering):
    """One server of the cluster, and its part in knowing the cluster."""

    def __init__(self, cluster: "Cluster", address: Address, connect: Callable[[], AbstractConnection], timing: Timing):
        self.address = address
        self._cluster = cluster
        self.client, self.traffic = cluster.client, cluster.traffic
        self.notifier = Notifier(
            connect,
            patience=timing.patience,
            greet=self.greet,
            sharded=lambda: cluster.sharded is True,
            failed=self._doubt,
        )
        self.server = Server(connect, self, timing, self.notifier)

    def _doubt(self) -> None:
        self._cluster.doubt(self)

    # The methods of `Steering`.

    apart = True

    async def greet(self, connection: AbstractConnection) -> None:
        if self._cluster.sharded is None:
            await check_kind(connection, in_a_cluster=True)
        while self._cluster.sharded is None:
            # A server that knows this command has sharded messages. Redisson asks in the same way.
            answer = await ask(connection, "PUBSUB", "SHARDNUMSUB")
            if is_passing(answer):
                await asyncio.sleep(_PAUSE)
            else:
                self._cluster.sharded = not isinstance(answer, ResponseError)

    @property
    def publish(self) -> str:
        return "SPUBLISH" if self._cluster.sharded else "PUBLISH"

    def redirected(self, call: Call, error: ResponseError) -> bool:
        if isinstance(error, (MovedError, ClusterDownError)):
            self._doubt()
        # A `MovedError` is an `AskError`, too.
        if self._cluster.closed or not isinstance(error, AskError):
            return False
        call.hops = (call.hops + 1) % _MOST_HOPS
        to = self._cluster.named_in(error, self)
        if to is None:
            # The call rests until the slots are known.
            self._doubt()
        if call.hops == 0 or to is None:
            return False
        if isinstance(error, MovedError):
            self._cluster.note_owner(error.slot_id, to)
        else:
            call.asking = True
        to.server.submit(call)
        return True

    def broken(self, error: Exception, *, was_open: bool) -> None:
        self._doubt()
        if was_open:
            self.client.check_holds(lambda key: self._cluster.owner(key) is self)


class Cluster(Topology):
    """The topology of a cluster; see `Discovery` for *seeds* and *remap*."""

    # Invariant: `_nodes` has every known owner of a slot, and every server that still has to answer a call, connected
    # or not. `_owners` has the last known owner of each slot, by its number.

    apart = Node.apart
    closed: bool = False
    # Whether messages stay on their slot's servers; None until known.
    sharded: bool | None = None
    # The server that answered last; None until one has answered.
    _told: Address | None = None
    # The time of the last question for the slots; a doubt causes the first.
    _refreshed = math.inf
    # Whether the slots must be asked for.
    _unsure = False
    _asking: asyncio.Task[None] | None = None

    def __init__(
        self,
        seeds: Callable[[], list[Address]],
        connect_to: Callable[[Address], Callable[[], AbstractConnection]],
        remap: Callable[[str, int], Address],
        timing: Timing,
        client: Client,
    ) -> None:
        super().__init__()
        self._seeds = seeds
        self._connect_to = connect_to
        self._discovery = Discovery(seeds, connect_to, remap, timing.patience)
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[Address, Node] = {}
        self._owners: list[Node | None] = [None] * _SLOTS
        # Servers in doubt since the last question for the slots.
        self._doubts: set[Address] = set()
        self.notifier: ClusterNotifier = ClusterNotifier(self)
        self.client: Client = client

    def server_of(self, keys: tuple[str, ...]) -> Server:
        if self._loop.time() >= self._refreshed + _REFRESH:
            self._look()
        return self.owner(keys[0]).server

    def servers(self) -> Sequence[Server]:
        return [node.server for node in self.nodes()]

    def nodes(self) -> list[Node]:
        """Every server that is in use."""
        return list(self._nodes.values())

    def owner(self, key: str) -> Node:
        """The known owner of the slot of *key*; while no owner is known, the first seed."""
        owner = self._owners[key_slot(key.encode())]
        if owner is not None:
            return owner
        seed = self.node(self._seeds()[0])
        if self._told is None:
            self.doubt(seed)
        return seed

    def node(self, address: Address) -> Node:
        """The server at *address*."""
        if address not in self._nodes:
            self._nodes[address] = Node(self, address, self._connect_to(address), self._timing)
        return self._nodes[address]

    def named_in(self, redirection: AskError, by: Node) -> Node | None:
        """The server that is named in a *redirection* by another one; ``None`` if it is not known yet."""
        address = self._discovery.named_in(redirection, by.address)
        return None if address is None else self.node(address)

    def note_owner(self, slot: int, owner: Node) -> None:
        """Note the *owner* of *slot*, and check the locks of the slot if that is new: the owner may not have them."""
        before, self._owners[slot] = self._owners[slot], owner
        if before is not None and before is not owner:
            self.client.check_holds(lambda key: key_slot(key.encode()) == slot)

    def doubt(self, node: Node) -> None:
        """Ask for the slots, because *node* may no longer own its slots."""
        self._doubts.add(node.address)
        self._look()

    def _look(self) -> None:
        self._unsure = True
        if self._asking is None and not self.closed:
            self._asking = self._loop.create_task(self._ask_until_sure(), context=Context())
            self._asking.add_done_callback(self._asked, context=Context())

    def _asked(self, asking: asyncio.Task[None]) -> None:
        """Note the end of a question; after a cancellation by other code, the next doubt asks again."""
        self._asking = None
        if self._unsure and not asking.cancelled():
            self._look()

    async def aclose(self) -> None:
        self.closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        await super().aclose()

    async def _ask_until_sure(self) -> None:
        """Ask for the slots until there is an answer and no new doubt."""
        # An eager task must not run before `_look` has stored it.
        await asyncio.sleep(0)
        pause = _PAUSE
        while self._unsure:
            self._unsure = False
            doubts, self._doubts = self._doubts, set()
            if await self._ask(doubts):
                self._refreshed = self._loop.time()
                pause = _PAUSE
            else:
                self._unsure = True
                self._doubts |= doubts
                pause = min(2 * pause, self._timing.patience)
            await asyncio.sleep(pause * random.uniform(0.75, 1))

    async def _ask(self, doubts: set[Address]) -> bool:
        """
        Ask for the slots; returns ``False`` without an answer.

        The order is: connected owners of slots, idle owners, servers that own nothing, the server that answered last
        time (it may be cut off from the others), and finally the servers in doubt.
        """
        serving = {node.address for node in set(self._owners) if node is not None}

        def rank(address: Address) -> tuple[bool, ...]:
            node = self._nodes.get(address)
            idle = node is None or not node.server.connected
            return address in doubts, address == self._told, address not in serving, idle

        # Servers of equal rank in random order: two servers that are cut off must not be asked in turns for ever.
        addresses = [*random.sample(list(self._nodes), len(self._nodes)), *self._discovery.addresses()]
        slots = await self._discovery.ask(sorted(dict.fromkeys(addresses), key=rank))
        if slots is None:
            return False
        self._told = slots.by
        self._adopt(slots)
        return True

    def _adopt(self, slots: Slots) -> None:
        before, self._owners = self._owners, self._owners.copy()
        for some, address in slots.ranges:
            self._owners[some.start : some.stop] = [self.node(address)] * len(some)
        # The owners of the slots seldom change.
        if self._owners != before:
            changed = compress(range(_SLOTS), map(is_not, before, self._owners))
            moved = {slot for slot in changed if before[slot] is not None}
            self.client.check_holds(lambda key: key_slot(key.encode()) in moved)
        self._rehouse()
        self._leave_idle()

    def _leave_idle(self) -> None:
        """Disconnect servers that own no slots, and forget them once they have no calls to answer."""
        owners = set(self._owners)
        for node in [node for node in self.nodes() if node not in owners]:
            node.server.disconnect()
            if not (node.server.pending or node.notifier.subscriptions):
                del self._nodes[node.address]
                node.server.close()

    def _rehouse(self) -> None:
        for node in self.nodes():
            for call in node.server.take(partial(self._is_misplaced, node)):
                self.owner(call.keys[0]).server.submit(call)
        self.notifier.rehouse()

    def _is_misplaced(self, node: Node, call: Call) -> bool:
        return self.owner(call.keys[0]) is not node


class ClusterNotifier:
    """Watches each channel on the server of its slot."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def subscriptions(self) -> int:
        return sum(node.notifier.subscriptions for node in self._cluster.nodes())

    def watches(self, name: str) -> bool:
        return any(node.notifier.watches(name) for node in self._cluster.nodes())

    def confirmed(self, name: str) -> bool:
        return self._home(name).confirmed(name)

    def watch(self, name: str, signal: Callable[[bool], None]) -> None:
        self._home(name).watch(name, signal)

    def unwatch(self, name: str, signal: Callable[[bool], None]) -> None:
        # On all servers: the slot may have moved in the meantime.
        for node in self._cluster.nodes():
            node.notifier.unwatch(name, signal)

    def rehouse(self) -> None:
        """Move the watches of channels to the present servers of their slots."""
        for node in self._cluster.nodes():
            for name in node.notifier.watched():
                home = self._home(name)
                if home is node.notifier:
                    home.listen(name)
                else:
                    for signal in node.notifier.drop(name):
                        home.watch(name, signal)

    def _home(self, name: str) -> Notifier:
        return self._cluster.owner(name).notifier
