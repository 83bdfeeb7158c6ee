"""`aiolock run` on the command line."""

import argparse
import sys

from aiolock._cli import options

SUMMARY = "run a command under a lock, and stop it before anyone else can hold that"

DESCRIPTION = """\
Takes the lock, runs the command, and gives the lock back when the command has ended. The lock is renewed meanwhile.
If it cannot be, the command is told to end (SIGTERM) while there is a grace left, and killed at the deadline, with
its whole process group: before the server can grant the lock to anyone else. When the server says that the lock is
gone already, freed by force say, the command is killed at once. It is stopped also when aiolock itself is killed.

Its standard streams are the command's. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to the
process group of the command; before it runs, they end the wait.
"""

EXAMPLES = """\
examples:
  aiolock run backup -- pg_dump -f orders.sql orders
  aiolock run nightly --wait 0 -- ./nightly.py          # not at all if another host does it already
  aiolock run api --kind semaphore --permits 4 -- ./import.py
  aiolock run ledger -- sh -c './post.py --fence "$AIOLOCK_TOKEN"'

"""

ENVIRONMENT = f"""\
{options.ENVIRONMENT.rstrip()}

environment of the command:
  AIOLOCK_NAME   the name of the lock
  AIOLOCK_TOKEN  the fencing token: greater than that of every earlier grant of the name

"""

BEHIND = "the command stands behind --, so that its options are its own: aiolock run NAME -- CMD ..."
KINDS = ("lock", "fair", "semaphore")
_LEAST_LEASE = 1.0  # Seconds: shorter ones leave a process no time to end.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    parser.add_argument("name", metavar="NAME", help="the name of the lock, its prefix included")
    parser.add_argument("command", metavar="-- CMD", nargs="*", help="the command, and its arguments")
    wait = "how long to wait for the lock; 0 for one try (default: for ever)"
    parser.add_argument("--wait", type=options.seconds(0), metavar="SECONDS", help=wait)
    lease = "how long the lock outlives us when we are killed; renewed when a third of it is over (default: 30)"
    parser.add_argument("--lease", type=options.seconds(_LEAST_LEASE), default=30.0, metavar="SECONDS", help=lease)
    grace = "from SIGTERM to SIGKILL when the lock may be lost; half the lease at most (default: a third of it)"
    parser.add_argument("--grace", type=options.seconds(0), metavar="SECONDS", help=grace)
    kind = "lock; fair: first come, first served; semaphore: one of so many permits that expire (default: lock)"
    parser.add_argument("--kind", choices=KINDS, default="lock", help=kind)
    parser.add_argument("--permits", type=int, metavar="N", help="how many may hold a semaphore at once")
    parser.add_argument("--json", action="store_true", help="what we say ourselves, on standard error, as JSON")
    options.add_server(parser)


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    parsed.command = parsed.behind
    if not parsed.command:
        parsed.parser.error("a command is wanted: aiolock run NAME -- CMD ...")
    if sys.platform == "win32":
        parsed.parser.error("it needs the signals and process groups of Linux or macOS")
    if (parsed.permits is None) is (parsed.kind == "semaphore"):
        parsed.parser.error("--kind semaphore and --permits N belong together")
    if parsed.grace is not None and parsed.grace > parsed.lease / 2:
        parsed.parser.error(f"--grace must be at most half the lease, {parsed.lease / 2:g} s")
    from aiolock._cli.run.run import run

    return run(parsed)
