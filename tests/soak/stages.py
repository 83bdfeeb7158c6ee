"""The servers of a soak, and their faults; each fault returns when the servers are whole again."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import Random
from time import monotonic
from types import TracebackType
from typing import ClassVar, Self

from redis import RedisError

from aiolock._embedded_server import Server
from tests.soak.settings import Servers, Topology
from tests.support.topologies import NAME, ClusterOf, Replicated, ask, role, wait_until

Faults = dict[str, Callable[[Random], None]]

_WHOLE_WITHIN = 60.0


class Stage(ABC):
    """Servers of one topology. Nothing that was acknowledged to a worker is ever forgotten by them all."""

    topology: ClassVar[Topology]
    workers_see: Servers

    def __init__(self, executable: str | None) -> None:
        # The servers could grant again after a fault at this time, if it is known.
        self.able: float | None = None
        self._executable = executable
        self._stack = ExitStack()

    @abstractmethod
    def start(self) -> Servers:
        """Start the servers; return them as the workers find them."""

    @abstractmethod
    def primaries(self) -> Sequence[Server]: ...

    @property
    @abstractmethod
    def servers(self) -> Sequence[Server]:
        """The servers that may have subscriptions."""

    @abstractmethod
    def own_faults(self) -> Faults: ...

    def faults(self) -> Faults:
        """The possible faults, by their names."""
        return {
            "connections killed": self._kill_connections,
            "scripts flushed": self._flush_scripts,
            "server paused": self._pause,
            **self.own_faults(),
        }

    def _one_of(self, chance: Random) -> Server:
        return chance.choice(self.primaries())

    def _kill_connections(self, chance: Random) -> None:
        for kind in chance.choice((("normal",), ("pubsub",), ("normal", "pubsub"))):
            ask(self._one_of(chance), "CLIENT", "KILL", "TYPE", kind)

    def _flush_scripts(self, chance: Random) -> None:
        ask(self._one_of(chance), "SCRIPT", "FLUSH")

    def _pause(self, chance: Random) -> None:
        """A pause that is too short for a failover."""
        server = self._one_of(chance)
        server.pause()
        time.sleep(chance.uniform(0.1, 0.5))
        server.resume()

    def __enter__(self) -> Self:
        self.workers_see = self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class OneServer(Stage):
    """A server that keeps every write on disk before it answers."""

    topology = "one"

    def start(self) -> Servers:
        self._server = self._stack.enter_context(Server(self._executable, append_only=True))
        return Servers("one", [(self._server.host, self._server.port)], lease=3)

    def primaries(self) -> Sequence[Server]:
        return [self._server]

    @property
    def servers(self) -> Sequence[Server]:
        return [self._server]

    def own_faults(self) -> Faults:
        return {"server killed": self._kill, "server restarted": self._restart, "server paused for long": self._freeze}

    def _kill(self, chance: Random) -> None:
        self._server.kill()
        time.sleep(chance.uniform(0, 2))
        self._server.start()
        self.able = monotonic()

    def _restart(self, chance: Random) -> None:
        self._server.restart()
        self.able = monotonic()

    def _freeze(self, chance: Random) -> None:
        """A pause that is longer than a lease."""
        self._server.pause()
        time.sleep(chance.uniform(3, 4))
        self._server.resume()
        self.able = monotonic()


class WithSentinels(Stage):
    """A primary with two replicas, and three Sentinels; a grant counts when all replicas have it."""

    # With `replicas=1` of two, a planned failover could promote the replica that did not acknowledge: Sentinel does not
    # wait for it. So all replicas have to acknowledge that the primary has at the time.

    topology = "sentinel"

    def start(self) -> Servers:
        self._group = self._stack.enter_context(Replicated(self._executable, replicas=2, sentinels=3))
        return Servers("sentinel", self._group.addresses, lease=6, replicas="all", command_timeout=15)

    def primaries(self) -> Sequence[Server]:
        _, port = ask(self._group.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return [server for server in self.servers if str(server.port) == port]

    @property
    def servers(self) -> Sequence[Server]:
        return self._group.servers

    def own_faults(self) -> Faults:
        return {
            "planned failover": self._fail_over,
            "primary killed": self._kill,
            "primary frozen": self._freeze,
            "replica killed": self._kill_replica,
            "Sentinel killed": self._kill_sentinel,
        }

    def _fail_over(self, chance: Random) -> None:
        old = self._one_of(chance)
        wait_until(lambda: accepted(chance.choice(self._group.sentinels), "SENTINEL", "FAILOVER", NAME), "a failover")
        self._promoted(old)
        self._whole()

    def _kill(self, chance: Random) -> None:
        old = self._one_of(chance)
        old.kill()
        # The old primary comes back later, without its data: else no server would have any.
        self._promoted(old)
        old.start()
        self._whole()

    def _freeze(self, chance: Random) -> None:
        old = self._one_of(chance)
        old.pause()
        self._promoted(old)
        time.sleep(chance.uniform(0, 2))
        old.resume()
        self._whole()

    def _kill_replica(self, chance: Random) -> None:
        server = chance.choice([server for server in self.servers if server not in self.primaries()])
        server.kill()
        time.sleep(chance.uniform(0, 2))
        server.start()
        self._whole()

    def _kill_sentinel(self, chance: Random) -> None:
        # We ask the first Sentinel.
        sentinel = chance.choice(self._group.sentinels[1:])
        sentinel.kill()
        time.sleep(chance.uniform(0, 2))
        sentinel.start()

    def _promoted(self, old: Server) -> None:
        """Wait until another server is the primary, and has a replica, without which no grant counts."""
        new = self._group.promoted(old)
        wait_until(lambda: bool(ask(new, "ROLE")[2]), "a replica follows the new primary", _WHOLE_WITHIN)
        self.able = monotonic()

    def _whole(self) -> None:
        wait_until(self._is_whole, "every replica follows the primary", _WHOLE_WITHIN)

    def _is_whole(self) -> bool:
        [primary] = self.primaries()
        others = [server for server in self.servers if server is not primary]
        in_step = all(link(server) == [str(primary.port), "connected"] for server in others)
        return in_step and len(ask(primary, "ROLE")[2]) == len(others)


class WithCluster(Stage):
    """Three primaries with a replica each; a grant counts when the replica has it."""

    topology = "cluster"

    def start(self) -> Servers:
        self._group = self._stack.enter_context(ClusterOf(self._executable, replicas=1))
        seeds = [(server.host, server.port) for server in self._group.primaries]
        return Servers("cluster", seeds, lease=6, replicas=1, command_timeout=15)

    def primaries(self) -> Sequence[Server]:
        return [server for server in self.servers if role(server) == "master"]

    @property
    def servers(self) -> Sequence[Server]:
        return self._group.servers

    def own_faults(self) -> Faults:
        return {
            "planned failover": self._fail_over,
            "primary killed": self._kill,
            "primary frozen": self._freeze,
            "replica killed": self._kill_replica,
        }

    def _fail_over(self, chance: Random) -> None:
        replica = self._successor(self._one_of(chance))
        wait_until(lambda: accepted(replica, "CLUSTER", "FAILOVER"), "a failover")
        self._promoted(replica)
        self._whole()

    def _kill(self, chance: Random) -> None:
        old = self._one_of(chance)
        replica = self._successor(old)
        old.kill()
        # The old primary comes back later, without its data: else no server would have any.
        self._promoted(replica)
        old.start()
        self._whole()

    def _freeze(self, chance: Random) -> None:
        old = self._one_of(chance)
        replica = self._successor(old)
        old.pause()
        self._promoted(replica)
        time.sleep(chance.uniform(0, 2))
        old.resume()
        self._whole()

    def _kill_replica(self, chance: Random) -> None:
        replica = self._successor(self._one_of(chance))
        replica.kill()
        time.sleep(chance.uniform(0, 0.5))
        replica.start()
        self._whole()

    def _successor(self, server: Server) -> Server:
        """The other server of the pair."""
        number = self.servers.index(server)
        return self.servers[(number + 3) % 6]

    def _promoted(self, replica: Server) -> None:
        wait_until(lambda: role(replica) == "master", "the replica is promoted", _WHOLE_WITHIN)

    def _whole(self) -> None:
        wait_until(self._is_whole, "every primary has its replica, and all agree", _WHOLE_WITHIN)

    def _is_whole(self) -> bool:
        primaries = self.primaries()
        well = all("cluster_state:ok" in str(ask(server, "CLUSTER", "INFO")) for server in self.servers)
        followed = all(link(self._successor(server)) == [str(server.port), "connected"] for server in primaries)
        return well and len(primaries) == len(self._group.primaries) and followed


def accepted(server: Server, *words: object) -> bool:
    """Whether the server obeys the command, which it cannot do at all times."""
    try:
        ask(server, *words)
    except RedisError:
        return False
    return True


def link(server: Server) -> list[str]:
    """The port of the primary that the server follows, and the state of the link; nothing for a primary."""
    kind, *words = ask(server, "ROLE")
    return [str(words[1]), str(words[2])] if kind == "slave" else []


STAGES: dict[Topology, type[OneServer | WithSentinels | WithCluster]] = {
    stage.topology: stage for stage in (OneServer, WithSentinels, WithCluster)
}
