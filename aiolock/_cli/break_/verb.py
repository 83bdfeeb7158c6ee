"""`aiolock break` on the command line."""

import argparse

from aiolock._cli import options

SUMMARY = "free a lock from who holds it now, and from nobody else"

DESCRIPTION = """\
Frees a lock from those who hold it when the command looks, if they still do when it acts: what was granted to another
meanwhile is left alone. It shows who that is, and asks, unless --yes was said. Whoever loses the lock learns of it
with its next renewal, after a third of its lease, or at once if another task of its client has the lock by then. Until
it learns of it, it goes on, and only the fencing token keeps it from harm. A key that is not a lock is left alone.
"""

EXAMPLES = """\
examples:
  aiolock break shop:orders:42
  aiolock break shop:orders:42 --token 1795551705616179 --yes
  aiolock break api --client dffaed68

"""

ENVIRONMENT = options.ENVIRONMENT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What may follow the verb."""
    parser.add_argument("name", metavar="NAME", help="the name of the lock, its prefix included")
    parser.add_argument("--token", type=int, metavar="N", help="only the grant that has this token")
    parser.add_argument("--client", metavar="ID", help="only what this client holds; the beginning of its id will do")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options.add_server(parser, as_json="one JSON object that says what was done")


def run(parsed: argparse.Namespace) -> int:
    """Run it; the exit code."""
    from aiolock._cli.break_.run import run

    return run(parsed)
