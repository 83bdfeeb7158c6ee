"""`aiolock run`: runs a command while holding a lock."""

import sys
from argparse import ArgumentParser, Namespace

from aiolock._cli import options, taking
from aiolock._cli.verb import NO_LOCK, common

SUMMARY = "run a command while holding a lock, and stop it before anyone else can get the lock"

DESCRIPTION = """\
Takes the lock, runs the command, renews the lock meanwhile, and gives it back when the command has ended.

If the lock cannot be renewed, the command gets SIGTERM while the grace is left, and its whole process group gets
SIGKILL at the deadline: before the server can grant the lock to anyone else. If the server says that the lock is
already gone (it was freed by force, for example), the command is killed at once. The command is also stopped if
aiolock itself is killed.

The command has the standard streams for itself. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on
to its process group. Before the command runs, these signals end the wait for the lock.
"""

EPILOG = f"""\
examples:
  aiolock run backup -- pg_dump -f orders.sql orders
  aiolock run nightly --wait 0 -- ./nightly.py          # not at all if another host does it already
  aiolock run api --kind semaphore --permits 4 -- ./import.py
  aiolock run ledger -- sh -c './post.py --fence "$AIOLOCK_TOKEN"'

{options.ENVIRONMENT}
environment of the command:
  AIOLOCK_NAME   the name of the lock
  AIOLOCK_TOKEN  the fencing token: greater than that of every earlier grant of the name
  REDIS_URL      as it is, password included, unless --hide-url is given
"""

BEHIND = "the command comes after --, so that its options are its own: aiolock run NAME -- CMD ..."

EXIT_CODES = (
    common("69")
    | NO_LOCK
    | {
        "75": "the lock was not granted in time",
        "76": "the lock was lost, and the command stopped",
        "126": "the command, or its guard, cannot be executed",
        "127": "the command was not found",
        "128 + n": "signal n ended the command, or the wait for the lock",
        "other": "the exit code of the command",
    }
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    taking.add_lock(parser)
    parser.add_argument("command", metavar="-- CMD", nargs="*", help="the command, and its arguments")
    lease = "how long the lock stays if aiolock is killed; it is renewed every third of that (default: 30)"
    options.add_lease(parser, 30.0, lease)
    grace = "time from SIGTERM to SIGKILL when the lock may be lost; half the lease at most (default: a third of it)"
    parser.add_argument("--grace", type=options.seconds(0), metavar="SECONDS", help=grace)
    parser.add_argument(
        "--json", action="store_true", help="print what aiolock itself says, on standard error, as JSON"
    )
    hide = "do not pass REDIS_URL, which may have a password, on to the command"
    parser.add_argument("--hide-url", action="store_true", help=hide)
    options.add_server(parser)


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    parsed.command = parsed.behind
    if not parsed.command:
        parsed.parser.error("give a command, as in aiolock run NAME -- CMD ...")
    if sys.platform == "win32":
        parsed.parser.error("`aiolock run` needs the signals and process groups of Linux or macOS")
    taking.check_lock(parsed)
    if parsed.grace is not None and parsed.grace > parsed.lease / 2:
        parsed.parser.error(f"--grace must be at most half the lease, {parsed.lease / 2:g} s")
    from aiolock._cli.command.under_lock import run_under_lock

    return run_under_lock(parsed)
