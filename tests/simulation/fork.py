"""
A fork of a process: the child has a copy of the event loop, with every client and task, and lets it run on.

The copy is a real one: the whole simulation forks, and only that process goes on in the child. redis-py itself closes a
connection that is being made, so that a process forks only while none of its connections is new.
"""

import os
import random

from tests.simulation.network import ForkedChild
from tests.simulation.process import Process
from tests.simulation.shutdown import cancel_all
from tests.simulation.world import NEVER

# Seconds for which the child goes on: longer than any lease.
_GOES_ON = 8.0
# Seconds in which a process that nothing disturbs connects, and is greeted.
_CONNECTS = 1.0


def may_fork(process: Process) -> bool:
    """Whether no code of the process runs, and none of its connections is being made, broken ones included."""
    network, new = process.network, process.world.now - _CONNECTS
    connects = process in network.connecting or network.connected_last.get(process, -NEVER) >= new
    return not process.in_turn and process.froze_last < new and not connects


def use_in_child(process: Process, *, cancels: bool) -> list[str]:
    """
    The child's uses of the connections of *process*, its parent, and its failures.

    *cancels*: the child cancels all tasks first.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, "\n".join(_go_on(process, cancels=cancels)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        used = pipe.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [*used, f"ended with status {status}"] if status else used


def _go_on(process: Process, *, cancels: bool) -> list[str]:
    world = process.world
    # Python would seed the generator of a child again.
    random.seed(world.seed)
    child = process.network.child = ForkedChild(process.unfinished_tasks())
    before = len(world.violations)
    if cancels:
        cancel_all(process)
    world.leave_alone(process)
    world.run_until(world.now + _GOES_ON)
    return child.uses + [each for each in world.violations[before:] if each.startswith("unhandled")]
