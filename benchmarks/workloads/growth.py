"""B9: a great many names are used, each once: the cost of the last names beside the first, and the memory kept."""

import asyncio
import time
from array import array
from statistics import median

from benchmarks import peers
from benchmarks.memory import resident
from benchmarks.observer import Observer
from benchmarks.peers.adapter import Peer
from benchmarks.run import Outcome, Run
from benchmarks.witness import Witness

# The first and the last part are compared: each is so long that no stall of the machine decides.
_PARTS = 10
_TASKS = 20


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *names*: the number of names; seconds do not matter."""
    names = run.number("names")
    part = names // _PARTS
    first, last = array("d", bytes(8 * part)), array("d", bytes(8 * part))
    # The parts between have one array, as this measurement must not grow itself.
    scrap = array("d", bytes(8 * part))
    async with peers.make(run.peer, run.url, _TASKS, 30) as peer:
        with Witness(part) as witness:
            user = _User(peer, witness)
            await user.use("warm", 0, scrap)
            memory, server = resident(), await observer.memory()
            for number in range(_PARTS):
                times = first if number == 0 else last if number == _PARTS - 1 else scrap
                await user.use("name", number * part, times)
        growth, server_growth = resident() - memory, await observer.memory() - server
    measures = {
        "first_tenth": median(first),
        "last_tenth": median(last),
        "growth": growth,
        "bytes_per_name": growth / names,
        "server_bytes_per_name": server_growth / names,
    }
    return Outcome(measures, problem=f"{witness.overlaps} × two holders at a time" if witness.overlaps else None)


class _User:
    """Uses names, each once."""

    def __init__(self, peer: Peer, witness: Witness) -> None:
        self._peer = peer
        self._witness = witness

    async def use(self, kind: str, start: int, times: "array[float]") -> None:
        """Use the names from number *start* on, and write the seconds that each took into *times*, until it is full."""
        async with asyncio.TaskGroup() as group:
            for task in range(_TASKS):
                group.create_task(self._use(kind, start, times, range(task, len(times), _TASKS)))

    async def _use(self, kind: str, start: int, times: "array[float]", places: range) -> None:
        for place in places:
            began = time.perf_counter()
            async with self._peer.lock(f"{kind}:{start + place}"):
                self._witness.enter(1, place)
                self._witness.leave(1, place)
            times[place] = time.perf_counter() - began
