"""The interface of a topology to the rest of the simulation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import aiolock
from tests.simulation.acts import MIXES
from tests.simulation.fleet import Act
from tests.simulation.network import Network
from tests.simulation.server import Server

if TYPE_CHECKING:
    from tests.simulation.faults import Faults

Replicas = int | Literal["all"] | None


class Topology(ABC):
    """
    The servers, the server that has the truth about a name, and the way in which a client finds them.

    A fault of one topology is a method here, as one of all of them is a method of `Faults`.
    """

    # Profiles that it can be in.
    profiles: ClassVar[tuple[str, ...]]
    mixes: ClassVar[list[list[Act]]] = MIXES
    # Whether a primary may be replaced and still go on for a while.
    replaces_primaries: ClassVar[bool] = False

    def __init__(self, network: Network, draw: Random, profile: str) -> None:
        self.world, self.network = network.world, network
        # The protocol of the clients of redis-py. aiolock's own connections speak RESP2 in any case.
        self.protocol = draw.choice((2, 3))
        # Seconds in which acts and faults begin: more where a primary that was replaced goes on for a while.
        self.horizon = draw.choice((2.0, 3.0, 5.0) if self.replaces_primaries else (0.5, 0.5, 1.0, 2.0))
        self.faults: Faults
        # Every server that keeps locks, or will when it becomes a primary.
        self.servers: list[Server] = []

    @property
    def truths(self) -> Sequence[Server]:
        """The servers whose data are the truth at the moment."""
        return self.servers

    def truth(self, name: str) -> Server | None:
        """The server that has the lock *name*; ``None``: no single server has the truth."""
        return self.servers[0]

    def replicas(self, draw: Random) -> Replicas:
        """The number of replicas that the clients of the seed ask for."""
        return None

    @abstractmethod
    def client(self, config: aiolock.LockConfig) -> aiolock.LockClient:
        """A client of the library for it."""

    def add(self, server: Server) -> Any:
        """Let *server* be reached over the network."""
        self.network.servers[server.address] = server
        return server
