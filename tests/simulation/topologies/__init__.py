"""
The topologies, by name. A new one is a module with a `Topology`, and a line here.

    one         one server, perhaps with a replica
    quorum      independent servers
    sentinel    a primary and its replica, watched by Sentinels
    cluster     primaries that share the slots, each with a replica
"""

from random import Random

from tests.simulation.topologies.base import Topology
from tests.simulation.topologies.cluster import Cluster
from tests.simulation.topologies.one import One
from tests.simulation.topologies.quorum import Quorum
from tests.simulation.topologies.sentinel import Sentinels

TOPOLOGIES: dict[str, type[Topology]] = {"quorum": Quorum, "sentinel": Sentinels, "cluster": Cluster, "one": One}
# The share of the seeds that are in each of them; the rest are on one server.
_SHARES = {"quorum": 0.2, "sentinel": 0.1, "cluster": 0.1}


def drawn(draw: Random) -> str:
    """The name of one of them."""
    share = draw.random()
    for name, each in _SHARES.items():
        if share < each:
            return name
        share -= each
    return "one"
