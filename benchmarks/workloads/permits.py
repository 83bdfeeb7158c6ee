"""B13: tasks of one process enter and leave sections, of which only a few run at once."""

from benchmarks.observer import Observer
from benchmarks.room import share
from benchmarks.run import Outcome, Run

PERMITS = 4


async def run(run: Run, observer: Observer) -> Outcome:
    """Parameter *tasks*: the number of tasks that share the permits."""
    return await share(run, lambda peer: peer.permit("places", PERMITS), PERMITS)
