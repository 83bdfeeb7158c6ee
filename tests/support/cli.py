"""The verbs of the command line, in this process."""

import argparse
from collections.abc import Awaitable, Callable

from aiolock._cli.main import parser
from aiolock._cli.servers import Servers, connected

Verb = Callable[[argparse.Namespace, Servers], Awaitable[int]]


def parsed(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(arguments)


async def run(url: str, verb: Verb, *arguments: str) -> int:
    """Run *verb* with these arguments, the first of which is its name; return the exit code."""
    asked = parsed(*arguments)
    async with connected(url, asked.primary) as servers:
        return await verb(asked, servers)
