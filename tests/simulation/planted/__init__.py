"""
Does the simulation look? Single faults, each planted into a copy of the library, and the seeds until one is found.

    python -m tests.simulation.planted                    the table of all of them
    python -m tests.simulation.planted --only acquire     of those whose name or file contains the word

A fault is a mistake that a maintainer could make: it removes a guard, forgets to wake a task, counts one too many.
To add one, name the file, a text that occurs there once, and the text in its place.

    fault               the form of a fault, the way it is planted, and the search for it
    faults              all of them: those of the Lua (scripts) and those of the Python (library)
"""
