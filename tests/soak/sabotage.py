"""Promises broken on purpose behind the library's back, so that it is seen that the judge notices."""

import time
from collections.abc import Sequence
from random import Random
from typing import Literal, get_args

from aiolock._server import Server
from aiolock._types import LockKeys
from tests.soak.settings import NAMES, PREFIX
from tests.soak.stages import Faults
from tests.support.topologies import ask

Sabotage = Literal[
    "deletes",  # Locks vanish while they are held, so that others get them, too.
    "tokens",  # The last token of each name runs ahead and is forgotten.
    "leaves",  # A key without a time to live.
    "stays",  # Workers go on inside though they were told of the loss.
]
KINDS: tuple[Sabotage, ...] = get_args(Sabotage)
_AHEAD = 10**12  # Microseconds: some days.


def faults(kind: Sabotage, servers: Sequence[Server]) -> Faults:
    """What to do to one server; `stays` is the workers' part."""
    [server] = servers
    keys = [LockKeys.of(name, PREFIX) for name in NAMES]

    def delete(chance: Random) -> None:
        for _ in range(20):
            time.sleep(0.1)
            ask(server, "DEL", *(key.lock for key in keys))

    def put_back(chance: Random) -> None:
        for key in keys:
            ask(server, "ZINCRBY", key.tokens, _AHEAD, "token")
        time.sleep(1)
        ask(server, "DEL", *(key.tokens for key in keys))

    def leave(chance: Random) -> None:
        ask(server, "SET", "residue", "no lock")

    does: dict[Sabotage, Faults] = {"deletes": {kind: delete}, "tokens": {kind: put_back}, "leaves": {kind: leave}}
    return does.get(kind, {})
