"""The outcomes of bodies that ran once; see once/outcome.lua."""

from collections.abc import Sequence

from aiolock._cli.locks.model import ONCE, Lock, Outcome
from aiolock._cli.locks.names import keys_of
from aiolock._cli.locks.node import Node, decoded, token_of
from aiolock._keys import LockKeys

# The most characters of a result that are shown.
_MOST_TOLD = 1000


async def describe_ended(node: Node, names: Sequence[str]) -> list[Lock]:
    """The bodies among *names* that ran once, and whose outcome is remembered."""
    asked = await node.ask_of(
        keys_of(LockKeys.of_once, names),
        lambda keys: [("HGET", keys.lock, "aiolock:outcome"), ("PTTL", keys.lock), ("ZSCORE", keys.tokens, "token")],
    )
    ended: list[Lock] = []
    for keys, (value, left, last) in asked:
        if value is not None and left is not None and left >= 0:
            outcome, token = _outcome(value, left / 1000), token_of(last)
            ended.append(Lock(name=keys.name, kind=ONCE, server=node.address, last_token=token, outcome=outcome))
    return ended


def _outcome(value: bytes, left: float) -> Outcome:
    kind, said = value[:1], value[1:]
    text = None if kind in (b"b", b"n") else (decoded(said) or "")[:_MOST_TOLD]
    return Outcome(failed=kind == b"f", left=left, size=len(said), text=text)
