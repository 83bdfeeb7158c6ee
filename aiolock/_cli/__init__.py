"""
The command line: `main` reads the arguments, and runs a module of `verbs`, which has what `verb` says.

    options, taking, tickets    the arguments that several verbs share, and what these verbs do with them
    way_in, probe, servers      the way to the server, the Sentinel or the cluster behind a URL
    output, failure, advice     what the user sees
    locks                       the locks in Redis, read and put into words: ls, inspect, clients, break, top
    breaking                    the end of one grant: break
    command                     a command under a lock: run
    screen                      the picture of the locks: top
    doctor                      the checks of a server: doctor
"""
