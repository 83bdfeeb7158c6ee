"""Locks and read-write locks, which are hashes; see the headers of their scripts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiolock._cli.locks.model import FAIR, LOCK, READ_WRITE, Hold, Lock
from aiolock._cli.locks.node import Node, Question, number_of
from aiolock._core.hold import KEPT
from aiolock._keys import WRITER, LockKeys

AIOLOCK, REDISSON = "aiolock", "Redisson"
MOST_NAMED = 1000  # Holders of one lock; the others are counted.

_OF_REDISSON = re.compile(r"[0-9a-f-]{36}:\d+", re.IGNORECASE)
_OF_A_FAIR_ONE = b"aiolock:fair"
_MICROSECONDS = 1_000_000
_TICKETS, _NO_TICKETS = "-4000000000000000", "(-1000000000000000"  # Between them the line is; see fair.lua.
_MOST_IN_LINE = 1000


@dataclass(frozen=True, slots=True)
class _Found:
    """A hash that may be a lock; *left* is in seconds."""

    keys: LockKeys
    left: float
    acquisition: bool
    token: int | None
    mode: bool


async def describe(node: Node, every: Sequence[LockKeys]) -> list[Lock]:
    """Those that are locks, and held, or kept for a while."""
    found = await _candidates(node, every)
    questions: list[Question] = []
    for each in found:
        questions += [
            ("HSCAN", each.keys.lock, 0, "COUNT", MOST_NAMED),
            ("HLEN", each.keys.lock),
            ("ZSCORE", each.keys.tokens, "token"),
            ("ZRANGEBYSCORE", each.keys.tokens, _TICKETS, _NO_TICKETS, "LIMIT", 0, _MOST_IN_LINE),
            node.subscribers(each.keys.channel),
        ]
    answers = await node.ask(questions)
    now = await node.now() if found else 0.0
    locks = [
        await _read_write(node, each, now, answers[5 * at : 5 * at + 5])
        if each.mode
        else _plain(node, each, now, answers[5 * at : 5 * at + 5])
        for at, each in enumerate(found)
    ]
    return [each for each in locks if each is not None]


async def _candidates(node: Node, every: Sequence[LockKeys]) -> list[_Found]:
    """What has the looks of a lock, found out without reading more than a few bytes of each."""
    questions: list[Question] = []
    for keys in every:
        questions += [
            ("PTTL", keys.lock),
            ("HLEN", keys.lock),
            ("HMGET", keys.lock, "aiolock:acquisition", "aiolock:token", "mode"),
        ]
    answers, found = await node.ask(questions), []
    for at, keys in enumerate(every):
        left, length, fields = answers[3 * at : 3 * at + 3]
        if left is None or left <= 0 or fields is None:
            continue
        acquisition, token, mode = fields
        reads_or_writes = mode in (b"read", b"write")
        if acquisition is not None or reads_or_writes or length == 1:
            its = LockKeys.of_read_write(keys.name, "")[0] if reads_or_writes else keys
            found.append(_Found(its, left / 1000, acquisition is not None, token and int(token), reads_or_writes))
    return found


def is_foreign(answer: Any) -> bool:
    """Whether what HSCAN answered of a key has fields, and none of them is one of a lock."""
    fields: dict[bytes, bytes] = answer[1] if answer else {}
    if not fields or b"aiolock:acquisition" in fields or fields.get(b"mode") in (b"read", b"write"):
        return False
    owners = _owners(answer)
    return len(fields) > 1 or not owners or not _is_owner(owners[0][0])


def _is_owner(owner: str) -> bool:
    """Of a lock that has no field but this one."""
    return owner.endswith(f":{KEPT}") or _OF_REDISSON.fullmatch(owner) is not None


def _plain(node: Node, found: _Found, now: float, answers: list[Any]) -> Lock | None:
    fields, _, last, tickets, listening = answers
    owners = _owners(fields)
    owner, count = owners[0] if len(owners) == 1 else ("", 0)
    ours = found.acquisition or owner.endswith(f":{KEPT}")
    if not owner or not (found.acquisition or _is_owner(owner)):
        return None
    line = [
        ticket.decode(errors="replace").removeprefix("ticket ") for ticket in tickets or () if ticket[:7] == b"ticket "
    ]
    since = found.token and found.token / _MICROSECONDS
    hold = Hold(
        holder=owner,
        by=AIOLOCK if ours else REDISSON,
        holds=count,
        left=found.left,
        token=found.token,
        since=since,
        age=since and max(0.0, now - since),
    )
    return Lock(
        name=found.keys.name,
        kind=FAIR if line or (fields and _OF_A_FAIR_ONE in fields[1]) else LOCK,
        server=node.address,
        holds=[hold],
        waiting=max(len(line), number_of(listening)),
        line=line,
        last_token=last and int(last),
    )


async def _read_write(node: Node, found: _Found, now: float, answers: list[Any]) -> Lock | None:
    fields, length, last, _, listening = answers
    owners = _owners(fields)[:MOST_NAMED]
    assert found.keys.record is not None
    front, _ = found.keys.record
    records = [f"{front}{owner}:rwlock_timeout:1" for owner, _ in owners]
    asked = await node.ask([q for key in records for q in (("PTTL", key), ("HGET", key, "token"))])
    holds = [_half(each, found.left, now, asked[2 * at : 2 * at + 2]) for at, each in enumerate(owners)]
    there = _without_expired_writers([each for each in holds if each is not None])
    return Lock(
        name=found.keys.name,
        kind=READ_WRITE,
        server=node.address,
        holds=sorted(there, key=lambda hold: (hold.mode != "write", hold.since or 0.0)),
        more=max(0, (length or 1) - 1 - len(owners)),
        waiting=number_of(listening),
        last_token=last and int(last),
    )


def _half(field: tuple[str, int], left_of_all: float, now: float, record: list[Any]) -> Hold | None:
    """One who reads or writes; ``None`` if its time is over."""
    (owner, count), (left, token) = field, record
    writes = owner.endswith(WRITER)
    # A writer of Redisson's has no record: it has as long as the lock. Its readers' records are no hashes.
    if left is None or left < 0:
        if not writes:
            return None
        left = round(left_of_all * 1000)
    since = None if token is None else int(token) / _MICROSECONDS
    return Hold(
        holder=owner,
        by=REDISSON if token is None else AIOLOCK,
        holds=count,
        left=left / 1000,
        mode="write" if writes else "read",
        token=None if token is None else int(token),
        since=since,
        age=since and max(0.0, now - since),
    )


def _without_expired_writers(holds: list[Hold]) -> list[Hold]:
    """A writer without a record whose owner reads with one of ours is one of ours, whose time is over."""
    ours = {(hold.client, hold.owner) for hold in holds if hold.mode == "read" and hold.by == AIOLOCK}
    return [hold for hold in holds if not (hold.by == REDISSON and (hold.client, hold.owner) in ours)]


def _owners(answer: Any) -> list[tuple[str, int]]:
    """Fields that are owners, with their hold counts, in what HSCAN answered."""
    fields: dict[bytes, bytes] = answer[1] if answer else {}
    return [
        (field.decode(errors="replace"), int(count))
        for field, count in fields.items()
        if count.isdigit() and not field.startswith(b"aiolock:")
    ]
