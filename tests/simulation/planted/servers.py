"""Faults of the code that finds the servers: only a world of several servers shows them."""

from tests.simulation.planted.fault import Fault

_FAILOVERS = "--on sentinel --profile failovers"
_SLOTS = "--on cluster --profile slots"

SERVERS = (
    Fault(
        "a connection to a primary that was replaced is kept",
        "_redis/backend.py",
        "guide.asked < asked and guide.told != address:\n                connection.fail()",
        "guide.asked < asked and guide.told != address:\n                pass",
        _FAILOVERS,
    ),
    Fault(
        "what one Sentinel says counts as what most say",
        "_redis/sentinel/watch.py",
        "if not named or 2 * named[0][1] <= len(self._due):",
        "if not named:",
        _FAILOVERS,
    ),
    Fault(
        "a result does not wait for replicas",
        "_scripts/__init__.py",
        "release_later=_script(*_LATER, publishes=True, lasts=True)",
        "release_later=_script(*_LATER, publishes=True)",
        "--on one --profile replica --act once",
    ),
    Fault(
        "waiters for a slot that has moved go on listening at its old place",
        "_redis/cluster/topology.py",
        "        self.notifier.rehouse()\n",
        "        pass\n",
        _SLOTS,
    ),
    Fault(
        "a channel that a server gives up counts as one that it has",
        "_redis/notifier.py",
        "                self._ended([channel])\n",
        "                pass\n",
        _SLOTS,
    ),
    Fault(
        "a server is not told that a client was sent to it for a slot on its way",
        "_redis/pipeline.py",
        'asking = [self._expect(("ASKING",), ignore)] if call.asking else []',
        "asking: list[Command] = []",
        _SLOTS,
    ),
    Fault(
        "calls for a slot that has moved stay with the server that had it",
        "_redis/cluster/topology.py",
        "                self.owner(call.keys[0]).server.submit(call)\n",
        "                node.server.submit(call)\n",
        "--on cluster --profile shards",
        missed="the old server sends them on",
    ),
)
