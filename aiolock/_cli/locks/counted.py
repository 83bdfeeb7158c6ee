"""Semaphores and latches, which are numbers, and the permits that expire, which are sorted sets."""

import re
from collections.abc import Sequence
from math import inf
from typing import Any

from aiolock._cli.locks.hashes import AIOLOCK, MOST_NAMED, REDISSON
from aiolock._cli.locks.model import COUNTER, LATCH, PERMITS, SEMAPHORE, Hold, Lock
from aiolock._cli.locks.node import Node, Question, decoded, number_of
from aiolock._keys import LockKeys
from aiolock._scripts import TAKEN

PERMITS_END = ":timeout"
TOKENS = "aiolock_token:"
_OF_OURS = re.compile(r"(.*#\d+)#\d+", re.DOTALL)
_NEVER = 922337203685477  # Milliseconds: when a permit of Redisson's ends that has no lease.
_MOST_MEMBERS = 100  # Of the set of tokens, looked at to tell a semaphore from a latch.


def names_of(tag: str) -> list[str]:
    """The names whose keys have *tag* in common: by Redisson's rule, two may."""
    inner = tag[1:-1]
    alone = tag[:1] == "{" and tag[-1:] == "}" and inner and "{" not in inner and "}" not in inner
    return [inner, tag] if alone else [tag]


async def describe_permits(node: Node, names: Sequence[str]) -> list[Lock]:
    """Those of *names* that are semaphores whose permits expire, and have somebody."""
    if not names:
        return []
    now = await node.now()
    questions: list[Question] = []
    for keys in (every := [LockKeys.of_permits(name, "") for name in names]):
        permits, valid = keys.all[1], (f"({round(now * 1000)}", "+inf")
        questions += [
            ("GET", keys.lock),
            ("ZCOUNT", permits, *valid),
            ("ZCARD", permits),
            ("ZRANGEBYSCORE", permits, *valid, "WITHSCORES", "LIMIT", 0, MOST_NAMED),
            ("ZSCORE", keys.tokens, "token"),
            node.subscribers(keys.channel),
        ]
    answers = await node.ask(questions)
    found = [_permits(node, keys, now, answers[6 * at : 6 * at + 6]) for at, keys in enumerate(every)]
    return [each for each in found if each is not None]


def _permits(node: Node, keys: LockKeys, now: float, answers: list[Any]) -> Lock | None:
    count, acquired, members, named, last, listening = answers
    if count is None or not acquired or not re.fullmatch(rb"-?\d+", count):
        return None
    taken: dict[str, list[tuple[bytes, float]]] = {}  # By acquisition.
    for permit, ends in zip(named[::2], named[1::2], strict=True):
        left = inf if float(ends) >= _NEVER else float(ends) / 1000 - now
        taken.setdefault(_acquisition(permit), []).append((permit, left))
    return Lock(
        name=keys.name,
        kind=PERMITS,
        server=node.address,
        holds=[
            Hold(
                holder=acquisition.rpartition("#")[0],
                by=AIOLOCK if acquisition else REDISSON,
                holds=len(some),
                left=max(left for _, left in some),
                permits=[permit for permit, _ in some],
            )
            for acquisition, some in taken.items()
        ],
        more=max(0, acquired - len(named) // 2),
        waiting=number_of(listening),
        last_token=last and int(last),
        available=int(count) + members - acquired,
    )


def _acquisition(permit: bytes) -> str:
    """Who took a permit, and when; nothing for one of Redisson's, which is 16 bytes."""
    ours = _OF_OURS.fullmatch(decoded(permit) or "")
    return ours[1] if ours else ""


async def describe_counters(node: Node, names: Sequence[str]) -> list[Lock]:
    """Those of *names* that are numbers which aiolock counts, and nobody owns."""
    types = await node.ask([("TYPE", name) for name in names])
    names = [name for name, what in zip(names, types, strict=True) if what == b"string"]
    questions: list[Question] = []
    for name in names:
        semaphore, latch = LockKeys.of_semaphore(name, ""), LockKeys.of_latch(name, "")
        questions += [
            ("ZSCORE", semaphore.tokens, "token"),
            ("ZREVRANGE", semaphore.tokens, 0, _MOST_MEMBERS, "WITHSCORES"),
            ("STRLEN", name),
            node.subscribers(semaphore.channel),
            node.subscribers(latch.channel),
        ]
    answers, found = await node.ask(questions), []
    for at, name in enumerate(names):
        token, members, length, *listening = answers[5 * at : 5 * at + 5]
        if token is None and members and (length or 0) <= len(str(-(2**63))):
            found.append((name, _kind(members, *map(number_of, listening)), sum(map(number_of, listening))))
    counts = await node.ask([("GET", name) for name, _, _ in found])
    return [
        Lock(name=name, kind=kind, server=node.address, waiting=waiting, available=int(count))
        for (name, kind, waiting), count in zip(found, counts, strict=True)
        if count is not None and re.fullmatch(rb"-?\d+", count)
    ]


def _kind(members: list[Any], on_semaphore: int, on_latch: int) -> str:
    """Only who waits, or has taken permits lately, tells which of the two it is."""
    if on_latch:
        return LATCH
    taken = any(float(score) % 10 == TAKEN for score in members[1::2])
    return SEMAPHORE if on_semaphore or taken or any(b"drain " in each for each in members[::2]) else COUNTER
