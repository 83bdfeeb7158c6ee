"""Faults of the code that makes one lock of several servers."""

from tests.simulation.planted.fault import Fault

QUORUM = (
    Fault(
        "one server of a quorum is a majority",
        "_redis/quorum/poll.py",
        "self.majority: int = len(members) // 2 + 1",
        "self.majority: int = 1",
        "--on quorum",
    ),
    Fault(
        "a quorum's lease lasts as long as that of one server",
        "_redis/quorum/poll.py",
        "ends[min(self.majority, len(ends)) - 1]",
        "ends[0]",
        "--on quorum --profile pauses",
        missed="votes leave together",
    ),
    Fault(
        "a quorum's lease begins when the last server was asked",
        "_redis/quorum/poll.py",
        "self.sent = min(self.sent or copy.sent, copy.sent)",
        "self.sent = max(self.sent, copy.sent)",
        "--on quorum",
        missed="votes leave together",
    ),
    Fault(
        "a minority of a quorum says that a lock is lost",
        "_redis/quorum/fold.py",
        "    if kinds.count(kind) < poll.majority:\n",
        "    if kinds.count(kind) < poll.majority - 1:\n",
        "--on quorum --profile quorum_data",
    ),
    Fault(
        "what a minority of a quorum has granted is not given back",
        "_core/acquire.py",
        "        if isinstance(answer, Refused) and answer.has_some:\n",
        "        if isinstance(answer, Refused) and answer.has_some and not answer.is_split:\n",
        "--on quorum",
    ),
    Fault(
        "what a minority of a quorum has granted stays if the owner has the lock by another task",
        "_core/acquire.py",
        "        if isinstance(answer, Refused) and answer.has_some:\n",
        "        if isinstance(answer, Refused) and answer.has_some and self._held() is None:\n",
        "--on quorum --act named_owner --horizon 4",
    ),
    Fault(
        "a late server of a quorum with a greater token confirms",
        "_redis/quorum/election.py",
        "        if grant.token == self._token:\n",
        "        if grant.token >= self._token:\n",
        "--on quorum --act leads --profile deaths",
        missed="three rare events must meet; the model finds it",
    ),
    Fault(
        "the minority of a quorum that still has a lost lock is told nothing",
        "_redis/quorum/fold.py",
        ", everywhere=False)",
        ")",
        "--on quorum --profile quorum_data",
    ),
)
