"""
A model of the protocol, and a search through every order of its events: ``python -m tests.protocol``.

    explorer         every state that can be reached, and the shortest way to a state that breaks a promise
    rules, state     one server: the rules that can be taken away, the bounds, the states
    lua, client      one server: what the scripts do, and what a client does
    one_server       one server: what can happen, and what must never be
    quorum_state     several servers: the rules that can be taken away, the bounds, the states
    quorum           three servers that forget
    configurations   the explored models, each within bounds of its own; and the switches

The models say briefly what the Lua and the client do. A switch takes one rule away, and the explorer then has to find a
broken promise, which shows that the model would notice if the protocol lacked the rule. The simulation
(`tests/simulation`) runs the real code, in some orders of events; a model sees every order, but only within its bounds,
and only what the model says.
"""
