"""Locks and read-write locks, which are hashes; see the headers of their scripts. And keys that are no locks."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from aiolock._cli.locks.model import FAIR, LOCK, READ_WRITE, Hold, Lock, age_of
from aiolock._cli.locks.node import LONGEST_NUMBER, Node, Question, token_of, whole
from aiolock._identity import KEPT
from aiolock._keys import WRITER, LockKeys

AIOLOCK, REDISSON = "aiolock", "Redisson"
MOST_NAMED = 1000

_OF_REDISSON = re.compile(r"[0-9a-f-]{36}:\d+", re.IGNORECASE)
_OF_A_FAIR_ONE = b"aiolock:fair"
# The scores of the line lie between these; see fair.lua.
_TICKETS, _NO_TICKETS = "-4000000000000000", "(-1000000000000000"
_MOST_IN_LINE = 1000


@dataclass(frozen=True, slots=True)
class _Found:
    """A hash that may be a lock; *left* is in seconds."""

    keys: LockKeys
    left: float
    length: int
    acquisition: bool
    token: int | None
    mode: bool
    listening: int = 0


async def describe(node: Node, every: Sequence[LockKeys], kind: str = "") -> list[Lock]:
    """The locks among *every* that are held, or kept after their release; of that *kind*, if it cannot be seen."""
    found = await node.ask_of(
        await _candidates(node, every),
        lambda each: [
            ("HSCAN", each.keys.lock, 0, "COUNT", MOST_NAMED),
            ("ZSCORE", each.keys.tokens, "token"),
            ("ZRANGEBYSCORE", each.keys.tokens, _TICKETS, _NO_TICKETS, "LIMIT", 0, _MOST_IN_LINE),
        ],
    )
    now = await node.now() if found else 0.0
    locks = [
        await _read_write(node, each, now, told) if each.mode else _plain(node, each, now, told) for each, told in found
    ]
    return [replace(each, kind=kind or each.kind) for each in locks if each is not None]


async def _candidates(node: Node, every: Sequence[LockKeys]) -> list[_Found]:
    """The keys that look like locks, found without reading more than a few bytes of each."""

    def about(keys: LockKeys) -> list[Question]:
        fields = ("aiolock:acquisition", "aiolock:token", "mode")
        return [("PTTL", keys.lock), ("HLEN", keys.lock), ("HMGET", keys.lock, *fields)]

    found = []
    for keys, (left, length, fields) in await node.ask_of(every, about):
        if left is None or left <= 0 or fields is None:
            continue
        acquisition, token, mode = fields
        reads_or_writes = mode in (b"read", b"write")
        if acquisition is not None or reads_or_writes or length == 1:
            its = LockKeys.of_read_write(keys.name, "")[0] if reads_or_writes else keys
            known = token_of(token)
            found.append(_Found(its, left / 1000, length or 1, acquisition is not None, known, reads_or_writes))
    listening = await node.listening([each.keys.channel for each in found])
    return [replace(each, listening=listening[each.keys.channel]) for each in found]


async def foreign_type(node: Node, name: str) -> str | None:
    """The type of the key *name* if it exists and is neither a lock nor a number."""
    # A lock may be taken or released between two replies, so all questions go in one request.
    kind, left, length, fields = await node.ask([("TYPE", name), ("PTTL", name), ("STRLEN", name), ("HSCAN", name, 0)])
    if kind == b"none":
        return None
    if kind == b"hash":
        return "hash" if left == -1 or _is_foreign(fields) else None
    if kind == b"string" and (length is None or length <= LONGEST_NUMBER):
        [value] = await node.ask([("GET", name)])
        if value is None or re.fullmatch(rb"-?\d+", value):
            return None
    return bytes(kind).decode()


def _is_foreign(answer: Any) -> bool:
    """Whether the key has fields in this answer of HSCAN, and none of them is a field of a lock."""
    fields = _fields(answer)
    if not fields or b"aiolock:acquisition" in fields or fields.get(b"mode") in (b"read", b"write"):
        return False
    owners = _owners(answer)
    return len(fields) > 1 or not owners or not _is_owner(owners[0][0])


def _is_owner(owner: str) -> bool:
    """Whether *owner*, the only field of a hash, is an owner of a lock."""
    return owner.endswith(f":{KEPT}") or _OF_REDISSON.fullmatch(owner) is not None


def _plain(node: Node, found: _Found, now: float, told: list[Any]) -> Lock | None:
    fields, last, tickets = told
    owners = _owners(fields)
    owner, count = owners[0] if len(owners) == 1 else ("", 0)
    if not owner or not (found.acquisition or _is_owner(owner)):
        return None
    line = [
        ticket.decode(errors="replace").removeprefix("ticket ") for ticket in tickets or () if ticket[:7] == b"ticket "
    ]
    library = AIOLOCK if found.acquisition or owner.endswith(f":{KEPT}") else REDISSON
    token = found.token
    hold = Hold(owner_id=owner, library=library, holds=count, left=found.left, token=token, age=age_of(token, now))
    return Lock(
        name=found.keys.name,
        kind=FAIR if line or _OF_A_FAIR_ONE in _fields(fields) else LOCK,
        server=node.address,
        holds=[hold],
        waiting=max(len(line), found.listening),
        line=line,
        last_token=token_of(last),
    )


async def _read_write(node: Node, found: _Found, now: float, told: list[Any]) -> Lock | None:
    fields, last, _ = told
    owners = _owners(fields)[:MOST_NAMED]
    assert found.keys.record is not None
    front, _ = found.keys.record

    def about(field: tuple[str, int]) -> list[Question]:
        record = f"{front}{field[0]}:rwlock_timeout:1"
        return [("PTTL", record), ("HGET", record, "token")]

    holds = [_half(each, found.left, now, *record) for each, record in await node.ask_of(owners, about)]
    there = _without_expired_writers([each for each in holds if each is not None])
    return Lock(
        name=found.keys.name,
        kind=READ_WRITE,
        server=node.address,
        holds=sorted(there, key=lambda hold: (hold.mode != "write", hold.since or 0.0)),
        more=max(0, found.length - 1 - len(owners)),
        waiting=found.listening,
        last_token=token_of(last),
    )


def _half(field: tuple[str, int], left_of_all: float, now: float, left: Any, said: Any) -> Hold | None:
    """One reader or writer; ``None`` if its lease has ended."""
    owner, count = field
    writes = owner.endswith(WRITER)
    # A writer of Redisson's has no record, and ends with the lock. The records of its readers are no hashes.
    if left is None or left < 0:
        if not writes:
            return None
        left = round(left_of_all * 1000)
    token = token_of(said)
    return Hold(
        owner_id=owner,
        library=REDISSON if said is None else AIOLOCK,
        holds=count,
        left=left / 1000,
        mode="write" if writes else "read",
        token=token,
        age=age_of(token, now),
    )


def _without_expired_writers(holds: list[Hold]) -> list[Hold]:
    """All but expired writers: one without a record whose owner also reads with aiolock is aiolock's, and expired."""
    ours = {(hold.client, hold.owner) for hold in holds if hold.mode == "read" and hold.library == AIOLOCK}
    return [hold for hold in holds if not (hold.library == REDISSON and (hold.client, hold.owner) in ours)]


def _fields(answer: Any) -> dict[bytes, bytes]:
    """The fields in this answer of HSCAN."""
    _, fields = answer or (0, {})
    return dict(fields)


def _owners(answer: Any) -> list[tuple[str, int]]:
    """The fields that are owners, with their hold counts, in this answer of HSCAN."""
    return [
        (field.decode(errors="replace"), count)
        for field, value in _fields(answer).items()
        if not field.startswith(b"aiolock:") and (count := whole(value)) is not None and count >= 0
    ]
