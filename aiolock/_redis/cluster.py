"""
A cluster: which server owns which slot, and what follows when that changes.

Rules:
1. What a server says of a slot (MOVED) counts at once; all slots are asked for whenever a server is in doubt: it cannot
   be reached, or said of a slot that it is another's. And now and then, so that it is known whom else to ask.
2. Calls that are to be sent to a server which no longer owns their slot go to the one that does, and channels too.
3. Nothing here waits for one server on behalf of another.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial

from redis.asyncio.connection import AbstractConnection
from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError

from aiolock._backend import Call, Client
from aiolock._config import Timing
from aiolock._redis.connection import ask
from aiolock._redis.discovery import Address, Discovery, Slots
from aiolock._redis.greeting import check_kind
from aiolock._redis.notifier import Notifier
from aiolock._redis.pipeline import Steering
from aiolock._redis.replies import is_passing
from aiolock._redis.server import Server
from aiolock._redis.topology import Topology

_REFRESH = 60.0  # Seconds from one asking for the slots to the next, while the client is used and nothing is in doubt.
_PAUSE = 0.1  # Seconds between two askings for the slots; more and more while nobody answers.
_MOST_HOPS = 8  # Of a call from server to server before it rests a moment: they do not agree with each other.


class Node(Steering):
    """One server of the cluster, and what it has to say about the cluster."""

    def __init__(self, cluster: "Cluster", address: Address, connect: Callable[[], AbstractConnection], timing: Timing):
        self.address = address
        self._cluster = cluster
        self.client = cluster.client
        self.notifier = Notifier(
            connect,
            patience=timing.patience,
            greet=self.greet,
            sharded=lambda: cluster.sharded is True,
            failed=self._doubt,
        )
        self.server = Server(connect, self, timing, cluster.traffic, self.notifier)

    def _doubt(self) -> None:
        self._cluster.doubt(self)

    # What a pipeline asks for.

    apart = True

    async def greet(self, connection: AbstractConnection) -> None:
        if self._cluster.sharded is None:
            await check_kind(connection, in_a_cluster=True)
        while self._cluster.sharded is None:
            answer = await ask(connection, "PUBSUB", "SHARDNUMSUB")  # Redisson asks the same.
            if is_passing(answer):  # It is busy, and would not say.
                await asyncio.sleep(_PAUSE)
            else:  # It has sharded messages if it knows what that means.
                self._cluster.sharded = not isinstance(answer, ResponseError)

    @property
    def publish(self) -> str:
        return "SPUBLISH" if self._cluster.sharded else "PUBLISH"

    def redirected(self, call: Call, error: ResponseError) -> bool:
        if isinstance(error, (MovedError, ClusterDownError)):
            self._doubt()
        if self._cluster.closed or not isinstance(error, AskError):  # Of which MovedError is one.
            return False
        call.hops = (call.hops + 1) % _MOST_HOPS
        if call.hops == 0:
            return False
        to = self._cluster.node(self._cluster.remap(error.host or self.address[0], error.port))
        if isinstance(error, MovedError):
            self._cluster.settle({error.slot_id: to})  # The rest follows when the slots are asked for.
        else:
            call.asking = True
        to.server.submit(call)
        return True

    def broken(self) -> None:
        self._doubt()
        self.client.doubt(lambda key: self._cluster.owner(key) is self)


class Cluster(Topology):
    """The topology of a cluster; for *seeds* and *remap* see `Discovery`."""

    # Invariant: every server that owns a slot, as far as is known, or is still expected to answer, is in `_nodes`,
    # connected or not; `_owners` names the owner of each slot that is known, which another may have become since.

    apart = Node.apart

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
        self._owners: dict[int, Node] = {}
        self._doubts: set[Address] = set()  # Since the slots were asked for last.
        self._told: Address | None = None  # Who answered last.
        self._refreshed = math.inf  # When the slots were asked for last; the first asking follows from a doubt.
        self._unsure = False  # They are to be asked for.
        self._asking: asyncio.Task[None] | None = None
        self.closed = False
        self.remap: Callable[[str, int], Address] = remap
        self.sharded: bool | None = None  # Messages stay with the servers of their slot; None while it is not known.
        self.notifier: ClusterNotifier = ClusterNotifier(self)
        self.client: Client = client

    def server_of(self, keys: tuple[str, ...]) -> Server:
        if self._loop.time() >= self._refreshed + _REFRESH:
            self._look()
        return self.owner(keys[0]).server

    def servers(self) -> Sequence[Server]:
        return [node.server for node in self.nodes()]

    def nodes(self) -> list[Node]:
        """Every server that is needed."""
        return list(self._nodes.values())

    def owner(self, key: str) -> Node:
        """The server that owns the slot of *key*, as far as is known; while nothing is, the first that was named."""
        owner = self._owners.get(key_slot(key.encode()))
        if owner is not None:
            return owner
        seed = self.node(self._seeds()[0])
        if not self._owners:
            self.doubt(seed)
        return seed

    def node(self, address: Address) -> Node:
        """The server at *address*."""
        if address not in self._nodes:
            self._nodes[address] = Node(self, address, self._connect_to(address), self._timing)
        return self._nodes[address]

    def settle(self, owners: dict[int, Node]) -> None:
        """Slots have these *owners*; one that has a slot anew may not have heard of its locks."""
        moved = {slot for slot, owner in owners.items() if self._owners.get(slot, owner) is not owner}
        self._owners.update(owners)
        if moved:
            self.client.doubt(lambda key: key_slot(key.encode()) in moved)

    def doubt(self, node: Node) -> None:
        """*node* may no longer own what it did: ask."""
        self._doubts.add(node.address)
        self._look()

    def _look(self) -> None:
        self._unsure = True
        if self._asking is None and not self.closed:
            self._asking = self._loop.create_task(self._ask_until_sure(), context=Context())

    async def aclose(self) -> None:
        self.closed = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        await super().aclose()

    async def _ask_until_sure(self) -> None:
        """Ask for the slots until there is an answer, and no new doubt."""
        await asyncio.sleep(0)  # An eager task must not run before `_look` knows of it.
        pause = _PAUSE
        try:
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
        finally:
            self._asking = None

    async def _ask(self, doubts: set[Address]) -> bool:
        """
        Ask for the slots; ``False`` if nobody answers.

        Those in doubt come last; before them who answered last time, and may have lost touch; before it the idle.
        """
        serving = {node.address for node in self._owners.values()}

        def rank(address: Address) -> tuple[bool, ...]:
            node = self._nodes.get(address)
            idle = node is None or not node.server.connected
            return address in doubts, address == self._told, address not in serving, idle

        # Of equals any: two that have lost touch must not be believed in turns.
        addresses = [*random.sample(list(self._nodes), len(self._nodes)), *self._discovery.addresses()]
        slots = await self._discovery.ask(sorted(dict.fromkeys(addresses), key=rank))
        if slots is None:
            return False
        self._told = slots.by
        self._adopt(slots)
        return True

    def _adopt(self, slots: Slots) -> None:
        owners: dict[int, Node] = {}
        for some, address in slots.ranges:
            owners.update(dict.fromkeys(some, self.node(address)))
        self.settle(owners)
        self._rehouse()
        self._leave_idle()

    def _leave_idle(self) -> None:
        """Servers come and go: leave those that own nothing, and forget them once nothing is expected of them."""
        for node in set(self.nodes()) - set(self._owners.values()):
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
    """Watches each channel where its slot is."""

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
        for node in self._cluster.nodes():  # The slot may have moved since then.
            node.notifier.unwatch(name, signal)

    def rehouse(self) -> None:
        """Watch where the slots are now."""
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
