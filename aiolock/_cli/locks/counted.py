"""Counting semaphores and latches, which are numbers, and semaphores, whose permits are in sorted sets."""

import re
from collections.abc import Sequence
from math import inf
from typing import Any

from aiolock._cli.locks.hashes import AIOLOCK, MOST_NAMED, REDISSON
from aiolock._cli.locks.model import COUNTER, COUNTING_SEMAPHORE, LATCH, SEMAPHORE, Hold, Lock
from aiolock._cli.locks.names import keys_of
from aiolock._cli.locks.node import LONGEST_NUMBER, Node, Question, decoded, token_of, whole
from aiolock._keys import LockKeys, is_braced
from aiolock._scripts.replies import TAKEN

PERMITS_END = ":timeout"
_OF_OURS = re.compile(r"(.*#\d+)#\d+", re.DOTALL)
# The end of a permit of Redisson's that has no lease, in milliseconds.
_NEVER = 922337203685477
# The most tokens that are read to tell a counting semaphore from a latch.
_MOST_MEMBERS = 100


def names_of(tag: str) -> list[str]:
    """The names whose Redisson keys have the hash tag *tag*: there may be two."""
    return [tag[1:-1], tag] if is_braced(tag) else [tag]


async def describe_permits(node: Node, names: Sequence[str]) -> list[Lock]:
    """The semaphores among *names* that are in use."""
    if not names:
        return []
    now = await node.now()

    def about(keys: LockKeys) -> list[Question]:
        permits, valid = keys.all[1], (f"({round(now * 1000)}", "+inf")
        return [
            ("GET", keys.lock),
            ("ZCOUNT", permits, *valid),
            ("ZCARD", permits),
            ("ZRANGEBYSCORE", permits, *valid, "WITHSCORES", "LIMIT", 0, MOST_NAMED),
            ("ZSCORE", keys.tokens, "token"),
        ]

    asked = await node.ask_of(keys_of(LockKeys.of_permits, names), about)
    listening = await node.listening([keys.channel for keys, _ in asked])
    found = [_permits(node, keys, now, told, listening[keys.channel]) for keys, told in asked]
    return [each for each in found if each is not None]


def _permits(node: Node, keys: LockKeys, now: float, answers: list[Any], waiting: int) -> Lock | None:
    said, acquired, members, named, last = answers
    count = whole(said)
    if count is None or not acquired:
        return None
    taken: dict[str, list[tuple[bytes, float]]] = {}
    for permit, ends in zip(named[::2], named[1::2], strict=True):
        left = inf if float(ends) >= _NEVER else float(ends) / 1000 - now
        taken.setdefault(_acquisition(permit), []).append((permit, left))
    return Lock(
        name=keys.name,
        kind=SEMAPHORE,
        server=node.address,
        holds=[
            Hold(
                owner_id=acquisition.rpartition("#")[0],
                library=AIOLOCK if acquisition else REDISSON,
                holds=len(some),
                left=max(left for _, left in some),
                permits=[permit for permit, _ in some],
            )
            for acquisition, some in taken.items()
        ],
        more=max(0, acquired - len(named) // 2),
        waiting=waiting,
        last_token=token_of(last),
        available=count + members - acquired,
    )


def _acquisition(permit: bytes) -> str:
    """The owner and the time of the acquire that took a permit; empty for a permit of Redisson's, which is 16 bytes."""
    ours = _OF_OURS.fullmatch(decoded(permit) or "")
    return ours[1] if ours else ""


async def describe_counters(node: Node, names: Sequence[str]) -> list[Lock]:
    """The counters among *names*: numbers that aiolock counts, without owners."""
    numbers = [name for name, [kind] in await node.ask_of(names, lambda name: [("TYPE", name)]) if kind == b"string"]

    def about(keys: LockKeys) -> list[Question]:
        members = ("ZREVRANGE", keys.tokens, 0, _MOST_MEMBERS, "WITHSCORES")
        return [("ZSCORE", keys.tokens, "token"), members, ("STRLEN", keys.lock)]

    asked = await node.ask_of(keys_of(LockKeys.of_counting_semaphore, numbers), about)
    counted = {
        keys.name: (members, keys.channel, LockKeys.of_latch(keys.name, "").channel)
        for keys, (token, members, length) in asked
        if token is None and members and (length or 0) <= LONGEST_NUMBER
    }
    listening = await node.listening([channel for _, *both in counted.values() for channel in both])
    found = []
    for name, [said] in await node.ask_of(counted, lambda name: [("GET", name)]):
        members, *both = counted[name]
        of_each = [listening[channel] for channel in both]
        if (count := whole(said)) is not None:
            kind = _kind(members, *of_each)
            found.append(Lock(name=name, kind=kind, server=node.address, waiting=sum(of_each), available=count))
    return found


def _kind(members: list[Any], on_counter: int, on_latch: int) -> str:
    """Counting semaphore or latch; only waiters, or permits that were taken lately, tell the two apart."""
    if on_latch:
        return LATCH
    taken = any(float(score) % 10 == TAKEN for score in members[1::2])
    return COUNTING_SEMAPHORE if on_counter or taken or any(b"drain " in each for each in members[::2]) else COUNTER
