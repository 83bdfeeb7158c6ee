"""Promises broken on purpose behind the library's back, so that it is seen that the judge notices."""

import time
from random import Random

from aiolock._server import Server
from aiolock._types import LockKeys
from tests.soak.settings import NAMES, PREFIX
from tests.soak.stages import Faults
from tests.support.topologies import ask

SIGNS = (
    "overlap",
    "token out of order",
    "told late",
    "left: a key without a time to live",
)  # Of what the judge must find.

_AHEAD = 10**12  # Microseconds: some days.


def faults(server: Server) -> Faults:
    """What to do to a server; that workers stay inside after a loss is their own part."""
    keys = [LockKeys.of(name, PREFIX) for name in NAMES]

    def delete_locks(chance: Random) -> None:
        """Others get them, too."""
        for _ in range(20):
            time.sleep(0.1)
            ask(server, "DEL", *(key.lock for key in keys))

    def forget_tokens(chance: Random) -> None:
        """After they have run ahead."""
        for key in keys:
            ask(server, "ZINCRBY", key.tokens, _AHEAD, "token")
        time.sleep(1)
        ask(server, "DEL", *(key.tokens for key in keys))

    def leave_key(chance: Random) -> None:
        ask(server, "SET", "residue", "no lock")

    return {"locks deleted": delete_locks, "tokens forgotten": forget_tokens, "key left": leave_key}
