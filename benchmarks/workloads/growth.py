"""B9: one task uses a great many names, each once: whether the last cost what the first did, and what stays behind."""

import time
from array import array
from statistics import median

from benchmarks import peers
from benchmarks.memory import resident
from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run
from benchmarks.witness import Witness

BLOCK = 1000
_WARM = 500


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *names*: how many; seconds do not matter."""
    names = run.number("names")
    first, last = array("d", bytes(8 * BLOCK)), array("d", bytes(8 * BLOCK))
    scrap = array("d", bytes(8 * BLOCK))  # For what is between: this measurement must not grow itself.
    async with peers.make(run.peer, run.url, 1, 30) as peer:
        for number in range(_WARM):
            async with peer.lock(f"warm:{number}"):
                pass
        memory, server = resident(), await observer.memory()
        with Witness() as witness:
            for start in range(0, names, BLOCK):
                times = first if start == 0 else last if start + BLOCK >= names else scrap
                for place in range(BLOCK):
                    began = time.perf_counter()
                    async with peer.lock(f"name:{start + place}"):
                        witness.enter(1)
                        witness.leave(1)
                    times[place] = time.perf_counter() - began
        growth, server_growth = resident() - memory, await observer.memory() - server
    measures = {
        "first_thousand": median(first),
        "last_thousand": median(last),
        "growth": growth,
        "bytes_per_name": growth / names,
        "server_bytes_per_name": server_growth / names,
    }
    return Outcome(measures)
