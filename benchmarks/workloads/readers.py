"""B14: tasks of one process read under one name, without writers."""

from benchmarks.observer import Observer
from benchmarks.room import share
from benchmarks.run import Outcome, Run


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *tasks*: the number of tasks."""
    return await share(run, lambda peer: peer.reader("report"), None)
