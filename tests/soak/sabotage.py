"""Promises are broken on purpose behind the library's back, to see that the judge notices it."""

import time
from pathlib import Path
from random import Random

from aiolock._embedded_server import Server
from aiolock._keys import LockKeys
from tests.soak.judge import Check, Evidence, overlaps, overstays, tokens
from tests.soak.lives import Life
from tests.soak.settings import NAMES, PREFIX
from tests.soak.stages import Faults
from tests.support.topologies import ask, wait_until

# The judge must have these findings.
SIGNS = (
    "overlap",
    "token out of order",
    "told late",
    "left: a key without a time to live",
)

_AHEAD = 10**12


def faults(server: Server, folder: Path) -> Faults:
    """
    The acts of sabotage, each of which goes on until the journals in *folder* show it; the workers need no sabotage to
    stay inside after a loss.

    If the judge notices nothing, the act fails after a time.
    """
    keys = [LockKeys.of(name, PREFIX) for name in NAMES]

    def show(check: Check) -> bool:
        lives = [Life.read(path) for path in folder.glob("*.jsonl")]
        return any(check(Evidence(lives, [], 0, 0)))

    def delete_locks(chance: Random) -> None:
        """Delete the locks of holders, so that others get the locks, too."""

        def is_noticed() -> bool:
            ask(server, "DEL", *(key.lock for key in keys))
            time.sleep(0.1)
            return show(overlaps) and show(overstays)

        wait_until(is_noticed, "two are inside, and one was told late")

    def forget_tokens(chance: Random) -> None:
        """Delete the tokens, after they were moved ahead."""

        def is_noticed() -> bool:
            for key in keys:
                ask(server, "ZINCRBY", key.tokens, _AHEAD, "token")
            time.sleep(0.3)
            ask(server, "DEL", *(key.tokens for key in keys))
            time.sleep(0.3)
            return show(tokens)

        wait_until(is_noticed, "a token is not greater than that of the one before")

    def leave_key(chance: Random) -> None:
        ask(server, "SET", "residue", "no lock")

    return {"locks deleted": delete_locks, "tokens forgotten": forget_tokens, "key left": leave_key}
