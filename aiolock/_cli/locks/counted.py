"""Counting semaphores and latches, which are numbers, and semaphores, whose permits are in sorted sets."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from aiolock._cli.locks.hashes import AIOLOCK, MOST_NAMED, REDISSON
from aiolock._cli.locks.model import COUNTER, COUNTING_SEMAPHORE, LATCH, SEMAPHORE, Hold, Lock
from aiolock._cli.locks.names import keys_of
from aiolock._cli.locks.node import Node, Question, decoded, token_of, whole
from aiolock._keys import LockKeys, is_braced
from aiolock._scripts.replies import TAKEN

PERMITS_END = ":timeout"
_OF_OURS = re.compile(r"(.*#\d+)#\d+", re.DOTALL)
_NEVER = 922337203685477  # Milliseconds: the end of a permit of Redisson's that has no lease.
_MOST_MEMBERS = 100  # Members of the set of tokens that are read to tell a counting semaphore from a latch.


def names_of(tag: str) -> list[str]:
    """The names whose Redisson keys have the hash tag *tag*: there may be two."""
    return [tag[1:-1], tag] if is_braced(tag) else [tag]


async def describe_permits(node: Node, names: Sequence[str]) -> list[Lock]:
    """The semaphores among *names* that are in use."""
    if not names:
        return []
    now = await node.now()
    questions: list[list[Question]] = []
    for keys in (every := keys_of(LockKeys.of_permits, names)):
        permits, valid = keys.all[1], (f"({round(now * 1000)}", "+inf")
        questions += [
            [
                ("GET", keys.lock),
                ("ZCOUNT", permits, *valid),
                ("ZCARD", permits),
                ("ZRANGEBYSCORE", permits, *valid, "WITHSCORES", "LIMIT", 0, MOST_NAMED),
                ("ZSCORE", keys.tokens, "token"),
            ]
        ]
    answers, listening = await node.ask_each(questions), await node.listening([keys.channel for keys in every])
    found = [_permits(node, keys, now, told) for keys, told in zip(every, answers, strict=True)]
    return [replace(each, waiting=listening[keys.channel]) for keys, each in zip(every, found, strict=True) if each]


def _permits(node: Node, keys: LockKeys, now: float, answers: list[Any]) -> Lock | None:
    said, acquired, members, named, last = answers
    count = whole(said)
    if count is None or not acquired:
        return None
    taken: dict[str, list[tuple[bytes, float]]] = {}  # Keyed by acquisition.
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
        last_token=token_of(last),
        available=count + members - acquired,
    )


def _acquisition(permit: bytes) -> str:
    """The owner and the time of the acquire that took a permit; empty for a permit of Redisson's, which is 16 bytes."""
    ours = _OF_OURS.fullmatch(decoded(permit) or "")
    return ours[1] if ours else ""


async def describe_counters(node: Node, names: Sequence[str]) -> list[Lock]:
    """The counters among *names*: numbers that aiolock counts, without owners."""
    types = await node.ask([("TYPE", name) for name in names])
    names = [name for name, what in zip(names, types, strict=True) if what == b"string"]
    questions, channels = list[list[Question]](), dict[str, tuple[str, str]]()
    names = [keys.name for keys in keys_of(LockKeys.of_counting_semaphore, names)]
    for name in names:
        counter, latch = LockKeys.of_counting_semaphore(name, ""), LockKeys.of_latch(name, "")
        questions += [
            [
                ("ZSCORE", counter.tokens, "token"),
                ("ZREVRANGE", counter.tokens, 0, _MOST_MEMBERS, "WITHSCORES"),
                ("STRLEN", name),
            ]
        ]
        channels[name] = counter.channel, latch.channel
    answers, found = await node.ask_each(questions), []
    listening = await node.listening([channel for both in channels.values() for channel in both])
    for name, (token, members, length) in zip(names, answers, strict=True):
        if token is None and members and (length or 0) <= len(str(-(2**63))):
            numbers = [listening[channel] for channel in channels[name]]
            found.append((name, _kind(members, *numbers), sum(numbers)))
    counts = await node.ask([("GET", name) for name, _, _ in found])
    return [
        Lock(name=name, kind=kind, server=node.address, waiting=waiting, available=count)
        for (name, kind, waiting), said in zip(found, counts, strict=True)
        if (count := whole(said)) is not None
    ]


def _kind(members: list[Any], on_counter: int, on_latch: int) -> str:
    """Counting semaphore or latch; only waiters, or permits that were taken lately, tell the two apart."""
    if on_latch:
        return LATCH
    taken = any(float(score) % 10 == TAKEN for score in members[1::2])
    return COUNTING_SEMAPHORE if on_counter or taken or any(b"drain " in each for each in members[::2]) else COUNTER
