"""`run`: the locks, as a table or as JSON."""

import argparse
import json
import sys
from collections.abc import Sequence

from aiolock._cli import terminal
from aiolock._cli.locks.model import Lock
from aiolock._cli.locks.names import checked_pattern
from aiolock._cli.locks.progress import Progress
from aiolock._cli.locks.reader import Reader
from aiolock._cli.locks.words import HEADINGS, aligned, rows
from aiolock._cli.output import write
from aiolock._cli.servers import Servers, asked


def run(parsed: argparse.Namespace) -> int:
    """List the locks; returns the exit code."""
    return asked(parsed, verb)


async def verb(parsed: argparse.Namespace, servers: Servers) -> int:
    """Print the locks of *servers*; returns the exit code."""
    pattern = checked_pattern(parsed.pattern)
    with Progress() as progress:
        locks = await Reader(servers, progress).locks(pattern)
    locks.sort(key=lambda lock: lock.name)
    if parsed.json:
        write(json.dumps({"locks": [lock.as_dict() for lock in locks]}))
    elif locks:
        write(table(locks))
    else:
        such = "" if pattern == "*" else f" whose name matches {pattern!r}"
        print(f"aiolock: no lock{such} is held on {', '.join(servers.primaries)}", file=sys.stderr)
    return 0


def table(locks: Sequence[Lock]) -> str:
    """The text for people."""
    heading, *lines = aligned([HEADINGS, *(row for lock in locks for row in rows(lock))], terminal.width())
    return "\n".join([terminal.bold(heading), *lines])
