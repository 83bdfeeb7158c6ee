"""
The command line: `main` reads the arguments, and runs a module of `verbs`, which has the form of a `verb`.

    options, taking, tickets    the arguments of several verbs, and their common steps
    way_in, probe, servers      the way to the server, the Sentinel or the cluster behind a URL
    output, failure, advice     the output, the errors, and advice for the user
    locks                       the locks in Redis, read and put into words: ls, inspect, clients, break, top
    breaking                    the end of one grant: break
    command                     a command under a lock: run
    screen                      the picture of the locks: top
    doctor                      the checks of a server: doctor
"""
