"""The exit codes of the command line, in words and as numbers."""

FAILED, USAGE, UNREACHABLE, NOT_GRANTED, LOST = 1, 2, 69, 75, 76
CANNOT_EXECUTE, NOT_FOUND = 126, 127  # As shells have it.
OF_A_SIGNAL = 128  # And its number; the same.

TEXT = """\
exit codes:
  0    all is well
  1    demo: a deposit was lost, or a fault that belongs to it did not happen
       doctor: an error was found: the server is not fit to keep locks, or does not answer
       inspect: nobody holds it; break: nothing was freed
  2    wrong usage, or the command could not run (for the demo also if there is no server), or could not write
  69   Redis cannot be reached, or refuses what the verb asks
  75   run: not granted in time
  76   run: the lock was lost, and the command stopped
  126  run: the command cannot be executed; 127: it was not found; else, 128 + n: signal n ended it;
       else the exit code is that of the command
  130  interrupted (Ctrl-C); what was started is ended
  141  whoever read the output has gone; what was started is ended. The doctor's stays 0 or 1
"""


class VerbError(Exception):
    """What was asked for cannot be done; the words are for people, and *code* is how the process ends."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code
