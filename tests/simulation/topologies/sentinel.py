"""
A primary and a replica, watched by three Sentinels.

Each Sentinel hears of a new primary at its own time, and announces it then. A primary that dies is held for down
before it is replaced; one that is replaced while it works goes on granting, to whom it can reach, until it is demoted.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import redis
from redis.asyncio.sentinel import Sentinel as RedisSentinel

import aiolock
from tests.simulation.network import Network
from tests.simulation.profiles import FOR_SENTINELS, Fault
from tests.simulation.server import Server, Session
from tests.simulation.topologies.base import Replicas, Topology
from tests.simulation.topologies.pair import Pair
from tests.simulation.world import World

# The first redis-py with RESP3 raises KeyError for a Sentinel's answer.
_READS_RESP3 = int(redis.__version__.split(".")[0]) > 5
_NAME = "primary"
_PORT = 26379
# Seconds from the time at which most Sentinels name the new primary until no client uses the old one.
_LEFT = 1.0 + 0.3


class Sentinel(Server):
    """A Sentinel as clients see it; it knows the server that it names only from the news that it got."""

    mode = b"sentinel"

    def __init__(self, world: World, name: str, primary: Server) -> None:
        super().__init__(world, name, port=_PORT)
        self._named = primary
        self._flags = b"master"
        self._epoch = 0

    def hold_for_down(self, server: Server) -> None:
        if not server.is_up and self._named is server:
            self._flags = b"master,s_down,o_down"

    def name_primary(self, server: Server, epoch: int) -> None:
        """*server* is the primary since that *epoch*, unless a later one is known; listeners are told."""
        if epoch < self._epoch:
            return
        self._epoch = epoch
        old, self._named, self._flags = self._named, server, b"master"
        if old is not server:
            words = f"{_NAME} {old.name} 6379 {server.name} 6379"
            self.world.trace(self.name, f"+switch-master {words}")
            self._publish(b"+switch-master", words.encode())

    def do_sentinel(self, session: Session, what: bytes) -> list[dict[bytes, bytes]]:
        assert what.upper() == b"MASTERS"
        facts = {b"name": _NAME.encode(), b"ip": self._named.name.encode(), b"port": b"6379", b"flags": self._flags}
        return [facts | {b"num-other-sentinels": b"2", b"config-epoch": b"%d" % self._epoch}]


class Sentinels(Topology):
    profiles = FOR_SENTINELS
    replaces_primaries = True

    def __init__(self, network: Network, draw: Random, profile: str) -> None:
        super().__init__(network, draw, profile)
        self._random = self.world.generator("sentinels")
        self.servers = [self.add(Server(self.world, name)) for name in ("s1", "s2")]
        self._pair = Pair(self.servers[0], self.servers[1], self._random)
        self._sentinels = [self.add(Sentinel(self.world, f"q{n + 1}", self.servers[0])) for n in range(3)]
        self._epoch = 0

    @property
    def truths(self) -> Sequence[Server]:
        return (self._pair.primary,)

    def truth(self, name: str) -> Server | None:
        return self._pair.primary

    def replicas(self, draw: Random) -> Replicas:
        return draw.choice((None, None, 1, "all"))

    def client(self, config: aiolock.LockConfig) -> aiolock.LockClient:
        addresses = [(each.name, _PORT) for each in self._sentinels]
        protocol = self._random.choice((2, 3))
        settings = {"socket_timeout": 1, "protocol": protocol if _READS_RESP3 else 2}
        sentinel = RedisSentinel(addresses, sentinel_kwargs=settings)  # type: ignore[no-untyped-call]
        return aiolock.LockClient(sentinel.master_for(_NAME), config=config)

    # Faults.

    def primary_dies(self, fault: Fault) -> None:
        """A Sentinel promotes the replica some time later; the old primary comes back, and is demoted at once."""
        old = self._pair.primary
        if self._pair.is_changing or not old.is_up:
            return
        old.crash()
        for sentinel in self._sentinels:
            self.world.after(0.3 * self._random.random() * fault.lasts, sentinel.hold_for_down, old)
        self.world.after((0.3 + 0.7 * fault.detail) * fault.lasts, self._promote, fault)
        self.world.after(fault.lasts, self._demote)

    def primary_replaced(self, fault: Fault) -> None:
        """The old primary works on until it is demoted."""
        if not self._pair.is_changing and self._pair.primary.is_up:
            self._promote(fault)
            self.world.after(fault.lasts, self._demote)

    def _promote(self, fault: Fault) -> None:
        new, demoted = self._pair.standby, fault.at + fault.lasts
        delays = sorted(0.3 * self._random.random() ** 2 for _ in self._sentinels)
        # One Sentinel may have lost touch with the others.
        delays[-1] += self._random.choice((0.0, 0.0, 3.0))
        self._epoch += 1
        named_after = []
        for sentinel, delay in zip(self._random.sample(self._sentinels, 3), delays, strict=True):
            self.world.after(delay, sentinel.name_primary, new, self._epoch)
            if sentinel.is_up:
                named_after.append(delay)
        self._pair.promote()
        # Clients hear it from two Sentinels.
        known = demoted if len(named_after) < 2 else self.world.now + named_after[1]
        hears = not self.faults.disturbed(self.world.now, known + _LEFT, 1.0, but=fault)
        self.faults.lose_data(min(demoted, known + _LEFT) if hears else demoted)

    def _demote(self) -> None:
        old = self._pair.standby
        self._pair.demote()
        if not old.is_up:
            old.restart()

    def lose_sentinel(self, fault: Fault) -> None:
        """Lose one of three: nothing should change for users."""
        self._lose(self._sentinels[fault.target % 3 :][:1], fault)

    def lose_sentinels(self, fault: Fault) -> None:
        self._lose(self._sentinels, fault)

    def _lose(self, sentinels: list[Sentinel], fault: Fault) -> None:
        for sentinel in sentinels:
            if sentinel.is_up:
                sentinel.crash()
                self.world.after(fault.lasts, sentinel.restart)

    def cut_from_sentinels(self, fault: Fault) -> None:
        """One process loses the Sentinels, and reaches the primary as before."""
        process: Any = self.world.processes[fault.target % len(self.world.processes)]
        for sentinel in self._sentinels:
            self.network.path(process.name, sentinel.name).cut_until = self.world.now + fault.lasts
