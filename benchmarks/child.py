"""`python -m benchmarks.child RUN`: one run in a process of its own; prints its outcome as a line of JSON."""

import asyncio
import json
import resource
import sys
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from benchmarks import peers
from benchmarks.observer import Observer
from benchmarks.run import Outcome, Run
from benchmarks.sections import described
from benchmarks.workloads import WORKLOADS


async def measure(run: Run) -> Outcome:
    """Run it on an empty server; any failure is part of the outcome."""
    workload = WORKLOADS[run.workload]
    try:
        async with aclosing(Observer(run.url, peers.called_by_scripts(run.peer))) as observer:
            await observer.prepare()
            return await workload.special.get(run.peer, workload.run)(run, observer)
    except Exception as error:
        return Outcome(problem=described(error))


def main(told: str) -> None:
    """Do the run that the starting process describes."""
    run = Run(**json.loads(told))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A peer may want a connection for each task.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if run.worker == 0:
        print(json.dumps(asdict(_in_loop(run.loop, measure(run)))), flush=True)
        return
    work = WORKLOADS[run.workload].work
    assert work is not None, f"{run.workload} has no further processes"
    _in_loop(run.loop, work(run))


def _in_loop(loop: str, coroutine: "Coroutine[Any, Any, Any]") -> Any:
    if loop == "asyncio":
        return asyncio.run(coroutine)
    import uvloop

    return uvloop.run(coroutine)


if __name__ == "__main__":
    main(sys.argv[1])
