"""
The track record: faults that lock libraries had in public, and aiolock's behaviour under the same events.

    python -m tests.simulation.record                  all scenarios, one line each
    python -m tests.simulation.record litellm-release  one scenario, with what happened in it

Each scenario is a story that is told twice in the simulated world: once with the commands that the other library sends
(or with the library itself, where redis-py carries it), and once with aiolock. One judge looks at both. The scenario is
right if the judge finds the fault of the other library, and nothing in aiolock.

    judge       the properties that must hold, for each library
    stage       the world of a story: servers, processes, and faults
    ours        the blocks of aiolock
    scenario    a story, its two libraries and its two verdicts
    redis_py, redisson, redlocks, others   the stories, and the commands of the other libraries
"""
