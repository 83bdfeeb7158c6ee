"""B14: tasks of one process read under one name, and nobody writes."""

from benchmarks.observer import Observer
from benchmarks.room import share
from benchmarks.run import Outcome, Run


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *tasks*: how many."""
    return await share(run, lambda peer: peer.reader("report"), None)
