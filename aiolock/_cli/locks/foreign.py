"""Keys that have the name of a lock and are none, whatever acquiring makes of a hash with a TTL."""

import re

from aiolock._cli.locks.hashes import is_foreign
from aiolock._cli.locks.node import Node

_LONGEST = len(str(-(2**63)))  # Of a number that Redis counts.


async def foreign_type(node: Node, name: str) -> str | None:
    """The type that Redis has of the key *name*, if that is there, and neither a lock nor a number."""
    # A lock may be taken or given back between two answers, so that it takes one answer to say that it is none.
    kind, left, length, fields = await node.ask([("TYPE", name), ("PTTL", name), ("STRLEN", name), ("HSCAN", name, 0)])
    if kind == b"none":
        return None
    if kind == b"hash":
        return "hash" if left == -1 or is_foreign(fields) else None
    if kind == b"string" and (length is None or length <= _LONGEST):
        [value] = await node.ask([("GET", name)])
        if value is None or re.fullmatch(rb"-?\d+", value):
            return None
    return bytes(kind).decode()
