"""Locks whose keys have a beginning of their own, and the outcomes of bodies that ran once: see once/outcome.lua."""

from collections.abc import Sequence
from dataclasses import replace

from aiolock._cli.locks.hashes import describe
from aiolock._cli.locks.model import ONCE, Lock, Outcome
from aiolock._cli.locks.names import keys_of
from aiolock._cli.locks.node import Node, decoded, token_of
from aiolock._keys import OWN_LOCKS, LockKeys, own_kind

_MOST_TOLD = 1000  # Characters of a result.


async def describe_own(node: Node, beginning: str, names: Sequence[str]) -> list[Lock]:
    """The locks among *names* that are held, and whose keys begin so. It reads no outcomes: some are large."""
    asked = await node.ask_of(
        keys_of(OWN_LOCKS[beginning], names), lambda keys: [("HGET", keys.lock, "aiolock:acquisition")]
    )
    held = {keys.name: keys for keys, [acquisition] in asked if acquisition is not None}
    found = await describe(node, [*held.values()])
    listening = await node.listening([keys.channel for keys in held.values()])
    kind = own_kind(beginning)
    # The line belongs to the fair lock of the same name.
    return [replace(lock, kind=kind, line=(), waiting=listening[held[lock.name].channel]) for lock in found]


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
