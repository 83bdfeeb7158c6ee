"""`aiolock ls`: the locks, as a table or as JSON."""

from argparse import ArgumentParser, Namespace

from aiolock._cli import options
from aiolock._cli.locks.names import checked_pattern
from aiolock._cli.locks.progress import Progress
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import list_of
from aiolock._cli.output import tell, write, write_json
from aiolock._cli.servers import Servers, asked
from aiolock._cli.verb import common

SUMMARY = "list the locks that are held, who holds them, and how many wait"

DESCRIPTION = """\
Lists the locks that are held, also those of Redisson, and the counts of semaphores and latches. It asks every primary
with SCAN, page by page, and changes nothing. A name is shown as its key is called, with the prefix.

WAITING counts the clients that listen for the release; of a fair lock it counts the tasks in line. Semaphores and
latches are plain numbers in Redis. Where neither a waiting client nor a recent use tells them apart, KIND names both.
"""

EPILOG = f"""\
examples:
  aiolock ls
  aiolock ls 'shop:orders:*'
  aiolock ls --json | jq -r '.locks[] | select(.waiting > 0) | .name'

{options.ENVIRONMENT}"""

EXIT_CODES = common("0", "2", "69", "130", "141")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of the verb to *parser*."""
    options.add_pattern(parser, "list")
    options.add_server(parser, as_json="one JSON object instead of a table")


def run(parsed: Namespace) -> int:
    """Run the verb; returns the exit code."""
    return asked(parsed, ls)


async def ls(parsed: Namespace, servers: Servers) -> int:
    """Print the locks of *servers*; returns the exit code."""
    pattern = checked_pattern(parsed.pattern)
    with Progress() as progress:
        locks = await Reader(servers, progress).locks(pattern)
    locks.sort(key=lambda lock: lock.name)
    if parsed.json:
        write_json({"locks": locks})
    elif locks:
        write(list_of(locks))
    else:
        such = "" if pattern == "*" else f" whose name matches {pattern!r}"
        tell(f"no lock{such} is held on {', '.join(servers.primaries)}")
    return 0
