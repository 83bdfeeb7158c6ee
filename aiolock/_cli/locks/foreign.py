"""Keys that have the name of a lock and are none, although acquiring one makes a hash with a TTL."""

import re

from aiolock._cli.locks.hashes import is_foreign
from aiolock._cli.locks.node import LONGEST_NUMBER, Node


async def foreign_type(node: Node, name: str) -> str | None:
    """The type of the key *name* if it exists and is neither a lock nor a number."""
    # A lock may be taken or released between two replies, so all questions go in one request.
    kind, left, length, fields = await node.ask([("TYPE", name), ("PTTL", name), ("STRLEN", name), ("HSCAN", name, 0)])
    if kind == b"none":
        return None
    if kind == b"hash":
        return "hash" if left == -1 or is_foreign(fields) else None
    if kind == b"string" and (length is None or length <= LONGEST_NUMBER):
        [value] = await node.ask([("GET", name)])
        if value is None or re.fullmatch(rb"-?\d+", value):
            return None
    return bytes(kind).decode()
