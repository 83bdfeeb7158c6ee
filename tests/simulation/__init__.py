"""
The real library in a simulated world: ``python -m tests.simulation --help``.

aiolock, redis.asyncio and hiredis run unchanged, over simulated connections, against servers that run the real Lua.
Time is virtual, faults come from a seed, and the checks judge every script and every holder. One seed is
always the same run, on every machine.

    world, process        the true time and the order of events; event loops with clocks of their own
    network, transport    connections, and their faults
    server, redis_data    commands, replies and keys; redis_lua runs the scripts
    replica               a copy of a server's data that lags behind
    topologies/           the servers, and the way in which a client finds them
    profiles, faults      the faults of a seed, and the effect of each
    fleet, acts           processes with clients, and the use that their tasks make of locks
    shutdown              the ways in which a process ends
    checks/               the properties that must hold; each check names the promise that it guards
    scenario              one seed from the beginning to the end
    record/               faults that other libraries had, retold; `python -m tests.simulation.record`
    campaign              many seeds, in several processes; it shrinks the plan of a seed that found something

A new fault is a method of `Faults` and its number in a profile. A new primitive is an act, and its name in `MIXES`. A
new promise is a method in `checks/`, and a planted bug that shows that the method looks.
"""
